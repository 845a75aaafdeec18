"""`python -m tests.traces.run_groups --seeds 20`: is what simulated quorums decide of consumer groups a behaviour of
`spec/Groups.tla`?

Histories that have groups are run. The course of each group in each partition is followed by TLC step by step. Prints
the first step of a course that the specification does not allow, then a table; writes build/traces-groups.json. Exit
code 1 if there was one, or no step at all. Without Java or TLC nothing is followed, and that is said.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from spec.run import why_no_tlc
from tests.traces.group_seeds import MOST_STEPS, FollowedHistory, follow, with_groups
from tests.traces.side_by_side import arguments_of, followed, write

REPORT: Final = Path("build/traces-groups.json")


class Report(msgspec.Struct):
    """All histories of a run."""

    seeds: int
    first_seed: int
    courses: int
    steps: int
    wall_seconds: float
    actions: dict[str, int]
    refused: list[str]


def report_of(found: list[FollowedHistory], first: int, seconds: float) -> Report:
    """The figures of a run."""
    courses = [course for one in found for course in one.courses]
    refused = [
        f"seed {one.seed}, {course.name}: {course.refused}" for one in found for course in one.courses if course.refused
    ]
    refused += [f"seed {one.seed}: {one.violation}" for one in found if one.violation is not None]
    actions: Counter[str] = sum((course.actions for course in courses), Counter())
    steps = sum(course.steps for course in courses)
    return Report(len(found), first, len(courses), steps, round(seconds, 1), dict(actions.most_common()), refused)


def main() -> int:
    """The command."""
    arguments = arguments_of(__doc__, seeds=20, most_steps=MOST_STEPS)
    if (missing := why_no_tlc()) is not None:
        print(f"SKIPPED {missing}")
        return 0
    begun = time.monotonic()
    seeds = islice(with_groups(arguments.seed), arguments.seeds)
    found = list(followed(follow, seeds, arguments, 1))
    report = report_of(found, arguments.seed, time.monotonic() - begun)
    for why in report.refused:
        print(why)
    print(f"{report.steps:,} steps of {report.courses} groups in partitions, {report.seeds} seeds from")
    print(f"{report.first_seed} on, in {report.wall_seconds:,.0f} s; {len(report.refused)} not allowed")
    print(f"\n{'action':32}{'times':>12}")
    for name, count in report.actions.items():
        print(f"{name:32}{count:>12,}")
    write(report, REPORT)
    return 1 if report.refused or not report.steps else 0


if __name__ == "__main__":
    sys.exit(main())
