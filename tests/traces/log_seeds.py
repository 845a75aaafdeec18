"""The courses of a seed's logs: its cluster is listened to, and nothing of it is changed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from unittest.mock import patch

import msgspec

from pidkeeper.protocol.records import decode_batch
from tests.simulation.cluster import Cluster, run_to_end
from tests.simulation.data_plane import draw
from tests.simulation.log_invariants import LogMonitor
from tests.simulation.log_references import References
from tests.simulation.object_store import SimStore
from tests.simulation.process import Process
from tests.simulation.world import World
from tests.traces.log_course import LogCourse
from tests.traces.log_recorder import LogRecorder
from tests.traces.told_course import FollowedCourse

MOST_STEPS: Final = 1_500
"""Of one log. TLC takes some ten seconds for them: each state has the whole log."""


class FollowedSeed(msgspec.Struct, frozen=True):
    """The logs of one seed. `violation`: what the simulation itself found."""

    seed: int
    logs: list[FollowedCourse]
    violation: str | None


def with_data(first: int) -> Iterator[int]:
    """The seeds from `first` on whose clusters have partition logs."""
    seed = first
    while True:
        if draw(World(seed).stream("data-load")).partitions:
            yield seed
        seed += 1


def follow(seed: int, most_steps: int = MOST_STEPS) -> FollowedSeed:
    """Simulate `seed`, and have TLC follow each log. Raises RuntimeError with what TLC said."""
    recorder, violation = recorded(seed)
    courses = [LogCourse(recorder, log, most_steps) for log in sorted(recorder.topics)]
    return FollowedSeed(seed, [course.follow() for course in courses], violation)


def recorded(seed: int) -> tuple[LogRecorder, str | None]:
    """All steps of one seed, and what the simulation itself found."""
    recorder = LogRecorder()
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _listening(recorder):
            return recorder, run_to_end(Cluster(seed)).violation
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def _listening(recorder: LogRecorder) -> Iterator[None]:
    """Tell `recorder` what the first member to apply an entry has then, and what the store does."""

    def entry(_: LogMonitor, process: Process | None, data: bytes) -> None:
        # What a copy has was followed before.
        if process is not None:
            recorder.entry(decode_batch(data), process.machine)

    def gone(_: SimStore, names: Sequence[str]) -> None:
        for name in names:
            recorder.gone(name)

    listeners: list[tuple[type, str, Callable[..., None]]] = [
        (LogMonitor, "_first_applied", entry),
        (References, "deleting", lambda _, name: recorder.doomed(name)),
        # Nobody looks after the store any more, and a quorum that follows is another one.
        (References, "check", lambda _: recorder.close()),
        (SimStore, "put", lambda _, name, pieces: recorder.stored(name)),
        (SimStore, "delete", gone),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, told in listeners:
            stack.enter_context(patch.object(owner, name, _behind(told, getattr(owner, name))))
        yield


def _behind(told: Callable[..., None], call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, of which `told` hears before: also of what the simulation does not let pass."""

    def happened(*arguments: Any) -> Any:
        told(*arguments)
        return call(*arguments)

    return happened
