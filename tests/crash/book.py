"""Entries with real records in them, and who was given what by them: the truth that a quorum agrees on in a history."""

from __future__ import annotations

from typing import Final, NamedTuple

from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.state.machine import StateMachine, allocations, owners
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.metadata_version import TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    Record,
    RegisterBrokerRecord,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.transactions import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ForgetTransactionRecord,
    TransactionalBlockRecord,
    TransactionRecord,
)
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.owner_format import Owner
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.crash.facts import BLOCK_SIZE, CLUSTER_ID

BROKER = 1
OWN_IDS_OF: Final = 3
"""With IDs of the quorum's own, all but one in so many of what is given goes to transactional ids."""


class _End(NamedTuple):
    """What a chain of entries leaves behind: the next offset and ID, the own IDs that are left, and who had the last.

    The newest transactional id alone is kept: the state forgets the one before it, so the files alone know that.
    """

    offset: int = 0
    first: int = 0
    own: range = range(0)
    user: str | None = None


class Book:
    """`committed`: by index; `blocks` and `owners`: what they gave, by timestamp; `labels`: those in an entry's data.

    `own_ids`: whether transactional ids get IDs of the quorum's own.
    """

    def __init__(self, *, own_ids: bool = False) -> None:
        self.committed: dict[int, Entry] = {}
        self.images: dict[SnapshotId, StateImage] = {}
        self.blocks: dict[int, AllocatedBlock] = {}
        self.owners: dict[int, Owner] = {}
        self.offsets: dict[int, int] = {}
        self.labels: dict[bytes, list[int]] = {b"": []}
        self._own_ids = own_ids
        self._ends = {b"": _End()}
        self._clock = 0
        self._machine = StateMachine(CLUSTER_ID, BLOCK_SIZE)

    def propose(self, previous: bytes, index: int, term: int, count: int) -> Entry:
        """The entry after the one with the data `previous`: the committed one, or a new one that gives so often."""
        if index in self.committed:
            return self.committed[index]
        end = self._ends[previous]
        records: list[Record] = []
        labels: list[int] = []
        if end.offset == 0:
            records.append(RegisterBrokerRecord(BROKER, 0, f"made at {self._tick()}"))
            if self._own_ids:
                records.append(FeatureLevelRecord(TRANSACTIONAL_BLOCKS))
        for _ in range(count):
            labels.append(self._tick())
            if self._own_ids and labels[-1] % OWN_IDS_OF:
                end = self._give_own(end, records, labels)
            else:
                last = end.first + BLOCK_SIZE - 1
                records.append(AllocateProducerIdsRecord(BROKER, 0, last, end.first, BLOCK_SIZE, labels[-1]))
                end = end._replace(first=last + 1)
        data = encode_batch(records)
        self.labels[data] = labels
        self._ends[data] = end._replace(offset=end.offset + len(records))
        return Entry(term, index, data)

    def _give_own(self, end: _End, records: list[Record], labels: list[int]) -> _End:
        """To a new transactional id, with a block before it if that is needed."""
        if not end.own:
            own = range(end.first, end.first + BLOCK_SIZE)
            records.append(TransactionalBlockRecord(own[0], own[-1], labels[-1]))
            labels.append(self._tick())
            end = end._replace(first=own.stop, own=own)
        if end.user is not None:
            records.append(ForgetTransactionRecord(end.user))
        name = f"tx-{labels[-1]}"
        empty = TransactionStatus.EMPTY
        records.append(
            TransactionRecord(name, end.own[0], 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, 60_000, empty, labels[-1])
        )
        return end._replace(own=end.own[1:], user=name)

    def commit(self, entry: Entry) -> None:
        """The quorum agrees on `entry`, the one after the last that was committed."""
        if entry.index in self.committed:
            assert self.committed[entry.index] == entry, f"{entry} was committed as {self.committed[entry.index]}"
            return
        assert entry.index == len(self.committed) + 1, f"{entry} after {len(self.committed)} committed ones"
        records = decode_batch(entry.data)
        for offset, record in allocations(records, self._machine.next_offset):
            self.offsets[record.timestamp_ms] = offset
            self.blocks[record.timestamp_ms] = AllocatedBlock(
                first=record.producer_id_start,
                last=record.producer_id_end,
                broker_id=record.broker_id,
                broker_epoch=record.broker_epoch,
                offset=offset,
                timestamp_ms=record.timestamp_ms,
            )
        for owner in owners(records, self._machine.next_offset, self._machine.metadata_version):
            self.offsets[owner.timestamp_ms] = owner.offset
            self.owners[owner.timestamp_ms] = owner
        self._machine.replay(records)
        self.committed[entry.index] = entry
        self.images[SnapshotId(entry.index, entry.term)] = self._machine.image(entry.index, entry.term)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock
