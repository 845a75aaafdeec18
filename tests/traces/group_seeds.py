"""The courses of a history's groups: its cluster is listened to, and nothing of it is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final
from unittest.mock import patch

import msgspec

from pidkeeper.controller.state import decide, requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.protocol.groups import OffsetsRecord
from pidkeeper.protocol.records import decode_batch
from tests.histories.grouping import draw_groups
from tests.histories.history import run_history
from tests.simulation.log_invariants import LogMonitor
from tests.simulation.process import Process
from tests.simulation.world import World
from tests.traces.group_course import GroupCourse
from tests.traces.group_recorder import GroupRecorder
from tests.traces.log_seeds import _behind
from tests.traces.told_course import FollowedCourse

MOST_STEPS: Final = 2_000
"""Of one group and partition."""


class FollowedHistory(msgspec.Struct, frozen=True):
    """The groups of one history. `violation`: what the history itself found."""

    seed: int
    courses: list[FollowedCourse]
    violation: str | None


def with_groups(first: int) -> Iterator[int]:
    """The seeds from `first` on whose histories have consumer groups."""
    seed = first
    while True:
        if draw_groups(World(seed).stream("groups")).transformers:
            yield seed
        seed += 1


def follow(seed: int, most_steps: int = MOST_STEPS) -> FollowedHistory:
    """Run the history of `seed`, and have TLC follow each group. Raises RuntimeError with what TLC said."""
    recorder, violation = recorded(seed)
    courses = [GroupCourse(recorder, place, most_steps) for place in sorted(recorder.places)]
    return FollowedHistory(seed, [course.follow() for course in courses], violation)


def recorded(seed: int) -> tuple[GroupRecorder, str | None]:
    """All steps of one history, and what that itself found."""
    recorder = GroupRecorder()
    with _listening(recorder):
        return recorder, run_history(seed).violation


@contextlib.contextmanager
def listening_to_decisions(recorder: GroupRecorder) -> Iterator[None]:
    """Tell `recorder` who asks for the offsets that are decided."""
    deciders: dict[Any, Any] = decide._DECIDERS
    shipped = deciders[requests.CommitOffsets]

    def decided(draft: Draft, request: requests.CommitOffsets) -> Any:
        before = len(draft.records)
        answer = shipped(draft, request)
        for record in draft.records[before:]:
            if isinstance(record, OffsetsRecord):
                recorder.decided(request, record)
        return answer

    with patch.dict(deciders, {requests.CommitOffsets: decided}):
        yield


@contextlib.contextmanager
def _listening(recorder: GroupRecorder) -> Iterator[None]:
    """Tell `recorder` also what the first member to apply an entry has then."""

    def entry(_: LogMonitor, process: Process | None, data: bytes) -> None:
        # What a copy has was followed before.
        if process is not None:
            records = decode_batch(data)
            recorder.entry(records, process.machine.next_offset - len(records), process.machine)

    # A quorum that goes on from a copy is another one.
    closed = _behind(lambda *_: recorder.close(), LogMonitor.rewound)
    applied = _behind(entry, LogMonitor._first_applied)
    with (
        listening_to_decisions(recorder),
        patch.object(LogMonitor, "rewound", closed),
        patch.object(LogMonitor, "_first_applied", applied),
    ):
        yield
