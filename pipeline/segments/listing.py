"""Which segments there are, and how reading them is shared out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pidkeeper.pipeline.segments.gathering import SegmentsPlan, SegmentsTask
from pidkeeper.pipeline.segments.plan import plan_segments
from pidkeeper.pipeline.segments.policies import read_policies
from pidkeeper.pipeline.segments.segment_files import list_segments

BUCKET_BYTES: Final = 128 << 20
"""Of segments for each bucket of producers: a million batches of the least size, some 70 bytes of each are kept."""
MAX_BUCKETS: Final = 4096


class ListedSegments(NamedTuple):
    """What is read, a row for each file, and the bytes of all."""

    plan: SegmentsPlan
    files: list[dict[str, Any]]
    bytes: int


def list_and_plan(paths: Sequence[str], first_file_id: int) -> ListedSegments:
    """The segments at paths, and the topics' policies as far as the brokers' own files tell them.

    Raises FileNotFoundError if nothing is at a path, OSError if one cannot be reached."""
    files = list_segments(paths)
    size = sum(file.size or 0 for file in files)
    plan = plan_segments(files, read_policies(files), first_file_id=first_file_id)
    buckets = min(MAX_BUCKETS, 1 + size // BUCKET_BYTES)
    tasks = [SegmentsTask(parts) for parts in plan.tasks]
    return ListedSegments(SegmentsPlan(tasks, buckets), plan.files.to_pylist(), size)
