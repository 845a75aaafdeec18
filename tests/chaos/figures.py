"""What a run has shown, in figures: what was done, what it cost, and whether any promise was broken."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from tests.chaos.course import Happened
from tests.chaos.plan import Target

RECOVERY_P99_SECONDS: Final = 2.0
"""From the end of the last fault of an act to the next block that somebody is given."""

GAP_MEDIAN_SECONDS: Final = {"kill": 0.2, "pause": 0.6, "fsync_hangs": 1.2}
"""By the kind of fault that strikes a leader alone: the longest time without a block."""


class Served(msgspec.Struct, frozen=True):
    """When blocks were given: the times of all acknowledgements, in order, of `time.monotonic`."""

    times: Sequence[float]

    def next_after(self, moment: float) -> float | None:
        """Seconds from `moment` to the next one; None if there is none any more."""
        position = bisect.bisect_left(self.times, moment)
        return self.times[position] - moment if position < len(self.times) else None

    def longest_gap(self, begin: float, end: float) -> float:
        """The longest time without one that ends after `begin` and begins before `end`; 0 where there is none."""
        first = max(bisect.bisect_left(self.times, begin) - 1, 0)
        last = bisect.bisect_right(self.times, end) + 1
        return max((later - earlier for earlier, later in pairwise(self.times[first:last])), default=0.0)


class Tally(msgspec.Struct):
    """Of one kind of fault: how often it was injected, how often nobody was there to be struck, how often an effect of
    it was seen."""

    injected: int = 0
    missed: int = 0
    bitten: int = 0


def tallies(happened: Iterable[Happened]) -> dict[str, Tally]:
    """By the name of the kind."""
    found: dict[str, Tally] = {}
    for one in happened:
        tally = found.setdefault(one.planned.kind, Tally())
        if one.bites is None:
            tally.missed += 1
        else:
            tally.injected += 1
            tally.bitten += one.bites > 0
    return found


def recoveries(happened: Iterable[Happened], served: Served) -> list[float]:
    """Seconds from the end of the last fault of each act to the next block; inf where none came."""
    last: dict[float, float] = {}
    for one in happened:
        last[one.whole] = max(last.get(one.whole, 0.0), one.ended)
    found = (served.next_after(ended) for ended in last.values())
    return [float("inf") if seconds is None else seconds for seconds in found]


def leader_gaps(happened: Iterable[Happened], served: Served) -> dict[str, list[float]]:
    """By kind, of the faults that struck a leader alone: the longest time without a block, in seconds."""
    found: dict[str, list[float]] = {}
    for one in happened:
        if one.planned.alone and one.planned.target is Target.LEADER and one.bites:
            found.setdefault(one.planned.kind, []).append(served.longest_gap(one.began, one.whole))
    return found


def quantile(values: Iterable[float], share: float) -> float:
    """The least value that such a share of the values does not pass; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
