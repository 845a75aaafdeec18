"""Which parts of which segments are read, with all that a row needs to know of its place as numbers.

A log is the folder that segments lie in, so one copy of a partition. A partition is a topic with a number, the same in
all copies; a folder whose name is none is a partition of its own. Numbers ascend with what they stand for: parts with
member, folder, base offset of the segment, path and byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.log_segment import ByteRange
from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES
from pidkeeper.pipeline.segments.segment_files import Part, SegmentFile, ranges_of, share_out

INDEX_BITS: Final = 20
"""Of the key of a part: a segment has far fewer."""
COORDINATOR_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Written by brokers in the name of producers: always with sequence 0, which nobody checks."""
FILES: Final = pa.schema(
    [
        ("file_id", pa.int32()),
        ("source", pa.string()),
        ("member", pa.string()),
        ("path", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("bytes", pa.int64()),
    ]
)
"""What `SegmentPlan.files` has: a row for each segment. `topic` and `partition` are null where the path names none."""

Key = TypeVar("Key")


class SegmentPart(msgspec.Struct, frozen=True):
    """What one reading goes over. `number` is that of the part, over all logs, in the order of each log.

    key: what the part is called in every audit of a ledger. figures: what an earlier audit left of it as a row of
    SEGMENT_PARTS; then the part's range begins with the last batch that is known.
    sequenced: whether brokers check sequences there. whole: whether nothing ever compacts the topic, so that offsets
    have no holes.
    """

    part: Part
    number: int
    file_id: int
    log_id: int
    partition_id: int
    topic_id: int
    member_id: int
    sequenced: bool
    whole: bool
    key: int = 0
    figures: dict[str, Any] = {}

    def places(self) -> dict[str, Any]:
        """What a row of SEGMENT_PARTS has of it."""
        names = ("key", "file_id", "log_id", "partition_id", "topic_id", "member_id", "sequenced", "whole")
        return {"part": self.number} | {name: getattr(self, name) for name in names}


class Reading(NamedTuple):
    """How a segment is read. `number`: what it is called in every audit of a ledger, see `KnownSegment`.

    starts: of all its parts. due: the ranges of the last of them, which are read. figures: rows of SEGMENT_PARTS of the
    others, and if there is one more, of the first that is due: it is read on from where it ended.
    """

    number: int
    starts: list[int]
    due: list[ByteRange]
    figures: Sequence[dict[str, Any]] = ()


class SegmentPlan(msgspec.Struct, frozen=True):
    """`tasks`: the parts that each task reads, in their order. `settled`: those that nobody reads again.

    files: a table of FILES.
    """

    tasks: list[list[SegmentPart]]
    files: Any
    settled: list[SegmentPart] = []


def plan_segments(
    files: Sequence[SegmentFile],
    policies: Mapping[str, str | None] | None = None,
    *,
    first_file_id: int = 0,
    readings: Mapping[Location, Reading] | None = None,
    range_bytes: int = RANGE_BYTES,
) -> SegmentPlan:
    """Who reads what.

    policies: `cleanup.policy` by topic, where it is known. readings: all is read without them.
    """
    files = in_order(files)
    if readings is None:
        readings = {file.location: read_whole(file, number, range_bytes) for number, file in enumerate(files)}
    places = _numbered(_partition(file) for file in files)
    topics = _numbered(_topic(file) for file in files)
    logs = _numbered(_log(file) for file in files)
    members = _numbered(file.member for file in files)
    numbers = {file.location: first_file_id + number for number, file in enumerate(files)}
    count = itertools.count()

    def placed(file: SegmentFile, span: ByteRange, key: int, figures: dict[str, Any]) -> SegmentPart:
        return SegmentPart(
            part=Part(file, span),
            number=next(count),
            file_id=numbers[file.location],
            log_id=logs[_log(file)],
            partition_id=places[_partition(file)],
            topic_id=topics[_topic(file)],
            member_id=members[file.member],
            sequenced=file.topic not in COORDINATOR_TOPICS,
            whole=keeps_all(file, policies or {}),
            key=key,
            figures=figures,
        )

    settled: list[SegmentPart] = []
    due: list[SegmentPart] = []
    for file in files:
        number, starts, ranges, figures = readings[file.location]
        known = len(starts) - len(ranges)
        spans = [*(ByteRange(start, start) for start in starts[:known]), *ranges]
        for index, span in enumerate(spans):
            part = placed(file, span, key_of(number, index), figures[index] if index < len(figures) else {})
            (settled if index < known else due).append(part)
    return SegmentPlan(share_out(due, lambda part: part.part.range, range_bytes), _table(files, first_file_id), settled)


def read_whole(file: SegmentFile, number: int, range_bytes: int = RANGE_BYTES) -> Reading:
    """From beginning to end."""
    ranges = ranges_of(file, range_bytes)
    return Reading(number, [each.start for each in ranges], ranges)


def key_of(number: int, index: int) -> int:
    """The key of a part of a segment."""
    return number << INDEX_BITS | index


def in_order(files: Iterable[SegmentFile]) -> list[SegmentFile]:
    """As they are numbered: by member, folder and base offset."""
    return sorted(files, key=_order)


def keeps_all(file: SegmentFile, policies: Mapping[str, str | None]) -> bool:
    """Whether nothing ever compacts its topic."""
    return file.topic is not None and is_whole(policies.get(file.topic))


def is_whole(policy: str | None) -> bool:
    """Whether a topic of this `cleanup.policy` keeps every batch from the first to the last that it has."""
    return policy is not None and "compact" not in {word.strip() for word in policy.split(",")}


def is_compacted(policy: str | None) -> bool:
    """Whether a cleaner goes over a topic of this `cleanup.policy`; not where none is known."""
    return policy is not None and not is_whole(policy)


def _order(file: SegmentFile) -> tuple[Any, ...]:
    known = file.base_offset is not None
    return (*_log(file), known, file.base_offset or 0, file.path)


def _log(file: SegmentFile) -> tuple[Any, ...]:
    return (file.member, file.location.parent)


def _topic(file: SegmentFile) -> tuple[bool, str]:
    return (file.topic is not None, file.topic or "")


def _partition(file: SegmentFile) -> tuple[Any, ...]:
    """Folders without a topic come first, each on its own."""
    if file.topic is None:
        return (*_topic(file), 0, *file.location.parent)
    return (*_topic(file), file.partition, "", "")


def _numbered(keys: Iterable[Key]) -> dict[Key, int]:
    return {key: number for number, key in enumerate(sorted(set(keys)))}  # type: ignore[type-var]


def _table(files: Sequence[SegmentFile], first_file_id: int) -> Any:
    rows = [
        {
            "file_id": first_file_id + number,
            "source": "segment",
            "member": file.member,
            "path": file.path,
            "topic": file.topic,
            "partition": file.partition,
            "bytes": file.size,
        }
        for number, file in enumerate(files)
    ]
    return pa.Table.from_pylist(rows, schema=FILES)
