"""Transactional ids: who may write under each, and how far its transaction is (KIP-98, KIP-360).

A transactional id has one producer id and one epoch at a time. Whoever initialises it gets a newer pair, and every
older pair is fenced from then on. The pair before the newest one is kept, so that a request whose answer was lost can
be sent again (KIP-360, "Proposed Changes"); it is compared as a pair.

`transitions.py` decides; this module holds and replays. The value is the record that goes into the log, so replaying it
is storing it; but partitions that join go there alone, without those that had joined before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pidkeeper.controller.state.shared_dict import SharedDict
from pidkeeper.controller.state.transitions import IDLE, LEGAL, TransactionStatus, join, next_to
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_ID,
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TransactionRecord,
)

MAX_TRANSACTIONAL_IDS: Final = 200_000
"""Ids kept. At 300 bytes each (the longest id takes 249) they fill a quarter of the largest snapshot."""

MAX_PARTITION_BYTES: Final = 64 * 1024 * 1024
"""Of memory, for all partitions of all transactions. In a snapshot they take no more."""


class TransactionsState:
    """The newest record of every transactional id.

    `partition_bytes`: of memory, for the partitions in all of them. `by_status[status]`: how many ids are in it.
    """

    __slots__ = ("_forgotten", "_names", "_new", "_records", "_under_way", "_users", "by_status", "partition_bytes")

    def __init__(self, records: Iterable[TransactionRecord] = ()) -> None:
        self._records: SharedDict[str, TransactionRecord] = SharedDict()
        # Those of them that are not idle.
        self._under_way: dict[str, TransactionRecord] = {}
        # The ids, ascending, as of the last look, which nobody changes; and what has come and gone since.
        self._names: list[str] = []
        self._new: list[str] = []
        self._forgotten: set[str] = set()
        # Producer id -> the transactional id that has it, or had it last.
        self._users: dict[int, str] = {}
        self.partition_bytes = 0
        self.by_status = [0] * len(TransactionStatus)
        for record in records:
            self._store(None, record)

    def get(self, transactional_id: str) -> TransactionRecord | None:
        """The newest record of `transactional_id`, if it is known."""
        return self._records.get(transactional_id)

    def all(self) -> list[TransactionRecord]:
        """Every id's newest record, sorted by id."""
        return [self._records[name] for name in self._ascending()]

    def copied(self) -> Callable[[], list[TransactionRecord]]:
        """What gives `all` of this moment, whatever is replayed meanwhile; on any thread, for it takes long."""
        # With 200,000 ids the list that is made of it takes 18 ms.
        names, records = self._ascending(), self._records.share()

        def ascending() -> list[TransactionRecord]:
            return [records[name] for name in names]

        return ascending

    def names(self) -> list[str]:
        """Every id, in no order that means anything."""
        return list(self._records)

    def under_way(self) -> list[TransactionRecord]:
        """The newest record of every id that has a transaction, also one that is decided and not complete."""
        return list(self._under_way.values())

    def after(self, transactional_id: str) -> Iterator[TransactionRecord]:
        """The records of all ids above `transactional_id`, ascending; to be used up before the next replay."""
        names = self._ascending()
        first = bisect_right(names, transactional_id)
        return (self._records[names[position]] for position in range(first, len(names)))

    def user_of(self, producer_id: int) -> str | None:
        """The transactional id that has `producer_id`, or had it before its newest one."""
        return self._users.get(producer_id)

    def __len__(self) -> int:
        return len(self._records)

    def replay(
        self,
        record: TransactionRecord | AddPartitionsRecord | ForgetTransactionRecord,
        offset: int,
        next_producer_id: int,
    ) -> None:
        """Apply one committed record. Only what `transitions` decided gets here, so a mismatch stops the process."""
        before = self._records.get(record.transactional_id)
        if isinstance(record, ForgetTransactionRecord):
            assert before is not None and TransactionStatus.DEAD in LEGAL[before.status], (
                f"T1: offset {offset} forgets {record.transactional_id!r}, which is {before}"
            )
            self._let_go(before)
            del self._records[record.transactional_id]
            self._forgotten.add(record.transactional_id)
            return
        if isinstance(record, AddPartitionsRecord):
            assert before is not None, f"T1: offset {offset} adds to the unknown {record.transactional_id!r}"
            pair = (record.producer_id, record.producer_epoch)
            assert (before.producer_id, before.producer_epoch) == pair, (
                f"T4: offset {offset} adds for {pair} to {before}"
            )
            record = join(before, record)
        _check(before, record, offset, next_producer_id)
        self._store(before, record)

    def _store(self, before: TransactionRecord | None, record: TransactionRecord) -> None:
        ids = [one for one in (record.producer_id, record.last_producer_id) if one != NO_PRODUCER_ID]
        for producer_id in ids:
            user = self._users.get(producer_id, record.transactional_id)
            assert user == record.transactional_id, f"T3: {record} has producer ID {producer_id}, as {user!r} has"
        if before is not None:
            self._let_go(before)
        elif record.transactional_id in self._forgotten:
            self._forgotten.remove(record.transactional_id)
        else:
            self._new.append(record.transactional_id)
        self._records[record.transactional_id] = record
        if record.status not in IDLE:
            self._under_way[record.transactional_id] = record
        self.partition_bytes += record.kept_bytes
        self.by_status[record.status] += 1
        for producer_id in ids:
            self._users[producer_id] = record.transactional_id

    def _let_go(self, record: TransactionRecord) -> None:
        self.partition_bytes -= record.kept_bytes
        self.by_status[record.status] -= 1
        self._under_way.pop(record.transactional_id, None)
        for producer_id in (record.producer_id, record.last_producer_id):
            self._users.pop(producer_id, None)

    def _ascending(self) -> list[str]:
        if self._new or self._forgotten:
            names = self._names + self._new
            if forgotten := self._forgotten:
                names = [name for name in names if name not in forgotten]
            names.sort()  # which takes what is sorted already as it is
            self._names, self._new, self._forgotten = names, [], set()
        return self._names


def gets_new_id(before: TransactionRecord | None, record: TransactionRecord) -> bool:
    """Whether `record` gives its transactional id a producer ID that it did not have `before`."""
    return before is None or before.producer_id != record.producer_id


def _check(before: TransactionRecord | None, record: TransactionRecord, offset: int, next_producer_id: int) -> None:
    assert record.producer_id < next_producer_id, (
        f"T2: offset {offset} uses producer ID {record.producer_id}, but the next one to be allocated is "
        f"{next_producer_id}"
    )
    if before is None:
        assert record.status == TransactionStatus.EMPTY and record.producer_epoch == 0, (
            f"T1: offset {offset} begins {record.transactional_id!r} with {record}"
        )
        return
    assert record.status in LEGAL[before.status], f"T1: offset {offset} turns {before} into {record}"
    assert next_to(before, record), f"T4: offset {offset} turns {before} into {record}"
