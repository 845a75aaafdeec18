"""`python -m bench.leader_cost`: what of a core the leader takes for an allocation, by the number of callers.

Once the leader has a core of its own, as on a wide machine, and everything else is pinned to the others; once all
share all cores. An event loop is one thread: a second of a core by the first figure is the most that a leader gives.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.closed_loop import LoadResult
from bench.cluster import host_port, raised_cluster, register
from bench.figures import repeats
from bench.floor import ALLOCATE_PATH
from bench.http_load import LoadSpec
from bench.load_process import LOAD_START_SECONDS, run_load
from bench.process_tree import cpu_seconds
from bench.report import Row, informing, median
from bench.section_command import run_section
from pidkeeper.cli.local_cluster import Controller, LocalCluster


class CostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`repetitions` of `seconds` after `warmup` with each number of `callers`."""

    callers: tuple[int, ...]
    seconds: float
    warmup: float
    repetitions: int


FULL: Final = CostPlan(callers=(1, 8, 64, 256), seconds=3.0, warmup=0.5, repetitions=3)
QUICK: Final = CostPlan(callers=(1, 64), seconds=1.5, warmup=0.3, repetitions=1)


class Cost(NamedTuple):
    """Microseconds of processor time of the leader for an allocation; allocations a second; cores it kept busy."""

    us: float
    rate: float
    busy: float


class LeaderCostBench:
    """Measures in `directory`. `violations` and `notes` gather what the rows cannot say."""

    def __init__(self, directory: Path, plan: CostPlan) -> None:
        self._directory = directory
        self._plan = plan
        self._starts: list[int] = []
        self.violations: list[str] = []
        self.notes: list[str] = []

    def measure(self) -> list[Row]:
        """Rows of the section. Raises CommandError, RuntimeError if members or loads end."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            self.notes.append("there is one core: the leader cannot have one of its own")
        cluster = raised_cluster(LocalCluster, self._directory / "leader-cost", agents=0)
        rows: list[Row] = []
        try:
            cluster.start()
            cluster.wait_ready()
            for name, own in (("a core of its own", True), ("all on all cores", False)):
                if len(cores) < 2 and own:
                    continue
                with _pinned(cluster, cores, own=own):
                    rows += [self._row(name, callers, cluster) for callers in self._plan.callers]
        finally:
            cluster.stop()
        if repeated := repeats(self._starts):
            self.violations.append(f"{repeated} of {len(self._starts)} block starts came twice")
        return rows

    def _row(self, name: str, callers: int, cluster: LocalCluster) -> Row:
        costs = [self._cost(callers, cluster) for _ in range(self._plan.repetitions)]
        us = [cost.us for cost in costs]
        rate, busy = median([cost.rate for cost in costs]), median([cost.busy for cost in costs])
        return informing(
            "leader",
            f"leader's CPU per allocation, {callers} callers, {name}",
            "us",
            us,
            f"{rate:,.0f}/s, {busy:.2f} cores busy; a whole core: {1e6 / median(us):,.0f}/s",
        )

    def _cost(self, callers: int, cluster: LocalCluster) -> Cost:
        """Of one run, its warm-up included: all its allocations count, and all that the leader used."""
        leader = cluster.leader()
        body = register(leader)
        before = cpu_seconds(leader.pid)
        seconds = self._plan.warmup + self._plan.seconds
        spec = LoadSpec(*host_port(leader.http), ALLOCATE_PATH, body, callers, self._plan.seconds, self._plan.warmup)
        result = run_load("bench.http_load", spec, LoadResult, seconds + LOAD_START_SECONDS)
        used = cpu_seconds(leader.pid) - before
        self._starts += result.starts
        if result.failures:
            self.notes.append(f"{callers} callers: {result.failures[:3]}")
        return Cost(used / len(result.starts) * 1e6, result.rate, used / seconds)


@contextlib.contextmanager
def _pinned(cluster: LocalCluster, cores: Sequence[int], *, own: bool) -> Iterator[None]:
    """Give the leader the first of `cores` for itself, and the others to its followers and to the load; or not."""
    leader = cluster.leader()
    others = [one for one in cluster.layout.controllers if one is not leader]
    pin(leader, cores[:1] if own else cores)
    for one in others:
        pin(one, cores[1:] if own else cores)
    try:
        # Children inherit it.
        os.sched_setaffinity(0, cores[1:] if own else cores)
        yield
    finally:
        os.sched_setaffinity(0, cores)


def pin(member: Controller, cores: Sequence[int]) -> None:
    """Let all threads of a member run on `cores` only. Raises OSError if it has ended."""
    for thread in Path(f"/proc/{member.pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # a thread that just ended
            os.sched_setaffinity(int(thread.name), cores)


if __name__ == "__main__":
    run_section(lambda directory, quick: LeaderCostBench(directory, QUICK if quick else FULL))
