"""The evidence of Kafka's segments: read part by part, and judged producer by producer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from pidkeeper.pipeline.engine.blobs import from_blob
from pidkeeper.pipeline.engine.engine import Engine, Keyed, Named
from pidkeeper.pipeline.segments.allocation import Allocated
from pidkeeper.pipeline.segments.judge import JudgeSettings, judge_producers
from pidkeeper.pipeline.segments.keeping import Keeping
from pidkeeper.pipeline.segments.plan import SegmentPart
from pidkeeper.pipeline.segments.read import ReadSettings, read_segments


class SegmentsTask(msgspec.Struct, frozen=True):
    """What one task reads. `settled`: rows of PARTS that are known, as a blob for every bucket."""

    parts: list[SegmentPart]
    settled: bytes = b""


class SegmentsPlan(msgspec.Struct, frozen=True):
    """What is read, into how many buckets producers are cut, and what is kept of them."""

    tasks: list[SegmentsTask]
    buckets: int
    keeping: Keeping | None = None


def read_task(task: SegmentsTask, settings: ReadSettings) -> Iterator[Keyed]:
    """`read_segments` of a task, and what is known of parts that nobody reads."""
    for bucket in range(settings.buckets if task.settled else 0):
        yield bucket, "parts", from_blob(task.settled)
    if task.parts:
        yield from read_segments(task.parts, settings)


def gather(engine: Engine, plan: SegmentsPlan, allocated: tuple[Any, Any] | None) -> Iterator[Named]:
    """Evidence by `segments.tables`. allocated: the IDs that the quorum gave as runs, None if none is known."""
    settings = JudgeSettings(None if allocated is None else Allocated(*allocated), keeping=plan.keeping)
    read = partial(read_task, settings=ReadSettings(plan.buckets))
    yield from engine.shuffle(read, partial(judge_producers, settings=settings), plan.tasks, plan.buckets)
