"""Feed malformed input to every decoder: `python -m tests.fuzz.run --inputs 6000000`, `... --target wal --seed 7`.

Prints a table and writes build/fuzz.json. Every share of the inputs runs in a process of its own with 512 MiB of
address space. Inputs that found something go to build/fuzz/. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import secrets
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final, TextIO

import msgspec

from tests.fuzz.campaign import TARGETS, Outcome, limit_memory, run

REPORT: Final = Path("build/fuzz.json")
FOUND: Final = Path("build/fuzz")

WEIGHTS: Final = {
    "peer_frames": 22.0,
    "handshake": 4.0,
    "raft_core": 5.0,
    "wal": 7.0,
    "dump": 3.0,
    "snapshot": 16.0,
    "archive": 6.5,
    "owners": 1.5,
    "records": 19.0,
    "znode": 2.0,
    "kafka": 7.0,
    "kafka_data": 2.0,
    "kafka_batches": 2.0,
    "segment_index": 1.0,
    "controller_kafka": 1.0,
    "controller_http": 0.5,
    "agent_http": 0.5,
}
"""Shares of the inputs, in percent: what is fast gets more of them, so that all finish in a few minutes."""

SHARES: Final = 4
"""Processes for each target, one after another; each draws inputs of its own."""

SHARE_SECONDS: Final = 300.0
"""Longest wait for the next share to end, which takes half a minute: a process that died never answers."""

MAX_REASONS: Final = 40
"""Reasons in the report, the most frequent ones; the table counts all."""


class Report(msgspec.Struct):
    """The figures of one run; `malformed` counts the inputs that were refused."""

    seed: int
    jobs: int
    inputs: int
    malformed: int
    wall_seconds: float
    targets: list[Outcome]
    distinct_reasons: dict[str, int]
    violations: list[str]


def run_all(names: list[str], inputs: int, seed: int, jobs: int, found: Path | None = FOUND) -> Report:
    """Run the named targets with `inputs` inputs among them."""
    started = time.monotonic()
    whole = sum(WEIGHTS[name] for name in names)
    shares = SHARES if inputs >= 1_000_000 else 1
    tasks = [
        (name, f"{seed}:{share}", max(1, int(inputs * WEIGHTS[name] / whole / shares)), found)
        for share in range(shares)
        for name in names
    ]
    tasks.sort(key=lambda task: "http" not in task[0])
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=limit_memory, maxtasksperchild=1) as pool:
        outcomes = []
        arriving = pool.imap_unordered(_run_task, tasks, chunksize=1)
        for _ in tasks:
            outcome = arriving.next(SHARE_SECONDS)
            outcomes.append(outcome)
            line = f"{len(outcomes)} of {len(tasks)} shares, {outcome.target}: {len(outcome.violations)} violations"
            print(f"{line}, {outcome.inputs} inputs in {outcome.seconds:.1f} s", file=sys.stderr, flush=True)
    merged = [_merge([one for one in outcomes if one.target == name]) for name in names]
    distinct = {one.target: len(one.reasons) for one in merged}
    for one in merged:
        one.reasons = dict(Counter(one.reasons).most_common(MAX_REASONS))
    return Report(
        seed=seed,
        jobs=jobs,
        inputs=sum(one.inputs for one in merged),
        malformed=sum(one.refused for one in merged),
        wall_seconds=round(time.monotonic() - started, 1),
        targets=merged,
        distinct_reasons=distinct,
        violations=[f"{one.target}: {violation}" for one in merged for violation in one.violations],
    )


def _run_task(task: tuple[str, str, int, Path | None]) -> Outcome:
    return run(*task)


def _merge(outcomes: list[Outcome]) -> Outcome:
    total, reasons = Outcome(outcomes[0].target), Counter[str]()
    for one in outcomes:
        total.inputs += one.inputs
        total.refused += one.refused
        total.accepted += one.accepted
        total.traced += one.traced
        total.seconds = round(total.seconds + one.seconds, 1)
        total.largest_share_of_steps = max(total.largest_share_of_steps, one.largest_share_of_steps)
        total.rss_growth_kib = max(total.rss_growth_kib, one.rss_growth_kib)
        total.violations = total.violations + one.violations
        reasons.update(one.reasons)
    total.reasons = dict(reasons)
    return total


def print_report(report: Report, out: TextIO) -> None:
    """The figures as a table."""
    columns = ("inputs", "refused", "accepted", "reasons", "steps %", "RSS KiB", "seconds", "violations")
    print(f"{'target':16}" + "".join(f"{column:>12}" for column in columns), file=out)
    for one in report.targets:
        cells = (
            f"{one.inputs:,}",
            f"{one.refused:,}",
            f"{one.accepted:,}",
            f"{report.distinct_reasons[one.target]:,}",
            f"{one.largest_share_of_steps}",
            f"{one.rss_growth_kib:,}",
            f"{one.seconds}",
            f"{len(one.violations)}",
        )
        print(f"{one.target:16}" + "".join(f"{cell:>12}" for cell in cells), file=out)
    for violation in report.violations:
        print(f"\nVIOLATION {violation}", file=out)
    print(
        f"\nseed {report.seed}: {report.inputs:,} inputs, {report.malformed:,} refused as malformed, "
        f"{len(report.violations)} violations in {report.wall_seconds} s on {report.jobs} processes",
        file=out,
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--inputs", type=int, default=6_500_000, help="how many, over all targets")
    parser.add_argument("--target", choices=tuple(TARGETS), action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, help="at random if missing")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--report", type=Path, default=REPORT, help="where the figures go")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**40) if arguments.seed is None else arguments.seed
    report = run_all(arguments.target or list(TARGETS), arguments.inputs, seed, arguments.jobs)
    print_report(report, sys.stdout)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
