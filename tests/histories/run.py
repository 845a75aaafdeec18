"""Run many histories of partition logs: `python -m tests.histories.run --count 10000 --jobs 2`; or one again:
`... --seed 17 --trace FILE`.

Prints a table and writes it to build/histories.json: how many histories showed each fault and each mechanism, and how
often in all. A hundredth of the histories runs twice, and must take the same course. Exit code 1 if one found a
violation or took another course; the traces of the first such are written beside the figures.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TextIO

import msgspec

from tests.histories.history import Outcome, run_history
from tests.simulation.world import SECOND

REPORT: Final = Path("build/histories.json")
REPEAT_EVERY: Final = 100
CHUNK: Final = 8
"""Histories that a worker is given at once."""

COLLECT_EVERY: Final = 8
"""Histories between two collections of memory: each leaves some megabytes in circles."""

MAX_SHOWN: Final = 20
MAX_TRACED: Final = 5
"""Violations whose histories run again for their trace."""


class Seen(msgspec.Struct):
    """Of one kind of fault or mechanism: the share of histories that showed it, and how often there was one in all."""

    share: float
    total: int


class Report(msgspec.Struct):
    """The figures of one run, added up over its histories."""

    histories: int = 0
    first_seed: int = 0
    run_twice: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    cpu_seconds_each: float = 0.0
    simulated_hours: float = 0.0
    events: int = 0
    batches_checked: int = 0
    segments_rolled: int = 0
    objects_collected: int = 0
    retention_cuts: int = 0
    restores: int = 0
    mechanisms: dict[str, Seen] = {}
    faults_by_kind: dict[str, Seen] = {}
    violations: list[str] = []


def run_twice(seed: int, *, twice: bool) -> tuple[Outcome, float]:
    """One history, and the seconds of CPU that it took; run again and compared if `twice`."""
    before = time.process_time()
    outcome = run_history(seed)
    seconds = time.process_time() - before
    if twice and outcome.violation is None:
        again = run_history(seed)
        if again.digest != outcome.digest:
            outcome.violation = f"not-deterministic: digests {outcome.digest} and {again.digest}"
    if seed % COLLECT_EVERY == 0:
        gc.collect()
    return outcome, seconds


def _start_worker() -> None:
    """What was imported stays, and is not looked through again."""
    gc.collect()
    gc.freeze()


def _run_task(task: tuple[int, bool]) -> tuple[Outcome, float]:
    return run_twice(task[0], twice=task[1])


def run_histories(seeds: Iterable[int], jobs: int) -> Iterator[tuple[Outcome, float]]:
    """The outcomes as they come, each with its seconds of CPU."""
    tasks = [(seed, place % REPEAT_EVERY == 0) for place, seed in enumerate(seeds)]
    if jobs == 1:
        yield from map(_run_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_start_worker) as pool:
        yield from pool.imap_unordered(_run_task, tasks, chunksize=CHUNK)


class Totals:
    """Adds outcomes up."""

    def __init__(self, first_seed: int) -> None:
        self.report = Report(first_seed=first_seed)
        self._started = time.monotonic()
        self._simulated_us = 0
        self._totals: dict[str, Counter[str]] = {"mechanisms": Counter(), "faults": Counter()}
        self._shown: dict[str, Counter[str]] = {"mechanisms": Counter(), "faults": Counter()}

    def add(self, outcome: Outcome, seconds: float) -> None:
        """Add one history."""
        report = self.report
        report.run_twice += report.histories % REPEAT_EVERY == 0
        report.histories += 1
        report.cpu_seconds += seconds
        report.events += outcome.events
        report.batches_checked += outcome.batches_checked
        self._simulated_us += outcome.simulated_us
        for name, found in (("mechanisms", outcome.mechanisms), ("faults", outcome.faults)):
            self._totals[name].update(found)
            self._shown[name].update(found.keys())
        if outcome.violation is not None:
            report.violations.append(f"seed {outcome.seed}: {outcome.violation}")

    def finish(self) -> Report:
        """The figures so far."""
        report, mechanisms = self.report, self._totals["mechanisms"]
        report.wall_seconds = round(time.monotonic() - self._started, 3)
        report.cpu_seconds = round(report.cpu_seconds, 3)
        report.cpu_seconds_each = round(report.cpu_seconds / max(report.histories, 1), 3)
        report.simulated_hours = round(self._simulated_us / SECOND / 3600, 3)
        report.segments_rolled = mechanisms["tails rolled"]
        report.objects_collected = mechanisms["objects collected"]
        report.retention_cuts = mechanisms["starts by retention"]
        report.restores = mechanisms["restores"]
        report.mechanisms = self._seen("mechanisms")
        report.faults_by_kind = self._seen("faults")
        return report

    def _seen(self, name: str) -> dict[str, Seen]:
        shown, totals = self._shown[name], self._totals[name]
        return {
            kind: Seen(round(count / self.report.histories, 4), totals[kind]) for kind, count in shown.most_common()
        }


def print_report(report: Report, out: TextIO) -> None:
    """The figures as a table."""
    for name, value in msgspec.structs.asdict(report).items():
        if not isinstance(value, dict | list):
            print(f"{name.replace('_', ' '):22} {value:>14,}", file=out)
    for head, table in (("mechanisms", report.mechanisms), ("faults", report.faults_by_kind)):
        print(f"\n{head:34}{'of histories':>14}{'in all':>14}", file=out)
        for kind, seen in table.items():
            print(f"{kind.replace('_', ' '):34}{seen.share:>14.1%}{seen.total:>14,}", file=out)
    for violation in report.violations[:MAX_SHOWN]:
        print(f"\nVIOLATION {violation}", file=out)
    print(f"\n{len(report.violations)} violations found in {report.histories} histories", file=out)


def write_report(report: Report, path: Path) -> None:
    """As JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def trace_history(seed: int, path: Path) -> int:
    """Run one history with its trace written to `path`; the exit code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        outcome = run_history(seed, trace=lambda line: print(line, file=file))
    print(f"seed {seed}, digest {outcome.digest}: {outcome.violation or 'no violation'}; the trace is in {path}")
    return 0 if outcome.violation is None else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=1000, help="how many histories")
    parser.add_argument("--seed", type=int, help="the first seed, or with --trace the only one; at random if missing")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more after so many")
    parser.add_argument("--trace", type=Path, help="write the trace of --seed to this file")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the figures go")
    arguments = parser.parse_args()
    if arguments.seed is None and arguments.trace is not None:
        parser.error("--trace needs --seed")
    return arguments


def main() -> int:
    """The command."""
    arguments = _arguments()
    if arguments.trace is not None:
        return trace_history(arguments.seed, arguments.trace)
    first = secrets.randbelow(2**40) if arguments.seed is None else arguments.seed
    totals, live, started = Totals(first), sys.stderr.isatty(), time.monotonic()
    outcomes = run_histories(range(first, first + arguments.count), arguments.jobs)
    for done, (outcome, seconds) in enumerate(outcomes, 1):
        totals.add(outcome, seconds)
        if outcome.violation is not None:
            print(f"seed {outcome.seed}: {outcome.violation}", file=sys.stderr, flush=True)
            if len(totals.report.violations) <= MAX_TRACED:
                trace_history(outcome.seed, arguments.report.parent / f"history-{outcome.seed}.txt")
        if live or done % 100 == 0:
            line = f"{done} of {arguments.count} histories, {len(totals.report.violations)} violations"
            print(line, file=sys.stderr, end="\r" if live else "\n", flush=True)
            write_report(totals.finish(), arguments.report)
        if time.monotonic() - started > arguments.seconds:
            break
    report = totals.finish()
    print_report(report, sys.stdout)
    write_report(report, arguments.report)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
