"""`python -m tests.traces.run --seeds 200`: is what simulated members do a behaviour of `spec/Consensus.tla`?

Each seed is simulated, its course written down in the specification's words, and followed by TLC step by step. Prints
the first step of a course that the specification does not allow, then a table; writes build/traces.json. Exit code 1
if there was one, or no step at all. Without Java or TLC nothing is followed, and that is said.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from spec.run import why_no_tlc
from tests.traces.follow import Followed, follow
from tests.traces.recorded import ALL_LOST
from tests.traces.side_by_side import arguments_of, followed, write

REPORT: Final = Path("build/traces.json")
MOST_STEPS: Final = 5_000
"""Of one seed, some fifteen simulated seconds. TLC takes a few seconds for them."""


class Report(msgspec.Struct):
    """All seeds of a run."""

    seeds: int
    first_seed: int
    steps: int
    wall_seconds: float
    to_the_end: int
    actions: dict[str, int]
    faults: dict[str, int]
    refused: list[str]


def report_of(found: list[Followed], first: int, seconds: float) -> Report:
    """The figures of a run."""
    actions: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for one in found:
        actions += one.actions
        faults += one.faults
    return Report(
        len(found),
        first,
        sum(one.steps for one in found),
        round(seconds, 1),
        sum(one.ended is None or one.ended == ALL_LOST for one in found),
        dict(actions.most_common()),
        dict(faults.most_common()),
        [f"seed {one.seed}: {why}" for one in found for why in (one.refused, one.violation) if why is not None],
    )


def main() -> int:
    """The command."""
    arguments = arguments_of(__doc__, seeds=200, most_steps=MOST_STEPS)
    if (missing := why_no_tlc()) is not None:
        print(f"SKIPPED {missing}")
        return 0
    begun, found = time.monotonic(), []
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    for one in followed(follow, seeds, arguments, 20):
        found.append(one)
        for why in (one.refused, one.violation):
            if why is not None:
                print(f"seed {one.seed}: {why}", flush=True)
    report = report_of(found, arguments.seed, time.monotonic() - begun)
    print_report(report)
    write(report, REPORT)
    return 1 if report.refused or not report.steps else 0


def print_report(report: Report) -> None:
    """The figures as a table."""
    print(f"{report.steps:,} steps of {report.seeds} seeds from {report.first_seed} on, {report.to_the_end} of them to")
    print(f"the end of the simulation, in {report.wall_seconds:,.0f} s; {len(report.refused)} not allowed")
    for title, counts in (("action", report.actions), ("fault", report.faults)):
        print(f"\n{title:32}{'times':>12}")
        for name, count in counts.items():
            print(f"{name:32}{count:>12,}")


if __name__ == "__main__":
    sys.exit(main())
