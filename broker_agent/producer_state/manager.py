"""The producers of one partition (`ProducerStateManager` in Kafka; KIP-98, KIP-360, KIP-890).

Pure: no clock, file, socket or event loop. The log that owns it checks a batch, writes it, and then appends the answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from pidkeeper.broker_agent.producer_state import rules
from pidkeeper.broker_agent.producer_state.batches import (
    MAX_OFFSET,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Answer,
    AppendOrigin,
    Batch,
    CompletedTransaction,
    Completion,
    ControlBatch,
    DataBatch,
    New,
    ProducerStateEntry,
    RefusalCode,
    Refused,
    VerificationEntry,
    check_range,
)
from pidkeeper.broker_agent.producer_state.snapshot import (
    ProducerSnapshot,
    ProducerSnapshotError,
    decode_snapshot,
    encode_partition,
    encode_snapshot,
)
from pidkeeper.broker_agent.producer_state.transactions import Transactions
from pidkeeper.broker_agent.producer_state.verification import Verifications

TRANSACTIONAL_ID_EXPIRATION_MS: Final = 7 * 24 * 60 * 60 * 1000
"""Kafka's default of `transactional.id.expiration.ms`, for which KIP-360 keeps the state of a producer.

KIP-854 gave the brokers a setting of their own, `producer.id.expiration.ms`, of one day.
"""

MAX_TRANSACTION_TIMEOUT_MS: Final = 15 * 60 * 1000
"""Kafka's default of `transaction.max.timeout.ms`."""

LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60 * 1000
"""How far a transaction may pass its longest timeout before it counts as late (as in Kafka)."""

DEFAULT_MAX_PRODUCERS: Final = 50_000
"""Producers of one partition unless configured otherwise: about 1 kB each with five batches retained."""

MAX_PRODUCERS: Final = 1_000_000
"""The most that can be configured: a snapshot of them has 151 MB."""


class Reloaded(msgspec.Struct, frozen=True):
    """What a truncation came to: the log replays from `replay_from` on; `rejected`, why snapshots could not be used."""

    replay_from: int
    rejected: tuple[str, ...]


class ProducerStateManager:
    """Which batches of which producer the partition holds, and what may come next.

    `check` answers, and changes nothing; `append` commits the answer. Batches come in the order of their offsets.
    State outlives the deletion of the segments it came from (KIP-360, "Prolonged producer state retention"): it goes
    when a producer without an open transaction was silent for `expiration_ms`, and by truncation.

    At `max_producers` a client that is not known is refused with THROTTLING_QUOTA_EXCEEDED until others expire. What a
    leader or a coordinator writes takes the place of the producer that was silent longest, and is refused only when
    all others have transactions open.

    Invariants, asserted where the state changes:
    S1  there are never more than `max_producers` producers;
    S2  `end_offset` never falls, except by truncation;
    S3  no two transactions begin at one offset, and each is completed once.
    """

    __slots__ = (
        "_entries",
        "_expiration_ms",
        "_transactions",
        "_verifications",
        "end_offset",
        "max_producers",
        "max_transaction_timeout_ms",
        "partition",
    )

    def __init__(
        self,
        partition: str,
        *,
        expiration_ms: int = TRANSACTIONAL_ID_EXPIRATION_MS,
        max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
        max_producers: int = DEFAULT_MAX_PRODUCERS,
    ) -> None:
        """`partition`, the name that its snapshots carry. Raises ValueError for settings out of range."""
        encode_partition(partition)
        check_range("number of producers", max_producers, 1, MAX_PRODUCERS)
        check_range("longest transaction timeout", max_transaction_timeout_ms, 1, 2**31 - 1)
        self.partition = partition
        self.expiration_ms = expiration_ms
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.max_producers = max_producers
        self.end_offset = 0
        # Least recently appended first.
        self._entries: OrderedDict[int, ProducerStateEntry] = OrderedDict()
        self._transactions = Transactions()
        self._verifications = Verifications(max_producers)

    @property
    def expiration_ms(self) -> int:
        """How long a silent producer is known, ms. May be set while running."""
        return self._expiration_ms

    @expiration_ms.setter
    def expiration_ms(self, value: int) -> None:
        check_range("expiration", value, 1, 2**63 - 1)
        self._expiration_ms = value

    def __len__(self) -> int:
        """Producers known."""
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        """The producers' states, least recently appended first."""
        return iter(self._entries.values())

    def entry(self, producer_id: int) -> ProducerStateEntry | None:
        """What is known of a producer."""
        return self._entries.get(producer_id)

    # --- appending

    def check(
        self, *batches: Batch, origin: AppendOrigin = AppendOrigin.CLIENT, transaction_version: int = 0
    ) -> Answer:
        """Whether the batches, all or none, may be written, as New, Duplicate or Refused. Changes nothing.

        `transaction_version` is that of the request (KIP-890): 2 refuses a transactional batch of an unknown producer
        that does not start at sequence 0, and a marker that ends a transaction without raising the epoch.

        Raises ValueError for what no log would ask: no batch, offsets that do not rise or lie below `end_offset`, and
        from a client several batches (a partition's part of a produce request holds one), a control batch or one
        without sequences.
        """
        self._check_offsets(batches)
        if origin is AppendOrigin.CLIENT:
            data = _client_batch(batches)
            duplicate = rules.find_duplicate(self._entries.get(data.producer_id), data)
            if duplicate is not None:
                return duplicate
        new = New({}, {}, {}, [], batches[0].first_offset, batches[-1].last_offset + 1)
        for batch in batches:
            if isinstance(batch, DataBatch):
                refused = self._add_data(new, batch, origin, transaction_version)
            else:
                refused = self._add_marker(new, batch, origin, transaction_version)
            if refused is not None:
                return refused
        return self._make_room(new, origin) or new

    def append(self, new: New) -> list[CompletedTransaction]:
        """Commit what `check` answered, now that the batches are in the log. Returns the transactions that ended.

        Raises ValueError, and changes nothing, if one of the producers or the end of the log has moved on since.
        """
        moved = [key for key, entry in new.replaces.items() if self._entries.get(key) is not entry]
        crowded = len(self._entries) + _growth(new) > self.max_producers
        if moved or crowded or new.first_offset < self.end_offset:
            raise ValueError(
                f"the state has moved on since the check, to offset {self.end_offset} and {len(self._entries)} "
                f"producers, changed ones among them {moved}: check the batches again"
            )
        for producer_id in new.replaces.keys() - new.entries.keys():
            del self._entries[producer_id]
        for producer_id, entry in new.entries.items():
            self._entries[producer_id] = entry
            self._entries.move_to_end(producer_id)
            self._verifications.end(producer_id)
        for first_offset, producer_id in new.started.items():
            self._transactions.start(first_offset, producer_id)
        ended = [self._complete(completion) for completion in new.completed]
        assert new.end_offset > self.end_offset, f"S2: offset {new.end_offset} is not above {self.end_offset}"
        assert len(self._entries) <= self.max_producers, f"S1: {len(self._entries)} above {self.max_producers}"
        self.end_offset = new.end_offset
        return ended

    def advance_end_offset(self, offset: int) -> None:
        """Say that the log goes on to `offset` with batches that no idempotent producer wrote."""
        check_range("end offset", offset, self.end_offset, MAX_OFFSET + 1)
        self.end_offset = offset

    def _check_offsets(self, batches: tuple[Batch, ...]) -> None:
        if not batches:
            raise ValueError("there is no batch to check")
        end_offset = self.end_offset
        for batch in batches:
            if batch.first_offset < end_offset:
                raise ValueError(f"a batch cannot begin at offset {batch.first_offset}: the log goes to {end_offset}")
            end_offset = batch.last_offset + 1

    def _staged(self, new: New, producer_id: int) -> ProducerStateEntry | None:
        if producer_id in new.entries:
            return new.entries[producer_id]
        return self._entries.get(producer_id)

    def _stage(self, new: New, entry: ProducerStateEntry) -> None:
        new.replaces.setdefault(entry.producer_id, self._entries.get(entry.producer_id))
        new.entries[entry.producer_id] = entry

    def _add_data(self, new: New, batch: DataBatch, origin: AppendOrigin, transaction_version: int) -> Refused | None:
        before = self._staged(new, batch.producer_id)
        verification = self._verifications.get(batch.producer_id)
        lowest = None if verification is None else verification.lowest_sequence
        refused = rules.refuse_data(before, batch, origin, transaction_version, lowest)
        if refused is not None:
            return refused
        after = rules.after_data(before, batch)
        if after.txn_first_offset == batch.first_offset:
            new.started[batch.first_offset] = batch.producer_id
        self._stage(new, after)
        return None

    def _add_marker(
        self, new: New, batch: ControlBatch, origin: AppendOrigin, transaction_version: int
    ) -> Refused | None:
        if batch.marker is None:
            return None
        before = self._staged(new, batch.producer_id)
        refused = rules.refuse_marker(before, batch, batch.marker, origin, transaction_version)
        if refused is not None:
            return refused
        if before is not None and before.txn_first_offset is not None:
            new.completed.append(
                Completion(batch.producer_id, before.txn_first_offset, batch.offset, batch.marker.committed)
            )
        self._stage(new, rules.after_marker(before, batch, batch.marker))
        return None

    def _complete(self, ended: Completion) -> CompletedTransaction:
        stable = self._transactions.complete(ended.first_offset, ended.last_offset)
        return CompletedTransaction(
            ended.producer_id, ended.first_offset, ended.last_offset, ended.committed, last_stable_offset=stable
        )

    # --- the bound

    def _make_room(self, new: New, origin: AppendOrigin) -> Refused | None:
        excess = len(self._entries) + _growth(new) - self.max_producers
        if excess <= 0:
            return None
        silent = (
            entry
            for entry in self._entries.values()
            if entry.txn_first_offset is None and entry.producer_id not in new.entries
        )
        leaving = [] if origin is AppendOrigin.CLIENT else list(islice(silent, excess))
        if len(leaving) < excess:
            return Refused(
                RefusalCode.THROTTLING_QUOTA_EXCEEDED,
                f"{len(self._entries)} producers are known here and {self.max_producers} may be: wait until some "
                "expire, or raise the limit",
            )
        new.replaces.update((entry.producer_id, entry) for entry in leaving)
        return None

    # --- transactions

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        oldest = self._transactions.oldest
        return None if oldest is None else oldest[0]

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or whose marker lies above the high watermark."""
        return self._transactions.first_unstable_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which everything is replicated and decided: how far a `read_committed` consumer reads."""
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def update_high_watermark(self, offset: int) -> None:
        """Say that everything below `offset` is replicated."""
        self._transactions.replicated_to(offset)

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the producer of the oldest open transaction has been silent for longer than any timeout allows."""
        oldest = self._transactions.oldest
        if oldest is None:
            return False
        last = self._entries[oldest[1]].last_timestamp
        return last != NO_TIMESTAMP and now_ms - last > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def begin_verification(self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int) -> None:
        """Note the first sequence of a batch that waits for its transaction to be verified (KIP-890).

        Until the producer appends, or this expires, no higher sequence is taken: the lowest one will be sent again.
        A higher epoch starts afresh, a lower one counts for nothing. At `max_producers` the oldest gives way.
        """
        self._verifications.begin(producer_id, producer_epoch, sequence, now_ms)

    def verification(self, producer_id: int) -> VerificationEntry | None:
        """What waits to be verified of a producer."""
        return self._verifications.get(producer_id)

    # --- expiry, retention, truncation

    def remove_expired(self, now_ms: int) -> int:
        """Forget the producers that were silent for `expiration_ms`, and stale verifications. Returns how many went."""
        expired = [key for key, entry in self._entries.items() if entry.is_expired(now_ms, self._expiration_ms)]
        for producer_id in expired:
            del self._entries[producer_id]
        self._verifications.remove_expired(now_ms, self._expiration_ms)
        return len(expired)

    def on_log_start_offset(self, offset: int) -> None:
        """Say that the log was deleted below `offset`. The producers stay (KIP-360)."""
        self._transactions.replicated_to(offset)
        self.end_offset = max(self.end_offset, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the log is empty and goes on at `offset`."""
        check_range("offset", offset, 0, MAX_OFFSET + 1)
        self._reset(ProducerSnapshot(offset, (), ()))

    def truncate_and_reload(
        self, log_start_offset: int, log_end_offset: int, snapshots: Iterable[bytes], now_ms: int
    ) -> Reloaded:
        """Go back to the newest of the `snapshots`, newest first, that lies above the start and up to the end offset.

        The log then replays its batches from `replay_from` on, with origin REPLICATION: from the start without a
        usable snapshot. Nothing goes back if the state ends where the log does. No snapshot behind the one that is
        used is asked for. Raises ValueError if the start is above the end.
        """
        check_range("log start offset", log_start_offset, 0, log_end_offset)
        if log_end_offset == self.end_offset:
            self.on_log_start_offset(log_start_offset)
            return Reloaded(self.end_offset, ())
        rejected: list[str] = []
        found = self._usable(log_start_offset, log_end_offset, snapshots, rejected)
        self._reset(self._unexpired(found or ProducerSnapshot(log_start_offset, (), ()), now_ms))
        return Reloaded(self.end_offset, tuple(rejected))

    def _usable(
        self, log_start_offset: int, log_end_offset: int, snapshots: Iterable[bytes], rejected: list[str]
    ) -> ProducerSnapshot | None:
        for data in snapshots:
            try:
                snapshot = decode_snapshot(data, self.partition, self.max_producers)
            except ProducerSnapshotError as error:
                rejected.append(str(error))
                continue
            if log_start_offset < snapshot.end_offset <= log_end_offset:
                return snapshot
            rejected.append(
                f"producer snapshot of {self.partition}: its end offset {snapshot.end_offset} does not lie above "
                f"{log_start_offset} and up to {log_end_offset}"
            )
        return None

    # --- snapshots

    def snapshot(self) -> bytes:
        """The state as bytes, all five batches of each producer included; see the module `snapshot`."""
        return encode_snapshot(
            self.partition, self.end_offset, tuple(self._entries.values()), self._transactions.unreplicated
        )

    def restore(self, data: bytes, now_ms: int) -> None:
        """Become what `snapshot` kept, less the producers that have expired since.

        Raises ProducerSnapshotError, and changes nothing, for bytes that are damaged, of another partition or format,
        or of more than `max_producers` producers.
        """
        self._reset(self._unexpired(decode_snapshot(data, self.partition, self.max_producers), now_ms))

    def _unexpired(self, snapshot: ProducerSnapshot, now_ms: int) -> ProducerSnapshot:
        entries = tuple(entry for entry in snapshot.entries if not entry.is_expired(now_ms, self._expiration_ms))
        return ProducerSnapshot(snapshot.end_offset, entries, snapshot.unreplicated)

    def _reset(self, snapshot: ProducerSnapshot) -> None:
        self._entries = OrderedDict((entry.producer_id, entry) for entry in snapshot.entries)
        opened = ((e.txn_first_offset, e.producer_id) for e in snapshot.entries if e.txn_first_offset is not None)
        self._transactions = Transactions(opened, snapshot.unreplicated)
        self._verifications.clear()
        self.end_offset = snapshot.end_offset


def _client_batch(batches: tuple[Batch, ...]) -> DataBatch:
    batch = batches[0]
    if len(batches) > 1 or not isinstance(batch, DataBatch) or batch.first_sequence == NO_SEQUENCE:
        raise ValueError("a client appends one batch at a time, of data, with sequences")
    return batch


def _growth(new: New) -> int:
    return len(new.entries) - sum(known is not None for known in new.replaces.values())
