"""One simulated cluster whose members are recorded."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from msgspec.structs import replace

from tests.simulation.cluster import Cluster, Result, run_to_end
from tests.simulation.swarm import FORGETTING, Swarm
from tests.traces.course import Course
from tests.traces.listening import listening
from tests.traces.recorder import Recorder

LEFT_OUT: Final = frozenset({*FORGETTING, "term_forged"})
"""Faults of which the specification says nothing: a disk that goes back without its noticing, a member that lies. They
are bounded by what operators do (docs/operations.md), and are left to the simulation's monitors."""


ALL_LOST: Final = "all disks are lost"
"""What follows is a quorum of its own (`spec/Succession.tla`)."""


class FollowableCluster(Cluster):
    """A simulated cluster without faults of which the specification says nothing."""

    def _swarm(self) -> Swarm:
        swarm = super()._swarm()
        return replace(swarm, weights={kind: rate for kind, rate in swarm.weights.items() if kind not in LEFT_OUT})


class Recorded:
    """A cluster that has run to its end, the course that its members took, and the faults that fired meanwhile."""

    def __init__(self, seed: int, most_steps: int) -> None:
        recorder = Recorder(most_steps)
        self.course: Course = recorder.course
        self.faults: Counter[str] = Counter()
        self.cluster = FollowableCluster(seed)
        self._count_fault = self.cluster.world.fault
        self.cluster.world.fault = self._fault  # type: ignore[method-assign]
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with listening(recorder, lambda node: self.cluster.members[node].damaged):
                self.result: Result = run_to_end(self.cluster)
        finally:
            logging.disable(disabled)

    def _fault(self, kind: str, detail: str = "") -> None:
        self._count_fault(kind, detail)
        if kind == "all_disks_lost":
            self.course.end(ALL_LOST)
        if not self.course.ended:
            self.faults[kind] += 1
