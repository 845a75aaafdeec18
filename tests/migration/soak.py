"""Many migrations from ZooKeeper, each with other leaders killed at other moments (`run_once`).

`python -m tests.migration.soak --runs 200` prints a line for each, stops at the first violation, whose evidence it
keeps in build/migration-failures/SEED, and writes build/migration.json. The exit code is 1 after a violation.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

import msgspec

from tests.migration.judge import GapError, OverlapError
from tests.migration.plan import Plan, plan_of
from tests.migration.run_once import Result, Run
from tests.support.zookeeper import Ensemble, why_unavailable

REPORT: Final = Path("build/migration.json")
FAILURES: Final = Path("build/migration-failures")


class Report(msgspec.Struct):
    """Totals. `kill_points`: how often which leader was struck when; `gaps_after_rollback` of `exact_moments` seen."""

    runs: int = 0
    kill_points: dict[str, int] = {}
    destinations: dict[str, int] = {}
    blocks_old_brokers: int = 0
    blocks_controllers: int = 0
    unknown_blocks_old_brokers: int = 0
    controller_kills: int = 0
    zookeeper_kills: int = 0
    exact_moments: int = 0
    overlaps: int = 0
    gaps_after_rollback: int = 0
    violations: int = 0
    failed_seeds: list[int] = []
    wall_seconds: float = 0.0

    def add(self, plan: Plan, result: Result) -> None:
        """A run without a violation."""
        self._count(plan)
        end = f"{plan.destination}: {result.phase}"
        self.destinations[end] = self.destinations.get(end, 0) + 1
        self.blocks_old_brokers += result.old_blocks
        self.blocks_controllers += result.controller_blocks
        self.unknown_blocks_old_brokers += result.unknown
        self.exact_moments += result.exact_moments

    def _count(self, plan: Plan) -> None:
        self.runs += 1
        for name in plan.names():
            self.kill_points[name] = self.kill_points.get(name, 0) + 1
        self.controller_kills += sum(fault.target == "controller" for fault in plan.faults)
        self.zookeeper_kills += sum(fault.target == "zookeeper" for fault in plan.faults)

    def fail(self, plan: Plan, error: BaseException) -> None:
        """A run with a violation."""
        self._count(plan)
        self.violations += 1
        self.failed_seeds.append(plan.seed)
        self.overlaps += isinstance(error, OverlapError)
        self.gaps_after_rollback += isinstance(error, GapError)


class Ensembles:
    """The ZooKeepers of one worker, started when first needed; every run has a chroot of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: dict[int, Ensemble] = {}

    def get(self, plan: Plan) -> Ensemble:
        """The ensemble that the plan wants, whole and serving."""
        found = self._started.get(plan.servers)
        if found is None:
            found = Ensemble(self._directory / f"zookeeper-{plan.servers}", plan.servers)
            self._started[plan.servers] = found
        found.start()
        return found

    def close(self) -> None:
        """End all servers."""
        for ensemble in self._started.values():
            ensemble.close()


def run_seed(seed: int, ensembles: Ensembles, directory: Path, failures: Path = FAILURES) -> Result:
    """One run, whose files are kept under `failures` only after a violation. Raises AssertionError."""
    plan = plan_of(seed)
    home = directory / f"run-{seed}"
    run = Run(plan, ensembles.get(plan), home)
    try:
        return run.run()
    except BaseException as error:
        kept = failures / str(seed)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(home, kept)
        (kept / "plan.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
        (kept / "evidence.json").write_bytes(msgspec.json.encode(run.evidence))
        (kept / "error.txt").write_text("".join(traceback.format_exception(error)))
        raise
    finally:
        shutil.rmtree(home, ignore_errors=True)


def soak(seeds: list[int], jobs: int, say: Callable[[str], None] = print) -> Report:
    """All seeds in order, `jobs` at a time; none is begun after a violation."""
    report, began = Report(), time.monotonic()
    waiting = list(reversed(seeds))
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pidkeeper-migration-")))
        idle = [Ensembles(directory / f"worker-{number}") for number in range(jobs)]
        for ensembles in idle:
            stack.callback(ensembles.close)
        executor = stack.enter_context(ThreadPoolExecutor(jobs))
        running: dict[Future[Result], tuple[Plan, Ensembles]] = {}
        while running or (waiting and not report.violations):
            while idle and waiting and not report.violations:
                seed, ensembles = waiting.pop(), idle.pop()
                future = executor.submit(run_seed, seed, ensembles, directory)
                running[future] = plan_of(seed), ensembles
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                plan, ensembles = running.pop(future)
                idle.append(ensembles)
                say(_note(report, plan, future))
    report.wall_seconds = round(time.monotonic() - began, 1)
    return report


def _note(report: Report, plan: Plan, future: Future[Result]) -> str:
    error = future.exception()
    if error is not None:
        report.fail(plan, error)
        return f"{plan.seed:>6} VIOLATION ({plan.describe()}): {error}\n       evidence: {FAILURES / str(plan.seed)}"
    result = future.result()
    report.add(plan, result)
    return (
        f"{plan.seed:>6} ok {result.seconds:5.1f} s  old {result.old_blocks:>5}  controllers "
        f"{result.controller_blocks:>5}  unknown {result.unknown}  {result.phase}  ({plan.describe()})"
    )


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.migration.soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (1), each with ZooKeepers of its own")
    parser.add_argument("--replay", type=int, metavar="SEED", help="this seed alone; nothing is written on success")
    options = parser.parse_args(arguments)
    if (why := why_unavailable()) is not None:
        print(why, file=sys.stderr)
        return 2
    # So that what was started is ended, however the campaign ends.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # kazoo warns of every connection that this campaign breaks.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    if options.replay is not None:
        return 1 if soak([options.replay], 1).violations else 0
    report = soak(list(range(options.seed, options.seed + options.runs)), max(1, options.jobs))
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    print(msgspec.json.format(msgspec.json.encode(report)).decode())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
