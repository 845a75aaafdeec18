"""Which parts of which segments are read, with all that a row needs to know of its place as numbers.

A log is the folder that segments lie in, so one copy of a partition. A partition is a topic with a number, the same in
all copies; a folder whose name is none is a partition of its own. Numbers ascend with what they stand for: parts with
member, folder, base offset of the segment, path and byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES
from pidkeeper.pipeline.segments import segment_files
from pidkeeper.pipeline.segments.segment_files import Part, SegmentFile

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


class SegmentPlan(msgspec.Struct, frozen=True):
    """`tasks`: the parts that each task reads, in their order. `files`: a table of FILES."""

    tasks: list[list[SegmentPart]]
    files: Any


def plan_segments(
    files: Sequence[SegmentFile],
    policies: Mapping[str, str | None] | None = None,
    *,
    first_file_id: int = 0,
    since: Mapping[str, int] | None = None,
    range_bytes: int = RANGE_BYTES,
) -> SegmentPlan:
    """Who reads what. `policies`: `cleanup.policy` by topic, where it is known. `since` as in `segment_files.plan`."""
    files = sorted(files, key=_order)
    places = _numbered(_partition(file) for file in files)
    topics = _numbered(_topic(file) for file in files)
    logs = _numbered(_log(file) for file in files)
    members = _numbered(file.member for file in files)
    numbers = {file.location: first_file_id + number for number, file in enumerate(files)}
    count = itertools.count()

    def placed(part: Part) -> SegmentPart:
        file = part.file
        return SegmentPart(
            part=part,
            number=next(count),
            file_id=numbers[file.location],
            log_id=logs[_log(file)],
            partition_id=places[_partition(file)],
            topic_id=topics[_topic(file)],
            member_id=members[file.member],
            sequenced=file.topic not in COORDINATOR_TOPICS,
            whole=file.topic is not None and is_whole((policies or {}).get(file.topic)),
        )

    shared_out = segment_files.plan(files, range_bytes=range_bytes, since=since)
    tasks = [[placed(part) for part in parts] for parts in shared_out]
    return SegmentPlan(tasks, _table(files, first_file_id))


def is_whole(policy: str | None) -> bool:
    """Whether a topic of this `cleanup.policy` keeps every batch from the first to the last that it has."""
    return policy is not None and "compact" not in {word.strip() for word in policy.split(",")}


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
