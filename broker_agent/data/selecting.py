"""Which batches of those that there are go into an answer, and their bytes put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.codes import KAFKA_STORAGE_ERROR, NONE
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import control_batch, read_batch_header, with_base_offset
from pidkeeper.protocol.log_messages import LogBatches, Marker, StoredBatch

MARKER_BYTES: Final = 78

COORDINATOR_EPOCH: Final = 0
"""Of markers: consumers do not look at it, and there is none here."""


class Selected(NamedTuple):
    """What is given of one log, in the order of its offsets. `size`: in bytes."""

    rows: list[StoredBatch | Marker]
    size: int

    @property
    def batches(self) -> list[StoredBatch]:
        """Those whose bytes have to be read."""
        return [row for row in self.rows if isinstance(row, StoredBatch)]


def select(parts: Sequence[tuple[int, LogBatches]], limit: int) -> list[Selected]:
    """For each log, with the bytes that are wanted of it, what goes into an answer of `limit` bytes.

    The very first batch is given even if it is larger than both (KIP-74), so that every consumer gets on.
    """
    selected = []
    left, first = limit, True
    for max_bytes, log in parts:
        rows: list[StoredBatch | Marker] = []
        size = 0
        merged: Iterable[StoredBatch | Marker] = sorted((*log.batches, *log.markers), key=offset_of)
        for row in merged:
            row_bytes = row.size if isinstance(row, StoredBatch) else MARKER_BYTES
            if size + row_bytes > min(max_bytes, left) and not first:
                break
            rows.append(row)
            size += row_bytes
            first = False
        left -= size
        selected.append(Selected(rows, size))
    return selected


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
            pieces.append(_marker(row))
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


def _marker(row: Marker) -> bytes:
    return control_batch(
        row.producer_id,
        row.producer_epoch,
        committed=row.committed,
        base_offset=row.offset,
        timestamp_ms=row.timestamp_ms,
        coordinator_epoch=COORDINATOR_EPOCH,
    )
