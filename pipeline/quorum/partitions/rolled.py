"""The segments that agents rolled logs into, and where logs begin: in a snapshot, and through the records behind it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.engine.blobs import evidence
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.quorum.partitions.packed import OBJECTS, columns, per_log, places_of
from pidkeeper.pipeline.quorum.partitions.tables import ROLLED, STARTS
from pidkeeper.protocol.logs import MAX_INT64
from pidkeeper.protocol.segments import SegmentRecord
from pidkeeper.snapshots.logs_image import LogsImage

_SEGMENTS: Final = {
    "base_offset": "<i8", "end_offset": "<i8", "key": "<i8", "size": "<u4", "index_size": "<u4", "max_timestamp": "<i8"
}  # fmt: skip
"""The columns by name, and what each number is stored as."""


class Segment(NamedTuple):
    """A segment in force, by the columns of `tables.ROLLED` of these names."""

    log: int
    topic: str
    partition: int
    base_offset: int
    end_offset: int
    founding: str | None
    broker_id: int
    broker_epoch: int
    number: int
    size: int
    index_size: int
    max_timestamp: int


def saved_segments(logs: LogsImage) -> list[Segment]:
    """Those of a snapshot, by log and offset. Raises ValueError for columns that do not fit together."""
    rows = per_log([one.number for one in logs.segments], [one.columns for one in logs.segments], _SEGMENTS)
    objects = columns(logs.objects, OBJECTS)
    places = places_of(objects["key"], rows["key"]).to_pylist()
    found = []
    for place, row in zip(
        places, zip(*(rows[name].tolist() for name in ("log", *_SEGMENTS)), strict=True), strict=True
    ):
        log, base_offset, end_offset, key, size, index_size, latest = row
        name = logs.segment_names.get(key)
        if place is None or name is None:
            raise ValueError(f"log {log} has a segment in object {key}, and the snapshot has no such segment")
        of = {column: int(objects[column][place]) for column in ("founding", "broker_id", "broker_epoch", "number")}
        founding = of.pop("founding")
        uuid = str(logs.foundings[founding]) if founding < len(logs.foundings) else None
        span = {"base_offset": base_offset, "end_offset": end_offset}
        sizes = {"size": size, "index_size": index_size, "max_timestamp": latest}
        found.append(Segment(log, name.topic, name.partition, founding=uuid, **span, **of, **sizes))
    return found


def rolled_segment(record: SegmentRecord, founding: str | None) -> Segment:
    """That of a record. As in the state, the record's own time counts where no record of the segment has one."""
    name, latest = record.name, record.max_timestamp if record.max_timestamp >= 0 else record.timestamp_ms
    return Segment(
        record.log,
        name.topic,
        name.partition,
        name.base_offset,
        record.end_offset,
        founding,
        record.object.broker_id,
        record.object.broker_epoch,
        record.object.number,
        record.size,
        record.index_size,
        min(latest, MAX_INT64),
    )


def tail_starts(logs: LogsImage, segments: Iterable[Segment]) -> dict[int, int]:
    """By log the first offset that is in no segment.

    A first batch of the tail may begin below it, where the log has lost a part of the batch.
    """
    starts = {log.number: log.start for log in logs.logs}
    for one in segments:
        if one.log in starts:
            starts[one.log] = max(starts[one.log], one.end_offset)
    return starts


class _Kept(msgspec.Struct):
    """A segment, which entry made it one, and which entry took it out of its log."""

    place: tuple[Any, ...]
    segment: Segment
    until: int | None = None


class RolledLogs:
    """Segments and beginnings of all logs of a view, and when they changed."""

    def __init__(self, member_id: int, view: int) -> None:
        self._member_id = member_id
        self._view = view
        self._all: list[_Kept] = []
        self._now: dict[int, list[_Kept]] = {}
        self._starts: list[tuple[int, int, int]] = []

    def roll(self, place: tuple[Any, ...], segment: Segment) -> None:
        """It takes the place of all that begins at or behind its base offset."""
        kept = self._now.get(segment.log, [])
        while kept and kept[-1].segment.base_offset >= segment.base_offset:
            kept.pop().until = place[2]
        self.add(place, segment)

    def cut(self, index: int, log: int, start: int) -> None:
        """A log begins at `start` from an entry on."""
        kept = self._now.get(log, [])
        gone = list(itertools.takewhile(lambda one: one.segment.end_offset <= start, kept))
        for one in gone:
            one.until = index
        del kept[: len(gone)]
        self._starts.append((log, index, start))

    def add(self, place: tuple[Any, ...], segment: Segment) -> None:
        """One more, behind all others of its log."""
        kept = _Kept(place, segment)
        self._all.append(kept)
        self._now.setdefault(segment.log, []).append(kept)

    def rows(self) -> Iterator[Named]:
        """Evidence by `tables.ROLLED` and `tables.STARTS`."""
        yield from evidence("rolled", ROLLED, [(*one.place, self._view, *one.segment, one.until) for one in self._all])
        yield from evidence("starts", STARTS, [(self._member_id, self._view, *row) for row in self._starts])


def shape_of(logs: LogsImage, segments: Iterable[Segment], place: tuple[Any, ...], view: int) -> RolledLogs:
    """As a snapshot has them. place: `member_id`, `file_id`, `index` and `at`."""
    shape = RolledLogs(place[0], view)
    for one in segments:
        shape.add(place, one)
    for log in logs.logs:
        if log.start:
            shape.cut(place[2], log.number, log.start)
    return shape
