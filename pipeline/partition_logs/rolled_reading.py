"""Reads rolled segments and their indices, once each: rows of producers for those who judge, and what is wrong.

A kernel. Where a segment lacks bytes, the rows of what can be read go on, as with segments of Kafka's brokers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import from_blob, record_batch
from pidkeeper.pipeline.engine.engine import DIRECT, Keyed
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.pipeline.formats.record_batch import Chunk, Problem
from pidkeeper.pipeline.formats.sparse_index import MAX_INDEX_BYTES
from pidkeeper.pipeline.partition_logs.objects import OBJECT_COST, OBJECTS, READ, READERS, read_object
from pidkeeper.pipeline.partition_logs.rolled_batches import SEGMENTS, Columns, Fault, Named, columns_of, find_faults
from pidkeeper.pipeline.partition_logs.rolled_index import CROSSINGS, look_at_index
from pidkeeper.pipeline.segments.plan import SegmentPart
from pidkeeper.pipeline.segments.read import HELD_ROWS, HeldRows, PartReader, ReadSettings, buckets_of
from pidkeeper.pipeline.segments.tables import LEFT_OUT, PARTS, SEGMENT_PARTS
from pidkeeper.protocol.segments import index_path

MAX_FAULTS: Final = 100
"""Of one segment, the first. What is left is counted."""

_OF_SEGMENT: Final = pa.field("segment", pa.int32())
SEEN: Final = pa.schema([_OF_SEGMENT, ("indexed", pa.bool_()), *OBJECTS])
"""A segment or, if `indexed`, its index, by `objects.OBJECTS`."""
FAULTS: Final = pa.schema(
    [
        _OF_SEGMENT,
        ("check", pa.string()),
        ("position", pa.int64()),
        ("base_offset", pa.int64()),
        ("producer_id", pa.int64()),
        ("detail", pa.string()),
    ]
)
TABLES: Final = {"segments_seen": SEEN, "segment_faults": FAULTS, "crossings": CROSSINGS}


class RolledSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment by its name in the store, what the quorum says of it, and its place among all parts of logs."""

    name: str
    named: Named
    part: SegmentPart

    @property
    def cost(self) -> int:
        """What it takes to read, with its index."""
        return 2 * OBJECT_COST + self.named.size + self.named.index_size + len(self.named.known)


class LogsTask(msgspec.Struct, frozen=True):
    """What one task reads; and blobs of BATCHES and PARTS, which are known, for the buckets."""

    store: Location | None = None
    segments: list[RolledSegment] = []
    batches: list[bytes] = []
    parts: list[bytes] = []


def read_logs(task: LogsTask, settings: ReadSettings) -> Iterator[Keyed]:
    """Rows for the buckets; evidence by TABLES, `segment_parts`, `segment_days` and `left_out`."""
    for blob in task.parts:
        for bucket in range(settings.buckets):
            yield bucket, "parts", from_blob(blob)
    for blob in task.batches:
        yield from _cut(from_blob(blob), settings.buckets)
    if task.store is not None and task.segments:
        yield from _segments(task.store, task.segments, settings)


def _cut(rows: Any, buckets: int) -> Iterator[Keyed]:
    bucket = buckets_of(rows["producer_id"].to_numpy(), buckets)
    for number in np.unique(bucket).tolist():
        yield number, "batches", rows.filter(pa.array(bucket == number))


def _segments(store: Location, segments: list[RolledSegment], settings: ReadSettings) -> Iterator[Keyed]:
    held = HeldRows()
    parts: list[dict[str, Any]] = []
    seen: list[tuple[Any, ...]] = []
    crossings: list[tuple[Any, ...]] = []
    with ThreadPoolExecutor(READERS, "segments") as threads:
        # All of a task may wait here: it was made of so many bytes.
        for one, read in zip(segments, threads.map(lambda one: _read(store, one), segments), strict=True):
            (state, data), (index_state, index) = read
            number = one.named.segment
            seen += [(number, False, *state), (number, True, *index_state)]
            if state[1] == READ:
                chunk, reader = _whole(one, data), PartReader(one.part)
                columns = columns_of(chunk)
                held.add(reader.take(chunk, None if columns is None else columns.batches))
                # These are no files of brokers, of which audits say what is new and what is wrong.
                parts.append(reader.figures() | {"anew": False, "problems": 0})
                yield from (found for found in reader.evidence() if found[1] == "segment_days")
                known_index = (index_state[2], index) if index_state[1] == READ else None
                faults, across = _wrong(one.named, state[2], chunk.problems, columns, known_index)
                crossings += across
                yield from _told(number, faults)
            if held.count >= HELD_ROWS:
                yield from held.cut(settings.buckets)
    yield from held.cut(settings.buckets)
    yield from _evidence("segments_seen", seen)
    yield from _evidence("crossings", crossings)
    if parts:
        yield DIRECT, "segment_parts", pa.RecordBatch.from_pylist(parts, schema=SEGMENT_PARTS)
        short = pa.RecordBatch.from_pylist(parts, schema=PARTS)
        yield from ((bucket, "parts", short) for bucket in range(settings.buckets))


def _read(store: Location, one: RolledSegment) -> list[tuple[tuple[Any, ...], bytes]]:
    """No more of either than was committed: the rest is told by its size."""
    sizes = {one.name: one.named.size, index_path(one.name): min(one.named.index_size, MAX_INDEX_BYTES)}
    return [read_object(store, name, 0, size) for name, size in sizes.items()]


def _whole(one: RolledSegment, data: bytes) -> Chunk:
    """All batches and problems of a segment."""
    whole = Chunk()
    for chunk in SegmentReader(io.BytesIO(data), len(data), base_offset=one.named.base_offset).chunks():
        moved = [msgspec.structs.replace(marker, row=marker.row + len(whole)) for marker in chunk.markers]
        whole.headers += chunk.headers
        whole.positions += chunk.positions
        whole.markers += moved
        whole.problems += chunk.problems
    return whole


def _wrong(
    named: Named, size: int, problems: list[Problem], columns: Columns | None, index: tuple[int, bytes] | None
) -> tuple[list[Fault], list[tuple[Any, ...]]]:
    """Of a segment of `size` bytes and its index, by size and content: faults, and rows of CROSSINGS."""
    found = list(find_faults(named, size, problems, columns))
    if index is None:
        return found, []
    of_index, crossings = look_at_index(named, *index, None if found else columns)
    return found + of_index, crossings


def _told(number: int, found: list[Fault]) -> Iterator[Keyed]:
    if found:
        yield from _evidence("segment_faults", [(number, *fault) for fault in found[:MAX_FAULTS]])
    if len(found) > MAX_FAULTS:
        yield DIRECT, "left_out", record_batch(LEFT_OUT, [(SEGMENTS, "violation", len(found) - MAX_FAULTS)])


def _evidence(name: str, rows: list[tuple[Any, ...]]) -> Iterator[Keyed]:
    if rows:
        yield DIRECT, name, record_batch(TABLES[name], rows)
