"""One simulated cluster whose members are recorded."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

from pidkeeper.controller.raft.messages import Message
from tests.simulation.cluster import Cluster, Result, run_to_end
from tests.simulation.drawn import Drawn, draw
from tests.simulation.forged_terms import forged as forge
from tests.simulation.world import World
from tests.traces.course import Course
from tests.traces.listening import listening
from tests.traces.recorder import Recorder

ALL_LOST: Final = "all disks are lost"
"""What follows is a quorum of its own (`spec/Succession.tla`)."""


class ClusterWithout(Cluster):
    """A simulated cluster to which these faults do not happen."""

    def __init__(self, seed: int, without: AbstractSet[str]) -> None:
        def drawn(world: World) -> Drawn:
            settings = draw(world)
            weights = {kind: rate for kind, rate in settings.swarm.weights.items() if kind not in without}
            return replace(settings, swarm=replace(settings.swarm, weights=weights))

        super().__init__(seed, drawn=drawn)


class Recorded:
    """A cluster that has run to its end, the course that its members took, and the faults that fired meanwhile."""

    def __init__(self, seed: int, most_steps: int, without: AbstractSet[str] = frozenset()) -> None:
        recorder = Recorder(most_steps)
        self.course: Course = recorder.course
        self.faults: Counter[str] = Counter()
        self.cluster = ClusterWithout(seed, without)
        self._count_fault = self.cluster.world.fault
        self.cluster.world.fault = self._fault  # type: ignore[method-assign]
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with listening(recorder, lambda node: self.cluster.members[node].damaged), _forging(recorder):
                self.result: Result = run_to_end(self.cluster)
        finally:
            logging.disable(disabled)

    def _fault(self, kind: str, detail: str = "") -> None:
        self._count_fault(kind, detail)
        if kind == "all_disks_lost":
            self.course.end(ALL_LOST)
        if not self.course.ended:
            self.faults[kind] += 1


@contextlib.contextmanager
def _forging(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder of every message that a liar sends."""

    def forged(*arguments: Any) -> Message:
        message = forge(*arguments)
        recorder.forged(message)
        return message

    with patch("tests.simulation.nemesis.forged", forged):
        yield
