"""What a producer may append next to a log (`ProducerAppendInfo` in Kafka; KIP-98, KIP-360). Functions only."""

from __future__ import annotations

from typing import Final, Protocol

from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.logs import MAX_SEQUENCE, NO_SEQUENCE, last_sequence
from pidkeeper.snapshots.logs_image import ProducerEntry

BATCHES_TO_RETAIN: Final = 5
"""As many requests of a producer without answer are under way at most (`max.in.flight.requests.per.connection`)."""

NOT_OPEN: Final = -1


class Batch(Protocol):
    """What is asked of a batch here. `OfferedBatch` and `BatchCoordinates` are some."""

    @property
    def records(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def base_sequence(self) -> int: ...

    @property
    def transactional(self) -> bool: ...


def find_duplicate(entry: ProducerEntry | None, batch: Batch) -> int | None:
    """The base offset of the kept batch with exactly these sequences and this epoch; a part of one is no duplicate."""
    if entry is None or entry.producer_epoch != batch.producer_epoch:
        return None
    first, last = batch.base_sequence, last_sequence(batch.base_sequence, batch.records)
    for known_first, known_last, base_offset in entry.batches:
        if known_first == first and known_last == last:
            return base_offset
    return None


def refusal(entry: ProducerEntry | None, batch: Batch) -> ErrorCode | None:
    """Why an idempotent batch must not be appended.

    Of a producer that nothing is known of, any sequence will do: it may be one that was forgotten (KIP-360).
    """
    if entry is None:
        return None
    if batch.producer_epoch < entry.producer_epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if batch.base_sequence != _expected(entry, batch):
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if entry.open_since != NOT_OPEN and not batch.transactional:
        return ErrorCode.INVALID_TXN_STATE
    return None


def after_batch(entry: ProducerEntry | None, batch: Batch, base_offset: int, timestamp_ms: int) -> ProducerEntry:
    """The producer behind the batch, which has its place at `base_offset`."""
    kept = (batch.base_sequence, last_sequence(batch.base_sequence, batch.records), base_offset)
    if entry is None:
        return ProducerEntry(
            batch.producer_epoch, timestamp_ms, base_offset if batch.transactional else NOT_OPEN, (kept,)
        )
    open_since = base_offset if batch.transactional and entry.open_since == NOT_OPEN else entry.open_since
    known = entry.batches[1 - BATCHES_TO_RETAIN :] if entry.producer_epoch == batch.producer_epoch else ()
    return ProducerEntry(batch.producer_epoch, timestamp_ms, open_since, (*known, kept))


def after_marker(entry: ProducerEntry, producer_epoch: int, timestamp_ms: int) -> ProducerEntry:
    """The producer behind the end of its transaction; its batches count on only if the epoch is still theirs."""
    batches = entry.batches if entry.producer_epoch == producer_epoch else ()
    return ProducerEntry(producer_epoch, timestamp_ms, NOT_OPEN, batches)


def _expected(entry: ProducerEntry, batch: Batch) -> int:
    last = entry.batches[-1][1] if entry.batches and batch.producer_epoch == entry.producer_epoch else NO_SEQUENCE
    return (last + 1) & MAX_SEQUENCE
