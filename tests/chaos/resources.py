"""What each process takes while the run goes on: memory, file descriptors, threads, tasks; and whether that grows.

A process that is started again begins anew, under another pid: a life. What it takes in the first WARM_UP_SECONDS of a
life is what it needs to work. After that the growth is the median of the slopes between samples that lie apart by half
a life or more (Theil and Sen), of all lives together, each slope weighing as much as the time between its samples: a
spike or a few wrong samples do not move it, and a leak that each restart ends is found all the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from pidkeeper.cli.local_cluster import Member, member_name
from tests.chaos.looking import sample
from tests.chaos.stage import ChaosCluster

MIB: Final = 1024 * 1024
PERIOD_SECONDS: Final = 2.0
WARM_UP_SECONDS: Final = 30.0
SHORTEST_LIFE_SECONDS: Final = 30.0
"""After the warm-up; a shorter one is no ground for a slope."""

MOST_POINTS: Final = 120
"""Of one life, each the median of what was sampled in its part: pairs grow with the square."""

TASKS: Final = "pidkeeper_event_loop_tasks"


class Sample(msgspec.Struct, frozen=True):
    """`at`: seconds of the monotonic clock. `memory` in bytes is what is resident. `tasks`: None where nobody told."""

    at: float
    memory: int
    files: int
    threads: int
    tasks: int | None


class Life(msgspec.Struct):
    """One process, from its start to its end."""

    pid: int
    samples: list[Sample]


class Bar(msgspec.Struct, frozen=True):
    """What a process may take at most: growth of a quantity per minute, and the quantity itself where that has a bound.

    `quantity`: a field of Sample. `least`: growth that comes to less in all the time is none, however fast it was: a
    lead, a connection or two that came in a short run.
    """

    quantity: str
    per_minute: float
    least: float
    highest: float = float("inf")


BARS: Final = (
    # The highest is what docs/operations.md says of a whole member at all of its limits.
    Bar("memory", 1.0 * MIB, least=16 * MIB, highest=310 * MIB),
    Bar("files", 1.0, least=24),
    Bar("threads", 0.5, least=8),
    Bar("tasks", 1.0, least=24),
)
"""A leak of one a minute is 60 in the hour of a run: of connections that come and go the median stays where it is."""


class Verdict(msgspec.Struct, frozen=True):
    """`growth` per minute, over the `minutes` of all lives; None if they were too short. `highest`: of all samples."""

    process: str
    bar: Bar
    growth: float | None
    minutes: float
    highest: float

    @property
    def passed(self) -> bool:
        """Whether it stayed below the bar, as far as there is something to judge."""
        growth = self.growth or 0.0
        grows = growth > self.bar.per_minute and growth * self.minutes > self.bar.least
        return not grows and self.highest <= self.bar.highest


class Sampler:
    """Looks at processes by their pids, every `period` seconds. `tasks(name)`: how many a process has; it may wait."""

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        tasks: Callable[[str], float | None] = lambda _: None,
        period: float = PERIOD_SECONDS,
    ) -> None:
        self.lives: dict[str, list[Life]] = {}
        self._pids = pids
        self._tasks = tasks
        self._period = period

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.gather(*(self._look(name, pid) for name, pid in self._pids().items()))
            await asyncio.sleep(self._period)

    async def _look(self, name: str, pid: int) -> None:
        found = await asyncio.to_thread(self._sample, name, pid)
        if found is None:
            return
        lives = self.lives.setdefault(name, [])
        if not lives or lives[-1].pid != pid:
            lives.append(Life(pid, []))
        lives[-1].samples.append(found)

    def _sample(self, name: str, pid: int) -> Sample | None:
        tasks = self._tasks(name)
        process = Path("/proc") / str(pid)
        try:
            status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
            files = sum(1 for _ in (process / "fd").iterdir())
            memory = int(status["VmRSS"].split()[0]) * 1024
        except (OSError, KeyError):
            # It has ended; one that nobody has waited for yet has no memory any more.
            return None
        return Sample(time.monotonic(), memory, files, int(status["Threads"]), None if tasks is None else int(tasks))


def members_of(cluster: ChaosCluster) -> Sampler:
    """A sampler of all members of a cluster."""

    def pids() -> dict[str, int]:
        running: Iterable[Member] = filter(cluster.running, cluster.members())
        return {member_name(member): member.pid for member in running}

    return Sampler(pids, lambda name: sample(cluster, cluster.member(name), TASKS))


def judge(
    lives: Mapping[str, Sequence[Life]], bars: Sequence[Bar] = BARS, *, warm_up: float = WARM_UP_SECONDS,
    shortest: float = SHORTEST_LIFE_SECONDS, least_minutes: float = 0.0,
) -> list[Verdict]:  # fmt: skip
    """A verdict for each process and bar. `warm_up`, `shortest`: seconds, as WARM_UP_SECONDS and the other one.

    Growth is judged where all lives of a process have `least_minutes` together.
    """
    verdicts = []
    for process, own in lives.items():
        for bar in bars:
            series = [_series(life, bar.quantity) for life in own]
            warm = [_after(points, warm_up) for points in series]
            judged = [points for points in warm if points and points[-1][0] - points[0][0] >= shortest]
            minutes = sum(points[-1][0] - points[0][0] for points in judged) / 60
            highest = max((value for points in series for _, value in points), default=0.0)
            growth = _growth(judged) if minutes >= least_minutes else None
            verdicts.append(Verdict(process, bar, growth, minutes, highest))
    return verdicts


Points = list[tuple[float, float]]
"""Times in seconds, and values."""


def _series(life: Life, quantity: str) -> Points:
    found = ((one.at, getattr(one, quantity)) for one in life.samples)
    return [(at, float(value)) for at, value in found if value is not None]


def _after(points: Points, warm_up: float) -> Points:
    return [(at, value) for at, value in points if at - points[0][0] >= warm_up]


def _growth(lives: Sequence[Points]) -> float | None:
    """The weighted median of slopes, per minute."""
    slopes = sorted(slope for points in lives for slope in _slopes(_thinned(points)))
    half = sum(weight for _, weight in slopes) / 2
    for slope, weight in slopes:
        half -= weight
        if half <= 0:
            return slope * 60
    return None


def _slopes(points: Points) -> Iterable[tuple[float, float]]:
    """Slopes per second, each with its weight."""
    if not points:
        return
    apart = (points[-1][0] - points[0][0]) / 2
    for place, (at, value) in enumerate(points):
        for later, other in points[place + 1 :]:
            if later - at >= apart > 0:
                yield (other - value) / (later - at), later - at


def _thinned(points: Points) -> Points:
    """At most MOST_POINTS, each the median of its part."""
    part = max(1, -(-len(points) // MOST_POINTS))
    parts = (list(group) for _, group in groupby(enumerate(points), key=lambda one: one[0] // part))
    return [(median(at for _, (at, _) in group), median(value for _, (_, value) in group)) for group in parts]
