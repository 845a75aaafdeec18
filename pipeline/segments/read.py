"""One pass over the bytes of segments: numeric rows of producers' batches, and what is left of all others in sums.

Columns are made by numpy from the headers as they lie on disk; a row is no Python object. The rows of a task are cut
into buckets by producer, so all of a producer are in one bucket, in whatever partitions and copies they stand, and a
partition that holds nearly everything is no single bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.pipeline.engine.duck import LATEST_MS
from pidkeeper.pipeline.engine.engine import DIRECT, Keyed
from pidkeeper.pipeline.formats.record_batch import (
    CONTROL,
    DELETE_HORIZON,
    FIELDS,
    HEADER_BYTES,
    MAX_SEQUENCE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    Chunk,
    Problem,
)
from pidkeeper.pipeline.segments.plan import SegmentPart
from pidkeeper.pipeline.segments.segment_files import read_behind, read_part
from pidkeeper.pipeline.segments.tables import (
    BATCHES,
    LEFT_OUT,
    OFFSET_HOLES,
    PARTS,
    PROBLEMS,
    SEGMENT_DAYS,
    SEGMENT_PARTS,
)

DAY_MS: Final = 86_400_000
HOLES: Final = frozenset({"bad_crc", "lost_boundary", "torn", "foreign", "unreadable"})
"""Kinds of problems behind which batches of producers may be lost."""
OLD: Final = "old_magic"
"""Messages whose offsets are not looked at."""
MAX_PROBLEMS: Final = 1024
"""Rows of problems for each part: the first of them, and the first of each kind. All are counted."""
MAX_OFFSET_HOLES: Final = 1024
"""Rows of offset_holes for each part, the first of them. What is left is counted."""
HELD_ROWS: Final = 1 << 18
"""Rows of a task that are kept before they are cut into buckets: 20 MiB."""

_NUMPY: Final = {"b": "i1", "h": ">i2", "i": ">i4", "I": ">u4", "q": ">i8"}
_HEADER: Final = np.dtype([(name, _NUMPY[code]) for name, (_, code) in FIELDS.items()])
_GOLDEN: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2^64 by the golden ratio: neighbouring numbers are spread evenly (Knuth, 6.4)."""

assert _HEADER.itemsize == HEADER_BYTES

Array = npt.NDArray[Any]
Columns = dict[str, Array]


class ReadSettings(msgspec.Struct, frozen=True):
    """`buckets`: into how many the rows are cut."""

    buckets: int


def read_segments(task: Sequence[SegmentPart], settings: ReadSettings) -> Iterator[Keyed]:
    """Kernel: "batches" and "parts" for every bucket, and evidence of what needs no other part."""
    parts = []
    held = HeldRows()
    for part in task:
        reader = PartReader(part)
        for chunk in read_behind(part.part) if part.figures else read_part(part.part):
            held.add(reader.take(chunk))
            if held.count >= HELD_ROWS:
                yield from held.cut(settings.buckets)
        parts.append(reader.figures())
        yield from reader.evidence()
    yield from held.cut(settings.buckets)
    yield DIRECT, "segment_parts", pa.RecordBatch.from_pylist(parts, schema=SEGMENT_PARTS)
    # pyarrow leaves out of each row what the schema does not name.
    short = pa.RecordBatch.from_pylist(parts, schema=PARTS)
    for bucket in range(settings.buckets):
        yield bucket, "parts", short


def buckets_of(producers: Array, buckets: int) -> Array:
    """The bucket of each producer ID, int64."""
    mixed = (producers.astype(np.uint64) * _GOLDEN) >> np.uint64(32)
    found: Array = ((mixed * np.uint64(buckets)) >> np.uint64(32)).astype(np.int64)
    return found


class HeldRows:
    """Rows of BATCHES that wait to be cut into buckets."""

    def __init__(self) -> None:
        self.count = 0
        self._pieces: list[Columns] = []

    def add(self, rows: Columns) -> None:
        self._pieces.append(rows)
        self.count += len(rows["producer_id"])

    def cut(self, buckets: int) -> Iterator[Keyed]:
        """All of them, and none is held any more."""
        if self.count:
            yield from self._cut(buckets)
        self._pieces, self.count = [], 0

    def _cut(self, buckets: int) -> Iterator[Keyed]:
        columns = {name: np.concatenate([piece[name] for piece in self._pieces]) for name in BATCHES.names}
        self._pieces = []
        bucket = buckets_of(columns["producer_id"], buckets)
        ends = np.cumsum(np.bincount(bucket, minlength=buckets)).tolist()
        # Stable, so that rows of a part stay in its order; radix for 16 bits.
        order = np.argsort(bucket.astype(np.uint16) if buckets <= 1 << 16 else bucket, kind="stable")
        rows = pa.RecordBatch.from_arrays(
            [_arrow(columns.pop(field.name)[order], field) for field in BATCHES], schema=BATCHES
        )
        start = 0
        for number, end in enumerate(ends):
            if end > start:
                yield number, "batches", rows.slice(start, end - start)
            start = end


def _arrow(values: Array, field: pa.Field) -> pa.Array:
    """Of times, which are no negative numbers, -1 is null."""
    missing = values < 0 if field.name in {"timestamp_ms", "seen_ms"} else None
    return pa.array(values, field.type, mask=missing)


class Batches:
    """A chunk's headers as columns in the machine's byte order; offsets and times are int64, -1 for no time."""

    def __init__(self, chunk: Chunk) -> None:
        headers = np.frombuffer(chunk.headers, _HEADER)

        def long(name: str) -> Array:
            return headers[name].astype(np.int64)

        self.position = np.frombuffer(chunk.positions, np.int64)
        self.base_offset = long("base_offset")
        self.last_offset = self.base_offset + long("last_offset_delta")
        self.max_timestamp = long("max_timestamp")
        self.base_timestamp = long("base_timestamp")
        self.record_count = long("record_count")
        self.crc = headers["crc"]
        self.producer_id = long("producer_id")
        self.epoch = headers["producer_epoch"].astype(np.int16)
        self.base_sequence = headers["base_sequence"].astype(np.int32)
        wrapped = (long("base_sequence") + long("last_offset_delta")) & MAX_SEQUENCE
        self.last_sequence = np.where(self.base_sequence < 0, -1, wrapped).astype(np.int32)
        attributes = headers["attributes"].astype(np.int16)
        self.is_control = attributes & CONTROL != 0
        self.is_transactional = attributes & TRANSACTIONAL != 0
        self.has_delete_horizon = attributes & DELETE_HORIZON != 0
        self.opens = self.is_transactional & ~self.is_control & (self.record_count > 0)
        self.broker_clock = self.is_control | (attributes & TIMESTAMP_TYPE != 0)
        usable = (self.max_timestamp >= 0) & (self.max_timestamp <= LATEST_MS)
        self.timestamp_ms = np.where(usable, self.max_timestamp, -1)


class PartReader:
    """Adds up what follows from the batches of one part, chunk by chunk in its order."""

    def __init__(self, part: SegmentPart) -> None:
        self._part = part
        known = {name: value for name, value in part.figures.items() if value is not None}
        self._sums = {name: known.get(name, 0) for name in _SUMS}
        self._reach, self._newest, self._clock = (known.get(name, -1) for name in ("reach", "newest_ms", "clock_ms"))
        self._at_first: dict[str, int] = {name: known.get(name, -1) for name in _AT_FIRST if "first_base" in known}
        self._at_last = {name: known.get(name, 0) for name in ("holes_last", "old_last")}
        self._offsets: dict[str, int] = {name: known[name] for name in _OFFSETS if name in known}
        self._problems: list[Problem] = []
        self._kinds: set[str] = set()
        self._offset_holes: list[Columns] = []
        self._days: list[Columns] = []

    def take(self, chunk: Chunk, batches: Batches | None = None) -> Columns:
        """The rows of producers in a chunk, by the names of BATCHES. batches: of the chunk, where they are known."""
        self._list(chunk.problems)
        holes, old = _positions(chunk, HOLES), _positions(chunk, {OLD})
        rows = self._rows(batches or Batches(chunk), holes, old) if len(chunk) else {}
        self._sums["holes"] += len(holes)
        self._sums["old"] += len(old)
        return rows or _NO_ROWS

    def _list(self, problems: Sequence[Problem]) -> None:
        self._sums["problems"] += len(problems)
        for problem in problems:
            if len(self._problems) < MAX_PROBLEMS or problem.kind not in self._kinds:
                self._problems.append(problem)
                self._kinds.add(problem.kind)

    def _rows(self, batches: Batches, hole_positions: Array, old_positions: Array) -> Columns:
        holes = self._sums["holes"] + np.searchsorted(hole_positions, batches.position)
        old = self._sums["old"] + np.searchsorted(old_positions, batches.position)
        reach = np.where(batches.base_offset >= 0, batches.last_offset, -1)
        reached = np.maximum.accumulate(np.concatenate([[self._reach], reach]))
        steps = (reached[:-1] >= 0) & (batches.base_offset > reached[:-1])
        step = np.where(steps, batches.base_offset - reached[:-1] - 1, 0)
        missing = self._sums["missing"] + np.cumsum(step)
        seen = np.maximum.accumulate(np.maximum(batches.timestamp_ms, self._newest))
        if self._part.whole:
            self._note_holes(batches, step, reached[:-1], holes, old)
        self._note_ends(batches, holes, old)
        self._note_days(batches)
        self._sums["batches"] += len(reach)
        self._sums["records"] += int(batches.record_count.sum())
        self._sums["missing"] = int(missing[-1])
        self._reach, self._newest = int(reached[-1]), int(seen[-1])
        clock = batches.timestamp_ms[batches.broker_clock]
        self._clock = max(self._clock, int(clock.max(initial=-1)))
        running = {"missing": missing, "holes": holes.astype(np.int32), "seen_ms": seen}
        return self._of_producers(batches, running)

    def _of_producers(self, batches: Batches, running: Columns) -> Columns:
        known = np.flatnonzero(batches.producer_id >= 0)
        rows = {
            name: (running[name] if name in running else getattr(batches, name))[known]
            for name in BATCHES.names
            if name != "part"
        }
        return rows | {"part": np.full(len(known), self._part.number, np.int32)}

    def _note_ends(self, batches: Batches, holes: Array, old: Array) -> None:
        """First and last of the batches, and of those whose offsets are no negative numbers."""
        self._offsets.setdefault("first_offset", int(batches.base_offset[0]))
        self._offsets["last_offset"] = int(batches.last_offset[-1])
        self._offsets["last_position"] = int(batches.position[-1])
        self._offsets["last_crc"] = int(batches.crc[-1])
        stamp = int(batches.max_timestamp.max())
        self._offsets["max_timestamp_ms"] = max(stamp, self._offsets.get("max_timestamp_ms", stamp))
        good = np.flatnonzero(batches.base_offset >= 0)
        if len(good):
            first, last = good[0], good[-1]
            self._at_last = {"holes_last": int(holes[last]), "old_last": int(old[last])}
            self._at_first = self._at_first or {
                "first_base": int(batches.base_offset[first]),
                "first_position": int(batches.position[first]),
                "first_ms": int(batches.timestamp_ms[first]),
                "holes_first": int(holes[first]),
                "old_first": int(old[first]),
            }

    def _note_holes(self, batches: Batches, step: Array, reached: Array, holes: Array, old: Array) -> None:
        """Offsets without a batch before a batch of this part; what old messages may fill is none."""
        before = {
            "holes": np.concatenate([[self._at_last["holes_last"]], holes[:-1]]),
            "old": np.concatenate([[self._at_last["old_last"]], old[:-1]]),
        }
        at = np.flatnonzero((step > 0) & (old == before["old"]))
        if len(at):
            self._offset_holes.append(
                {
                    "position": batches.position[at],
                    "timestamp_ms": batches.timestamp_ms[at],
                    "first_offset": reached[at] + 1,
                    "last_offset": batches.base_offset[at] - 1,
                    "damaged": holes[at] > before["holes"][at],
                }
            )

    def _note_days(self, batches: Batches) -> None:
        day = np.where(batches.timestamp_ms > 0, batches.timestamp_ms // DAY_MS, -1)
        base = np.where(batches.has_delete_horizon | (batches.base_timestamp < 0), _NEVER, batches.base_timestamp)
        ends = [day, batches.record_count, base, batches.max_timestamp, batches.last_offset]
        self._days.append(_by_day(day, [np.ones_like(day), *ends[1:]]))

    # What is left at the end.

    def figures(self) -> dict[str, Any]:
        """A row of SEGMENT_PARTS."""
        part = self._part
        figures = {
            "anew": True,
            "reach": self._reach,
            "newest_ms": self._newest,
            "clock_ms": self._clock,
            "holes_first": 0,
            "old_first": 0,
        }
        figures |= part.places() | self._sums | self._offsets | self._at_last
        figures |= self._at_first
        times = ("reach", "newest_ms", "clock_ms", "first_ms")
        return figures | {name: None for name in times if figures.get(name, -1) < 0}

    def evidence(self) -> Iterator[Keyed]:
        """Days, problems and holes between offsets."""
        part = self._part
        if self._days:
            yield DIRECT, "segment_days", self._day_rows()
        if self._problems:
            rows = [
                {"file_id": part.file_id, "kind": each.kind, "position": each.position, "detail": each.detail}
                for each in self._problems
            ]
            yield DIRECT, "problems", pa.RecordBatch.from_pylist(rows, schema=PROBLEMS)
        if self._offset_holes:
            yield from self._offset_hole_rows()

    def _day_rows(self) -> pa.RecordBatch:
        pieces = {name: np.concatenate([piece[name] for piece in self._days]) for name in _DAY_COLUMNS}
        days = _by_day(pieces["day"], [pieces[name] for name in _DAY_COLUMNS[1:]])
        nulls = {"day": -1, "first_timestamp_ms": _NEVER}
        count = len(days["day"])
        columns = days | {
            "file_id": np.full(count, self._part.file_id),
            "partition_id": np.full(count, self._part.partition_id),
        }
        arrays = [
            pa.array(columns[field.name], mask=columns[field.name] == nulls[field.name])
            if field.name in nulls
            else pa.array(columns[field.name])
            for field in SEGMENT_DAYS
        ]
        return pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, SEGMENT_DAYS, strict=True)], schema=SEGMENT_DAYS
        )

    def _offset_hole_rows(self) -> Iterator[Keyed]:
        names = self._offset_holes[0].keys()
        columns = {name: np.concatenate([piece[name] for piece in self._offset_holes]) for name in names}
        kept = {name: values[:MAX_OFFSET_HOLES] for name, values in columns.items()}
        count = len(kept["position"])
        kept |= {name: np.full(count, getattr(self._part, name)) for name in ("partition_id", "file_id")}
        arrays = [_arrow(kept[field.name], field) for field in OFFSET_HOLES]
        yield DIRECT, "offset_holes", pa.RecordBatch.from_arrays(arrays, schema=OFFSET_HOLES)
        damaged = columns["damaged"][MAX_OFFSET_HOLES:]
        for severity, left in (("warning", int(damaged.sum())), ("violation", int((~damaged).sum()))):
            if left:
                row = {"check": "missing_batches", "severity": severity, "rows": left}
                yield DIRECT, "left_out", pa.RecordBatch.from_pylist([row], schema=LEFT_OUT)


_SUMS: Final = ("batches", "records", "missing", "holes", "old", "problems")
_AT_FIRST: Final = ("first_base", "first_position", "first_ms", "holes_first", "old_first")
_OFFSETS: Final = ("first_offset", "last_offset", "max_timestamp_ms", "last_position", "last_crc")
_NEVER: Final = np.iinfo(np.int64).max
_DAY_COLUMNS: Final = ("day", "batches", "records", "first_timestamp_ms", "last_timestamp_ms", "last_offset")
_DAY_SUMS: Final[tuple[Callable[..., Array], ...]] = (
    np.add.reduceat,
    np.add.reduceat,
    np.minimum.reduceat,
    np.maximum.reduceat,
    np.maximum.reduceat,
)
"""How each of _DAY_COLUMNS is put together, but for the day."""
_NO_ROWS: Final[Columns] = {field.name: np.zeros(0, field.type.to_pandas_dtype()) for field in BATCHES}


def _by_day(day: Array, columns: list[Array]) -> Columns:
    """One row for each day there is, by _DAY_COLUMNS."""
    order = np.argsort(day, kind="stable")
    ordered = day[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    summed = [add(values[order], starts) for add, values in zip(_DAY_SUMS, columns, strict=True)]
    return dict(zip(_DAY_COLUMNS, [ordered[starts], *summed], strict=True))


def _positions(chunk: Chunk, kinds: frozenset[str] | set[str]) -> Array:
    return np.array([problem.position for problem in chunk.problems if problem.kind in kinds], np.int64)
