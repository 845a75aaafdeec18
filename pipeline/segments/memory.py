"""What is known of Kafka's segments from an earlier audit in the same ledger, and which of them are read.

A segment that nobody wrote since is not read. One that only grew, and in which nothing was odd, is read on from its
last batch: that batch is there, of the same length, offset and CRC. Any other is read from its beginning and gets
another number, so that all that is known of the number it had is void; and so is all of segments that went away.

Numbers of files, parts and partitions ascend with their names in every audit, so they differ from one to the next. In
the ledger stand the numbers of segments, which stay, and keys of parts made of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import read_parquet
from pidkeeper.pipeline.formats.log_segment import ByteRange
from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES
from pidkeeper.pipeline.ledger import EVIDENCE_PREFIX, RUNS, KeptFiles, KnownSegment, KnownSegments
from pidkeeper.pipeline.segments.plan import Reading, SegmentPart, SegmentPlan, keeps_all, key_of, read_whole
from pidkeeper.pipeline.segments.read import MAX_OFFSET_HOLES
from pidkeeper.pipeline.segments.segment_files import SegmentFile, has_batch, ranges_of
from pidkeeper.pipeline.segments.tables import OFFSET_HOLES, PARTS, PROBLEMS, SEGMENT_DAYS, SEGMENT_PARTS

VERSION: Final = 4
"""To be raised whenever something else is kept, or is judged otherwise: then all is read and judged again."""
OF_FILES: Final = {
    "segment_parts": SEGMENT_PARTS,
    "segment_days": SEGMENT_DAYS,
    "problems": PROBLEMS,
    "offset_holes": OFFSET_HOLES,
}
"""Evidence that rests on one segment alone. In the ledger `file_id` is the number of the segment."""
PREFIX: Final = "kafka-"
"""Of the names of these tables in the ledger."""

_DAYS: Final = """
select
    number as file_id, 0 as partition_id, day, sum(batches) as batches, sum(records) as records,
    min(first_timestamp_ms) as first_timestamp_ms, max(last_timestamp_ms) as last_timestamp_ms,
    max(last_offset) as last_offset
from segment_days
join segment_numbers using (file_id)
group by number, day
"""
_OTHERS: Final = "select found.* replace (number as file_id) from {} as found join segment_numbers using (file_id)"
_UNSETTLED: Final = """
select number from problems join segment_numbers using (file_id) where kind = 'unreadable'
union
select number from offset_holes join segment_numbers using (file_id) group by number having count(*) >= $most
"""
"""Segments to be read in any case: who could not be read may be by now, and not all holes were told."""


class Recalled(NamedTuple):
    """What becomes of each segment. gone, stirred: see `Keeping`. evidence: what is known, by OF_FILES."""

    readings: dict[Location, Reading]
    next_number: int
    gone: bytes
    stirred: bytes
    evidence: dict[str, Any]


def recall(
    place: Location,
    known: KnownSegments | None,
    files: Sequence[SegmentFile],
    policies: Mapping[str, str | None],
    range_bytes: int = RANGE_BYTES,
) -> Recalled:
    """From the ledger at `place`. files: as they are numbered. Raises OSError."""
    evidence = {name: _read(place, known, name) for name in OF_FILES}
    figures = {row["key"]: row for row in evidence["segment_parts"].to_pylist()}
    of_place = {Location(one.root, one.path): one for one in known.segments} if known is not None else {}
    number = 0 if known is None else known.next_number
    readings = {}
    for file in files:
        reading = _read_again(of_place.get(file.location), file, figures, range_bytes, keeps_all(file, policies))
        readings[file.location] = reading or read_whole(file, number, range_bytes)
        number += reading is None
    return Recalled(readings, number, *_changed(known, files, readings), evidence)


def _read(place: Location, known: KnownSegments | None, name: str) -> Any:
    if known is not None:
        folder = place / RUNS / known.run
        file = f"{EVIDENCE_PREFIX}{PREFIX}{name}.parquet"
        if file in folder.names():
            return read_parquet(folder / file).cast(OF_FILES[name])
    return OF_FILES[name].empty_table()


def _read_again(
    known: KnownSegment | None, file: SegmentFile, figures: Mapping[int, Any], range_bytes: int, whole: bool
) -> Reading | None:
    """None if it is read from its beginning."""
    if known is None or (known.member, known.whole) != (file.member, whole):
        return None
    rows = [figures[key_of(known.number, index)] for index in range(len(known.starts))]
    if (known.stamp, known.size) == (file.stamp, file.size):
        return Reading(known.number, known.starts, [], rows)
    last = rows[-1]
    odd = not known.stamp or any(row["problems"] or (whole and row["missing"]) for row in rows)
    if odd or file.size <= known.size:
        return None
    if not has_batch(file, last["last_position"], known.size, last["last_offset"], last["last_crc"]):
        return None
    ranges = ranges_of(file, range_bytes)
    starts, count = [each.start for each in ranges], len(known.starts)
    if starts[:count] != known.starts:
        return None
    _, end, following = msgspec.structs.astuple(ranges[count - 1])
    # As if all were read at once, which would say so if what is known reached into the part behind it.
    if end < known.size or (following is not None and following <= last["last_offset"]):
        return None
    more = [ByteRange(last["last_position"], end, following)] if end > known.size else []
    return Reading(known.number, starts, [*more, *ranges[count:]], rows)


def _changed(
    known: KnownSegments | None, files: Sequence[SegmentFile], readings: Mapping[Location, Reading]
) -> tuple[bytes, bytes]:
    """Parts that are void, and those of logs in which rows have not the same between them any more."""
    now = {key: [readings[file.location] for file in log] for key, log in groupby(files, _log)}
    gone: list[int] = []
    stirred: list[int] = []
    for key, segments in groupby(known.segments if known is not None else [], _log_of_known):
        before = list(segments)
        after = now.get(key, [])
        kept = {reading.number for reading in after} & {segment.number for segment in before}
        gone += (part for segment in before if segment.number not in kept for part in _keys(segment))
        if not _is_continued([one.number for one in before], after, kept):
            stirred += (part for segment in before if segment.number in kept for part in _keys(segment))
    return _sorted(gone), _sorted(stirred)


def _sorted(keys: list[int]) -> bytes:
    return np.sort(np.array(keys, np.int64)).tobytes()


def _is_continued(before: Sequence[int], after: Sequence[Reading], kept: set[int]) -> bool:
    """Whether what is kept of a log stands together as it did, and nothing of it grew but its end."""
    numbers = [reading.number for reading in after]
    grown = [reading.number for reading in after if reading.number in kept and reading.due]
    here, there = ([at for at, number in enumerate(run) if number in kept] for run in (before, numbers))
    together = all(run == list(range(run[0], run[0] + len(run))) for run in (here, there) if run)
    return together and grown in ([], [number for number in numbers if number in kept][-1:])


def _keys(segment: KnownSegment) -> Iterator[int]:
    return (key_of(segment.number, index) for index in range(len(segment.starts)))


def _log(file: SegmentFile) -> tuple[str, Location]:
    return (file.member, file.location.parent)


def _log_of_known(segment: KnownSegment) -> tuple[str, Location]:
    return (segment.member, Location(segment.root, segment.path).parent)


# What is known, in the numbers of this audit.


def settled_parts(plan: SegmentPlan) -> Iterator[dict[str, Any]]:
    """Rows of SEGMENT_PARTS of the parts that nobody reads again."""
    for part in plan.settled:
        yield part.figures | part.places() | {"anew": False}


def settled_blob(plan: SegmentPlan) -> bytes:
    """The same for buckets, as rows of PARTS; nothing without any."""
    rows = list(settled_parts(plan))
    return to_blob(pa.RecordBatch.from_pylist(rows, schema=PARTS)) if rows else b""


def settled_evidence(plan: SegmentPlan, recalled: Recalled) -> Iterator[Named]:
    """The evidence of all segments that are not read from their beginning."""
    yield "segment_parts", pa.RecordBatch.from_pylist(list(settled_parts(plan)), schema=SEGMENT_PARTS)
    numbers = {part.key: part for parts in (plan.settled, *plan.tasks) for part in parts}
    of_file = {
        reading.number: numbers[key_of(reading.number, 0)] for reading in recalled.readings.values() if reading.figures
    }
    for name, table in recalled.evidence.items():
        if name != "segment_parts":
            yield name, _renumbered(table, of_file)


def _renumbered(table: Any, of_file: Mapping[int, SegmentPart]) -> Any:
    kept = table.filter(pa.array([number.as_py() in of_file for number in table["file_id"]], pa.bool_()))
    parts = [of_file[number] for number in kept["file_id"].to_pylist()]
    for name in ("file_id", "partition_id"):
        if name in kept.column_names:
            values = pa.array([getattr(part, name) for part in parts], pa.int32())
            kept = kept.set_column(kept.schema.get_field_index(name), name, values)
    return kept.combine_chunks().to_batches()[0] if kept.num_rows else pa.RecordBatch.from_pylist([], kept.schema)


# What stays of this audit.


def remember(
    con: Any, run: str, files: Sequence[SegmentFile], plan: SegmentPlan, recalled: Recalled, buckets: int
) -> tuple[KnownSegments, dict[str, Any]]:
    """For the commit, and tables for the run. The connection has all evidence."""
    readings = [recalled.readings[file.location] for file in files]
    numbers = pa.table(
        {
            "file_id": plan.files["file_id"],
            "number": pa.array([reading.number for reading in readings], pa.int32()),
        }
    )
    con.register("segment_numbers", numbers)
    unsettled = {number for (number,) in con.execute(_UNSETTLED, {"most": MAX_OFFSET_HOLES}).fetchall()}
    tables = {
        PREFIX + name: con.sql(_DAYS if name == "segment_days" else _OTHERS.format(name)).to_arrow_table()
        for name in OF_FILES
    }
    tables = {name: table.select(OF_FILES[name.removeprefix(PREFIX)].names) for name, table in tables.items()}
    con.unregister("segment_numbers")
    known = [
        _known(file, reading, settled=reading.number not in unsettled, whole=whole)
        for file, reading, whole in zip(files, readings, _whole(files, plan), strict=True)
    ]
    rows = con.sql("select bucket, name, file, rows from kept_files order by bucket, name").fetchall()
    return KnownSegments(run, recalled.next_number, known, list(_buckets(rows, buckets)), VERSION), tables


def _known(file: SegmentFile, reading: Reading, *, settled: bool, whole: bool) -> KnownSegment:
    stamp = file.stamp if settled else ""
    place = (file.location.root, file.location.path, file.member)
    return KnownSegment(reading.number, *place, file.size, stamp, whole, reading.starts)


def _whole(files: Sequence[SegmentFile], plan: SegmentPlan) -> Iterator[bool]:
    of_file = {part.part.file.location: part.whole for parts in (plan.settled, *plan.tasks) for part in parts}
    return (of_file[file.location] for file in files)


def _buckets(rows: Iterable[tuple[int, str, str, int]], count: int) -> Iterator[KeptFiles]:
    found: list[KeptFiles] = [{} for _ in range(count)]
    for bucket, name, file, number in rows:
        found[bucket].setdefault(name, []).append((file, number))
    return iter(found)
