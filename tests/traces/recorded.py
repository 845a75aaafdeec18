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
from tests.simulation.forged_terms import forged as forge
from tests.simulation.swarm import Swarm
from tests.traces.course import Course
from tests.traces.listening import listening
from tests.traces.recorder import Recorder

ALL_LOST: Final = "all disks are lost"
"""What follows is a quorum of its own (`spec/Succession.tla`)."""


class ClusterWithout(Cluster):
    """A simulated cluster to which these faults do not happen."""

    def __init__(self, seed: int, without: AbstractSet[str]) -> None:
        self._without = without
        super().__init__(seed)

    def _swarm(self, *, newest: bool) -> Swarm:
        swarm = super()._swarm(newest=newest)
        return replace(swarm, weights={kind: rate for kind, rate in swarm.weights.items() if kind not in self._without})


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
