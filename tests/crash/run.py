"""Power cuts: every state that the fault model allows at every write, and real ones by the kernel. And damage of what
was synced, in every place.

`python -m tests.crash.run` prints a table and writes build/crash.json; the exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from tests.crash.cluster_cuts import ClusterResult, cut_cluster
from tests.crash.enumerate_damage import (
    DISKS,
    DamageResult,
    Verdict,
    no_checksums,
    run_damage,
)
from tests.crash.enumerate_damage import OPERATIONS as DAMAGE_OPERATIONS
from tests.crash.enumerate_states import OPERATIONS, LyingDisk, Result, run_history
from tests.crash.history import KINDS
from tests.crash.loop_disk import fast_directory, why_not
from tests.crash.power_cuts import PowerResult, cut_power
from tests.crash.store_states import KIND as STORE
from tests.crash.store_states import run_store

REPORT: Final = Path("build/crash.json")
MAX_SHOWN: Final = 10
CONTROL_OPERATIONS: Final = 20
CONTROL_CUTS: Final = 50
_CONTROLS: Final = {
    "in memory": "a disk whose fdatasync does nothing",
    "kernel": "a disk whose fdatasync does nothing",
    "no checksums": "a member that compares no checksums",
}


class Plan(msgspec.Struct, frozen=True):
    """How much to do: histories of each kind, real cuts, and at most how many seconds for each of the four parts.

    `damaged_disks`: of each history, with `damage_operations` in it.
    """

    histories: int
    operations: int
    damage_operations: int
    damaged_disks: int
    cuts: int
    cluster_cuts: int
    seconds: float
    jobs: int


class KindFigures(msgspec.Struct):
    """The histories of one kind."""

    histories: int = 0
    operations: int = 0
    boundaries: int = 0
    states: int = 0
    recoveries: int = 0


class Report(msgspec.Struct):
    """What is printed and written.

    `controls`: whether what promises nothing was found out. `damage`: by "fault area", how many faults ended in which
    verdict (see enumerate_damage). `undetectable_damage`: the first of those faults of every history, so that each can
    be looked at; they need the quorum.
    """

    states_enumerated: int = 0
    states_recovered: int = 0
    states_seconds: float = 0.0
    states_by_kind: dict[str, KindFigures] = {}
    damage_states: int = 0
    damage_seconds: float = 0.0
    damage: dict[str, dict[str, int]] = {}
    undetectable_damage: list[str] = []
    power_cuts: int = 0
    power_cut_seconds: float = 0.0
    power_cut_allocations: int = 0
    whole_cluster_power_cuts: int = 0
    whole_cluster_seconds: float = 0.0
    whole_cluster_allocations: int = 0
    controls: dict[str, bool] = {}
    violations: list[str] = []
    skipped: list[str] = []

    def add_history(self, result: Result) -> None:
        """Count one history."""
        figures = self.states_by_kind.setdefault(result.kind, KindFigures())
        figures.histories += 1
        figures.operations += result.operations
        figures.boundaries += result.boundaries
        figures.states += result.states
        figures.recoveries += result.recoveries
        self.states_enumerated += result.states
        self.states_recovered += result.recoveries
        self.violations += result.violations
        if result.unfinished:
            self.skipped.append(f"the rest of history {result.kind}:{result.seed}: the time was up")

    def add_damage(self, result: DamageResult) -> None:
        """Count the damage of one history."""
        self.damage_states += result.states
        for name, verdicts in result.counts.items():
            row = self.damage.setdefault(name, {})
            for verdict, count in verdicts.items():
                row[verdict] = row.get(verdict, 0) + count
        self.undetectable_damage += result.undetectable
        self.violations += result.violations
        if result.unfinished:
            self.skipped.append(f"the rest of the damage of {result.kind}:{result.seed}: the time was up")

    def add_control(self, name: str, caught: list[str]) -> None:
        """A control that nothing was found in is a violation itself: then the checks see nothing."""
        self.controls[name] = bool(caught)
        if not caught:
            self.violations.append(f"control {name}: {_CONTROLS[name]} was not found out")


def run(plan: Plan, progress: Callable[[str], None] = lambda line: None) -> Report:
    """Do it all."""
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="pidkeeper-crash-", dir=fast_directory()) as name,
        ProcessPoolExecutor(plan.jobs, multiprocessing.get_context("spawn"), initializer=exit_on_sigterm) as pool,
    ):
        directory = Path(name)
        try:
            _enumerate(pool, plan, report, progress)
            _damage(pool, plan, report, progress)
            if reason := why_not(directory):
                report.skipped += [f"power cuts: {reason}", f"power cuts of a whole cluster: {reason}"]
            else:
                _cut_power(pool, plan, directory, report, progress)
                _cut_clusters(pool, plan, directory, report, progress)
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()  # what it mounted has to go before the directory does
            pool.shutdown(cancel_futures=True)
            raise
    return report


def _enumerate(pool: ProcessPoolExecutor, plan: Plan, report: Report, progress: Callable[[str], None]) -> None:
    started = time.monotonic()
    deadline = started + plan.seconds  # the monotonic clock is the machine's, so the workers' too
    report.add_control("in memory", run_history("append", 1, CONTROL_OPERATIONS, disk=LyingDisk()).violations)
    work = [
        pool.submit(run_history, kind.name, seed, plan.operations, deadline=deadline)
        for seed in range(1, plan.histories + 1)
        for kind in KINDS
    ]
    work += [pool.submit(run_store, seed, plan.operations, deadline=deadline) for seed in range(1, plan.histories + 1)]
    for done, result in enumerate(_results(work), 1):
        report.add_history(result)
        progress(f"{done} of {len(work)} histories, {report.states_enumerated:,} states")
    report.states_seconds = time.monotonic() - started


def _damage(pool: ProcessPoolExecutor, plan: Plan, report: Report, progress: Callable[[str], None]) -> None:
    started = time.monotonic()
    with no_checksums():
        report.add_control("no checksums", run_damage("append", 1, CONTROL_OPERATIONS, 1).violations)
    work = [
        pool.submit(
            run_damage, kind.name, seed, plan.damage_operations, plan.damaged_disks, deadline=started + plan.seconds
        )
        for seed in range(1, plan.histories + 1)
        for kind in KINDS
    ]
    for done, result in enumerate(_results(work), 1):
        report.add_damage(result)
        progress(f"{done} of {len(work)} damaged histories, {report.damage_states:,} faults")
    report.damage_seconds = time.monotonic() - started


def _cut_power(
    pool: ProcessPoolExecutor, plan: Plan, directory: Path, report: Report, progress: Callable[[str], None]
) -> None:
    started = time.monotonic()
    deadline = started + plan.seconds
    work: list[Future[PowerResult]] = []
    for job in range(plan.jobs):
        share = plan.cuts // plan.jobs + (job < plan.cuts % plan.jobs)
        work.append(pool.submit(cut_power, directory, f"single-{job}", share, job * plan.cuts + 1, deadline=deadline))
    for result in _results(work):
        report.power_cuts += result.cuts
        report.power_cut_allocations += result.acknowledged
        report.violations += result.violations
        progress(f"{report.power_cuts:,} power cuts")
    control = pool.submit(cut_power, directory, "control", CONTROL_CUTS, 1, syncs=False)
    report.add_control("kernel", control.result().violations)
    report.power_cut_seconds = time.monotonic() - started


def _cut_clusters(
    pool: ProcessPoolExecutor, plan: Plan, directory: Path, report: Report, progress: Callable[[str], None]
) -> None:
    work: Future[ClusterResult] = pool.submit(
        cut_cluster, directory, plan.cluster_cuts, 1, deadline=time.monotonic() + plan.seconds
    )
    result = work.result()
    report.whole_cluster_power_cuts = result.cuts
    report.whole_cluster_allocations = result.acknowledged
    report.whole_cluster_seconds = result.seconds
    report.violations += result.violations
    progress(f"{result.cuts} power cuts of a whole cluster")


def _results(work: list[Future[Any]]) -> Iterator[Any]:
    for future in as_completed(work):
        yield future.result()


def exit_on_sigterm() -> None:
    """Let a terminated process give back what it mounted."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def print_report(report: Report, out: TextIO) -> None:
    """The figures as a table."""
    titles = ("histories", "operations", "boundaries", "states", "recoveries")
    print(f"{'history':14}" + "".join(f"{title:>13}" for title in titles), file=out)
    for kind, figures in sorted(report.states_by_kind.items()):
        print(f"{kind:14}" + "".join(f"{getattr(figures, title):>13,}" for title in titles), file=out)
    print(f"\n{'damage':24}" + "".join(f"{verdict.value:>13}" for verdict in Verdict), file=out)
    for name, verdicts in sorted(report.damage.items()):
        print(f"{name:24}" + "".join(f"{verdicts.get(verdict.value, 0):>13,}" for verdict in Verdict), file=out)
    print(file=out)
    rows = (
        ("states enumerated", report.states_enumerated, report.states_seconds),
        ("faults in synced data", report.damage_states, report.damage_seconds),
        ("power cuts", report.power_cuts, report.power_cut_seconds),
        ("whole-cluster power cuts", report.whole_cluster_power_cuts, report.whole_cluster_seconds),
    )
    for name, count, seconds in rows:
        print(f"{name:26}{count:>12,}   in {seconds:,.0f} s", file=out)
    for name, caught in report.controls.items():
        print(f"{'control ' + name:26}{'caught' if caught else 'MISSED':>12}", file=out)
    for fault in report.undetectable_damage[:MAX_SHOWN]:
        print(f"UNDETECTABLE, needs the quorum: {fault}", file=out)
    for reason in report.skipped:
        print(f"SKIPPED {reason}", file=out)
    for violation in report.violations[:MAX_SHOWN]:
        print(f"\nVIOLATION {violation}", file=out)
    print(f"\n{len(report.violations)} violations found", file=out)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a small part of everything")
    parser.add_argument("--json", action="store_true", help="print the report instead of the table")
    parser.add_argument("--seconds", type=float, default=1800.0, help="at most for each of the four parts")
    parser.add_argument("--histories", type=int, default=2, help="of each kind")
    parser.add_argument("--cuts", type=int, default=10_000, help="power cuts of a single member")
    parser.add_argument("--cluster-cuts", type=int, default=100, help="power cuts of a whole cluster")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--only", metavar="KIND:SEED", help="one history again")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the figures go")
    arguments = parser.parse_args()
    exit_on_sigterm()
    if arguments.only is not None:
        kind, _, seed = arguments.only.partition(":")
        kinds = (*(known.name for known in KINDS), STORE)
        if kind not in kinds or not seed.isdecimal():
            parser.error(f"--only takes one of {', '.join(kinds)}, a colon and a number")
        report = Report()
        if kind == STORE:
            report.add_history(run_store(int(seed), OPERATIONS))
        else:
            report.add_history(run_history(kind, int(seed)))
            report.add_damage(run_damage(kind, int(seed)))
        print_report(report, sys.stdout)
        return 1 if report.violations else 0
    plan = Plan(
        arguments.histories,
        OPERATIONS,
        DAMAGE_OPERATIONS,
        DISKS,
        arguments.cuts,
        arguments.cluster_cuts,
        arguments.seconds,
        arguments.jobs,
    )
    if arguments.quick:
        plan = Plan(1, 30, 16, 1, 200, 5, min(60.0, arguments.seconds), arguments.jobs)
    report = run(plan, lambda line: print(line, file=sys.stderr, flush=True))
    encoded = msgspec.json.format(msgspec.json.encode(report)) + b"\n"
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_bytes(encoded)
    if arguments.json:
        sys.stdout.write(encoded.decode())
    else:
        print_report(report, sys.stdout)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
