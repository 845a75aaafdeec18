"""Which batches of those that there are go into an answer, and their bytes put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.codes import KAFKA_STORAGE_ERROR, NONE
from pidkeeper.broker_agent.data.segment_index import SegmentIndex, Span
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import control_batch, read_batch_header, with_base_offset
from pidkeeper.protocol.log_messages import LogBatches, Marker, StoredBatch

MARKER_BYTES: Final = 78

COORDINATOR_EPOCH: Final = 0
"""Of markers: consumers do not look at it, and there is none here."""


class Part(NamedTuple):
    """What is wanted of one log: records from `offset` on, so many bytes.

    `sparse`: the index of the segment that holds them, None if none does, or it cannot be read.
    """

    offset: int
    max_bytes: int
    log: LogBatches
    sparse: SegmentIndex | None


class Selected(NamedTuple):
    """What is given of one log, in the order of its offsets: rows of its tail, or a span of a segment.

    `size`: in bytes; of a span, with the batches before the first one that is given.
    """

    rows: list[StoredBatch | Marker]
    size: int
    span: Span | None = None

    @property
    def batches(self) -> list[StoredBatch]:
        """Those whose bytes have to be read."""
        return [row for row in self.rows if isinstance(row, StoredBatch)]


def select(parts: Sequence[Part], limit: int) -> list[Selected]:
    """What goes into an answer of `limit` bytes.

    The very first batch is given even if it is larger than what is wanted (KIP-74), so that every consumer gets on.
    """
    selected = []
    left, first = limit, True
    for part in parts:
        one = _select(part, min(part.max_bytes, left), first=first)
        first = first and not one.size
        left = max(left - one.size, 0)
        selected.append(one)
    return selected


def _select(part: Part, limit: int, *, first: bool) -> Selected:
    if part.sparse is not None:
        span = part.sparse.span(part.offset, limit)
        return Selected([], span.size, span) if first or span.size <= limit else Selected([], 0)
    rows: list[StoredBatch | Marker] = []
    size = 0
    merged: Iterable[StoredBatch | Marker] = sorted((*part.log.batches, *part.log.markers), key=offset_of)
    for row in merged:
        row_bytes = row.size if isinstance(row, StoredBatch) else MARKER_BYTES
        if size + row_bytes > limit and (rows or not first):
            break
        rows.append(row)
        size += row_bytes
    return Selected(rows, size)


def assembled(
    rows: Sequence[StoredBatch | Marker], fetch_offset: int, data: Mapping[StoredBatch, Buffer]
) -> tuple[int, list[Buffer]]:
    """The records from `fetch_offset` on as far as they are there without a hole; an error if not even the first is."""
    pieces: list[Buffer] = []
    expected = fetch_offset
    for row in rows:
        offset = offset_of(row)
        # The first batch may begin before the offset that is wanted.
        if offset > expected or (pieces and offset < expected):
            break
        if isinstance(row, Marker):
            pieces.append(marker_batch(row))
            expected = offset + 1
            continue
        if (batch := data.get(row)) is None:
            break
        pieces.append(with_base_offset(batch, offset))
        expected = offset + read_batch_header(batch).records_count
    return (NONE if pieces or not rows else KAFKA_STORAGE_ERROR), pieces


def offset_of(row: StoredBatch | Marker) -> int:
    """Of its first record."""
    return row.base_offset if isinstance(row, StoredBatch) else row.offset


def marker_batch(row: Marker) -> bytes:
    """The control batch of a marker, as Fetch gives it."""
    return control_batch(
        row.producer_id,
        row.producer_epoch,
        committed=row.committed,
        base_offset=row.offset,
        timestamp_ms=row.timestamp_ms,
        coordinator_epoch=COORDINATOR_EPOCH,
    )
