"""Which segments there are, what is known of them, and how reading the others is shared out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES
from pidkeeper.pipeline.ledger import KnownSegments
from pidkeeper.pipeline.segments.gathering import SegmentsPlan, SegmentsTask
from pidkeeper.pipeline.segments.keeping import Keeping
from pidkeeper.pipeline.segments.memory import VERSION, Recalled, recall, settled_blob
from pidkeeper.pipeline.segments.plan import SegmentPlan, in_order, is_compacted, plan_segments
from pidkeeper.pipeline.segments.policies import read_policies
from pidkeeper.pipeline.segments.segment_files import SegmentFile, list_segments

BUCKET_BYTES: Final = 256 << 20
"""Of segments for each bucket of producers: two million batches of the least size, some 70 bytes of each are kept."""
MAX_BUCKETS: Final = 4096
OUTGROWN: Final = 4
"""By how many times too few buckets are given up, and all is read once more."""


class ListedSegments(NamedTuple):
    """All segments in the order of their numbers, how they are read, and what is known of them."""

    files: list[SegmentFile]
    numbered: SegmentPlan
    recalled: Recalled
    plan: SegmentsPlan
    bytes_read: int
    bytes_known: int

    def rows(self) -> list[dict[str, Any]]:
        """By plan.FILES."""
        rows: list[dict[str, Any]] = self.numbered.files.to_pylist()
        return rows


def list_and_plan(
    paths: Sequence[str], first_file_id: int, place: Location, run: str, known: KnownSegments | None = None
) -> ListedSegments:
    """The segments at paths, and the topics' policies as far as the brokers' own files tell them.

    place: of the ledger, to which `run` writes. known: what it has of segments; all is read without it.
    Raises FileNotFoundError if nothing is at a path, OSError if one cannot be reached.
    """
    files = in_order(list_segments(paths))
    policies = read_policies(files)
    files = _without_emptied(files, policies)
    size = sum(file.size for file in files)
    buckets = min(MAX_BUCKETS, 1 + size // BUCKET_BYTES)
    if known is not None and (known.version != VERSION or buckets > OUTGROWN * len(known.buckets)):
        known = None
    recalled = recall(place, known, files, policies, RANGE_BYTES)
    plan = plan_segments(files, policies, first_file_id=first_file_id, readings=recalled.readings)
    keeping = Keeping(place, run, [] if known is None else known.buckets, recalled.gone, recalled.stirred)
    settled = settled_blob(plan)
    tasks = [*([SegmentsTask([], settled)] if settled else []), *(SegmentsTask(parts) for parts in plan.tasks)]
    gathered = SegmentsPlan(tasks, buckets if known is None else len(known.buckets), keeping)
    due = sum(each.end - each.start for reading in recalled.readings.values() for each in reading.due)
    return ListedSegments(files, plan, recalled, gathered, due, size - due)


def _without_emptied(files: Sequence[SegmentFile], policies: Mapping[str, str | None]) -> list[SegmentFile]:
    """A cleaner leaves a segment without a byte in place where each of its records has a later one of the same key."""
    return [file for file in files if file.size or not (file.topic and is_compacted(policies.get(file.topic)))]
