"""Run many seeds: `python -m tests.simulation.run --seeds 2000 --jobs 2`; or one again: `... --seed 17 --trace FILE`,
or `... --seed 17 --step` to go through it on a terminal.

Prints a table of figures and writes them to build/simulation.json. Every twentieth seed runs twice and must take the
same course. Exit code 1 if any seed found a violation or took another course the second time; the traces of the first
such seeds are written beside the figures.
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
from typing import Any, Final, TextIO

import msgspec

from tests.simulation.cluster import Result, simulate
from tests.simulation.kill_points import POINTS
from tests.simulation.stepping import Quit, Stepper
from tests.simulation.world import SECOND

REPORT: Final = Path("build/simulation.json")
PINNED: Final = Path(__file__).with_name("seeds.txt")
REPEAT_EVERY: Final = 20
"""A twentieth of the seeds runs twice: FoundationDB's way to find out that a run is not determined by its seed."""

MAX_SHOWN: Final = 20
"""Violations that are printed in full."""

MAX_TRACED: Final = 5
"""Violations whose seeds run again for their trace, each some megabytes."""


class Report(msgspec.Struct):
    """The figures of one run, added up over its seeds."""

    fresh_seeds: int = 0
    first_seed: int = 0
    seeds_run_twice: int = 0
    simulated_hours: float = 0.0
    wall_seconds: float = 0.0
    ratio: float = 0.0
    events: int = 0
    elections: int = 0
    snapshots_installed: int = 0
    entries_committed: int = 0
    blocks_checked: int = 0
    ids_checked: int = 0
    transactional_answers_checked: int = 0
    batches_checked: int = 0
    old_broker_blocks_checked: int = 0
    recovery_p50_ms: float = 0.0
    recovery_p99_ms: float = 0.0
    recovery_max_ms: float = 0.0
    faults_total: int = 0
    faults_by_kind: dict[str, int] = {}
    faults_by_phase: dict[str, int] = {}
    faults_by_kind_and_phase: dict[str, dict[str, int]] = {}
    leaders_lost_by_step: dict[str, int] = {}
    violations: list[str] = []


CHUNK_SEEDS: Final = 4
"""Seeds that a worker is given at once."""


def pinned_seeds() -> list[int]:
    """The seeds that once found something, from seeds.txt: one at the head of each line, then why."""
    lines = PINNED.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def run_seed(seed: int, repeat: bool, bug: str | None = None) -> Result:
    """One seed; run again and compared if `repeat`."""
    result = simulate(seed, bug=bug)
    if repeat and result.violation is None:
        again = simulate(seed, bug=bug)
        if again.digest != result.digest:
            result.violation = f"not-deterministic: digests {result.digest} and {again.digest}"
    return result


def _start_worker() -> None:
    """What was imported stays: each seed collects garbage, and need not look at that again."""
    gc.collect()
    gc.freeze()


def _run_task(task: tuple[int, bool, str | None]) -> Result:
    return run_seed(*task)


def run_seeds(seeds: Iterable[int], jobs: int, bug: str | None = None) -> Iterator[tuple[Result, bool]]:
    """The results of all seeds, and whether each ran twice, as they come."""
    tasks = [(seed, place % REPEAT_EVERY == 0, bug) for place, seed in enumerate(seeds)]
    repeated = {seed: repeat for seed, repeat, _ in tasks}
    if jobs == 1:
        results: Iterator[Result] = map(_run_task, tasks)
        yield from ((result, repeated[result.seed]) for result in results)
        return
    pool_of = multiprocessing.get_context("spawn").Pool
    with pool_of(jobs, initializer=_start_worker) as pool:
        for result in pool.imap_unordered(_run_task, tasks, chunksize=CHUNK_SEEDS):
            yield result, repeated[result.seed]


class Totals:
    """Adds results up."""

    def __init__(self, first_seed: int) -> None:
        self.report = Report(first_seed=first_seed)
        self._faults: Counter[tuple[str, str]] = Counter()
        self._lost: Counter[str] = Counter()
        self._recoveries: list[int] = []
        self._started = time.monotonic()
        self._simulated_us = 0

    def add(self, result: Result, repeated: bool) -> None:
        """Add one seed."""
        report = self.report
        report.fresh_seeds += 1
        report.seeds_run_twice += repeated
        self._simulated_us += result.simulated_us * (2 if repeated else 1)
        report.events += result.events
        report.elections += result.elections
        report.snapshots_installed += result.snapshots_installed
        report.entries_committed += result.entries
        report.blocks_checked += result.blocks_checked
        report.ids_checked += result.ids_checked
        report.transactional_answers_checked += result.transactional_answers_checked
        report.batches_checked += result.batches_checked
        report.old_broker_blocks_checked += result.old_blocks_checked
        self._faults.update(result.faults)
        self._lost.update(result.leaders_lost)
        if result.violation is None:
            self._recoveries.append(result.recovered_after_us)
        else:
            report.violations.append(f"seed {result.seed}: {result.violation}")

    def finish(self) -> Report:
        """The figures so far."""
        report = self.report
        report.wall_seconds = round(time.monotonic() - self._started, 3)
        seconds = self._simulated_us / SECOND
        report.simulated_hours = round(seconds / 3600, 3)
        report.ratio = round(seconds / max(report.wall_seconds, 0.001), 1)
        recoveries = sorted(self._recoveries) or [0]
        report.recovery_p50_ms = recoveries[len(recoveries) // 2] / 1000
        report.recovery_p99_ms = recoveries[len(recoveries) * 99 // 100] / 1000
        report.recovery_max_ms = recoveries[-1] / 1000
        kinds: Counter[str] = Counter()
        phases: Counter[str] = Counter()
        table: dict[str, dict[str, int]] = {}
        for (kind, phase), count in sorted(self._faults.items()):
            kinds[kind] += count
            phases[phase] += count
            table.setdefault(kind, {})[phase] = count
        report.faults_total = sum(kinds.values())
        report.faults_by_kind = dict(kinds.most_common())
        report.faults_by_phase = dict(phases.most_common())
        report.faults_by_kind_and_phase = table
        report.leaders_lost_by_step = {point: self._lost[point] for point in POINTS}
        return report


def print_report(report: Report, out: TextIO) -> None:
    """The figures as a table."""
    shown: dict[str, Any] = {
        name: value for name, value in msgspec.structs.asdict(report).items() if not isinstance(value, dict | list)
    }
    for name, value in shown.items():
        print(f"{name.replace('_', ' '):22} {value:>14,}", file=out)
    phases = list(report.faults_by_phase)
    print(f"\n{'faults by phase':28}" + "".join(f"{phase:>14}" for phase in ["all", *phases]), file=out)
    for kind, count in report.faults_by_kind.items():
        cells = [report.faults_by_kind_and_phase[kind].get(phase, 0) for phase in phases]
        print(f"{kind:28}" + "".join(f"{cell:>14,}" for cell in [count, *cells]), file=out)
    print("\nleaders lost behind", file=out)
    for point, count in report.leaders_lost_by_step.items():
        print(f"{point:32}{count:>10,}", file=out)
    for violation in report.violations[:MAX_SHOWN]:
        print(f"\nVIOLATION {violation}", file=out)
    print(f"\n{len(report.violations)} violations found in {report.fresh_seeds} seeds", file=out)


def trace_seed(seed: int, path: Path, bug: str | None) -> int:
    """Run one seed with its trace written to `path`; the exit code."""
    with path.open("w", encoding="utf-8") as file:
        result = simulate(seed, trace=lambda line: print(line, file=file), bug=bug)
    print(f"seed {seed}, digest {result.digest}: {result.violation or 'no violation'}; the trace is in {path}")
    return 0 if result.violation is None else 1


def step_seed(seed: int, bug: str | None, answers: TextIO, out: TextIO) -> int:
    """Run one seed, stopping after each line of its trace; the exit code."""
    try:
        result = simulate(seed, trace=Stepper(answers, out), bug=bug)
    except Quit:
        return 0
    print(f"seed {seed}, digest {result.digest}: {result.violation or 'no violation'}", file=out)
    return 0 if result.violation is None else 1


def trace_violation(seed: int, folder: Path, bug: str | None) -> None:
    """Write the trace of a seed that found something, and say how to go through it."""
    folder.mkdir(parents=True, exist_ok=True)
    trace_seed(seed, folder / f"simulation-seed-{seed}.txt", bug)
    planted = f" --bug {bug}" if bug else ""
    print(f"replay it with: python -m tests.simulation.run --seed {seed} --step{planted}")


def arguments_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, checked against each other."""
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--seed", type=int, help="the first seed, or with --trace the only one; at random if missing")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--trace", type=Path, help="write the trace of --seed to this file")
    parser.add_argument("--bug", choices=("no-sync", "ack-before-write", "answer-at-propose"), help="plant a bug")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the figures go")
    parser.add_argument("--step", action="store_true", help="go through --seed on this terminal, event by event")
    arguments = parser.parse_args()
    if arguments.seed is None and (arguments.trace is not None or arguments.step):
        parser.error("--trace and --step need --seed")
    if arguments.step and not sys.stdin.isatty():
        parser.error("--step asks after each event how to go on, so it needs a terminal; --trace FILE does not")
    return arguments


def main() -> int:
    """The command."""
    arguments = arguments_of(argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None))
    if arguments.step:
        return step_seed(arguments.seed, arguments.bug, sys.stdin, sys.stdout)
    if arguments.trace is not None:
        return trace_seed(arguments.seed, arguments.trace, arguments.bug)
    first = secrets.randbelow(2**40) if arguments.seed is None else arguments.seed
    totals = Totals(first)
    live = sys.stderr.isatty()
    for done, (result, repeated) in enumerate(
        run_seeds(range(first, first + arguments.seeds), arguments.jobs, arguments.bug), 1
    ):
        totals.add(result, repeated)
        if result.violation is not None and len(totals.report.violations) <= MAX_TRACED:
            trace_violation(result.seed, arguments.report.parent, arguments.bug)
        if live or done % 100 == 0:
            line = f"{done} of {arguments.seeds} seeds, {len(totals.report.violations)} violations"
            print(line, file=sys.stderr, end="\r" if live else "\n", flush=True)
    report = totals.finish()
    print_report(report, sys.stdout)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
