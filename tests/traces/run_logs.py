"""`python -m tests.traces.run_logs --seeds 20`: is what simulated quorums decide of partition logs a behaviour of
`spec/Logs.tla`?

Seeds that have partition logs are simulated. The course of each log is followed by TLC step by step. Prints the first
step of a course that the specification does not allow, then a table; writes build/traces-logs.json. Exit code 1 if
there was one, or no step at all. Without Java or TLC nothing is followed, and that is said.
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
from tests.traces.log_seeds import MOST_STEPS, FollowedSeed, follow, with_data
from tests.traces.side_by_side import arguments_of, followed, write

REPORT: Final = Path("build/traces-logs.json")


class Report(msgspec.Struct):
    """All seeds of a run."""

    seeds: int
    first_seed: int
    logs: int
    steps: int
    wall_seconds: float
    actions: dict[str, int]
    refused: list[str]


def report_of(found: list[FollowedSeed], first: int, seconds: float) -> Report:
    """The figures of a run."""
    logs = [log for one in found for log in one.logs]
    refused = [f"seed {one.seed}, {log.name}: {log.refused}" for one in found for log in one.logs if log.refused]
    refused += [f"seed {one.seed}: {one.violation}" for one in found if one.violation is not None]
    actions: Counter[str] = sum((log.actions for log in logs), Counter())
    steps = sum(log.steps for log in logs)
    return Report(len(found), first, len(logs), steps, round(seconds, 1), dict(actions.most_common()), refused)


def main() -> int:
    """The command."""
    arguments = arguments_of(__doc__, seeds=20, most_steps=MOST_STEPS)
    if (missing := why_no_tlc()) is not None:
        print(f"SKIPPED {missing}")
        return 0
    begun = time.monotonic()
    seeds = islice(with_data(arguments.seed), arguments.seeds)
    found = list(followed(follow, seeds, arguments, 1))
    report = report_of(found, arguments.seed, time.monotonic() - begun)
    print_report(report)
    write(report, REPORT)
    return 1 if report.refused or not report.steps else 0


def print_report(report: Report) -> None:
    """What was refused, and the figures as a table."""
    for why in report.refused:
        print(why)
    print(f"{report.steps:,} steps of {report.logs} logs of {report.seeds} seeds from {report.first_seed} on, in")
    print(f"{report.wall_seconds:,.0f} s; {len(report.refused)} not allowed\n\n{'action':32}{'times':>12}")
    for name, count in report.actions.items():
        print(f"{name:32}{count:>12,}")


if __name__ == "__main__":
    sys.exit(main())
