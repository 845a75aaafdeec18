"""How much the tests notice: `python -m tests.mutants.run [--planted] [--mutation] [--quick] [--json]`.

Planted bugs run in the simulator on a copy of the tree until a seed shows them, at most 500 seeds each (or half a
minute where directed tests are at hand); where none does, directed tests are asked, which counts separately. Mutation
testing changes the pure packages a little and asks their unit tests. Prints tables and writes build/mutants.json. Exit
code 1 if a planted bug stays unseen, if the control finds something, if the score is below 90 %, or if a survivor has
no explanation in survivors.toml.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TextIO

import msgspec

from tests.mutants.hunting import CONTROL, MAX_SEEDS, Caught, run_planted
from tests.mutants.mutating import Score, Survivor, run_mutation, targets
from tests.mutants.planted import Planted, catalogue

REPORT: Final = Path("build/mutants.json")
QUICK_SEEDS: Final = 25
REQUIRED_SCORE: Final = 0.9
_NAME: Final = 60
"""Columns for the name of a planted bug."""


class Report(msgspec.Struct):
    """The figures of one run. What was not run is None. `quick`: fewer seeds, and a tenth of the mutants."""

    quick: bool
    wall_seconds: float = 0.0
    seeds_per_bug: int | None = None
    control_found: str | None = None
    planted: int | None = None
    caught: int | None = None
    caught_by_simulation: int | None = None
    caught_by_directed_tests: int | None = None
    not_caught: list[str] | None = None
    planted_bugs: list[Caught] | None = None
    mutants: int | None = None
    mutants_caught: int | None = None
    mutants_timed_out: int | None = None
    mutants_equivalent: int | None = None
    mutation_score: float | None = None
    unexplained: int | None = None
    scores: dict[str, float] | None = None
    survivors: list[Survivor] | None = None
    stale_explanations: list[str] | None = None

    @property
    def good(self) -> bool:
        """Whether nothing calls for work."""
        planted_good = not self.not_caught and self.control_found is None
        score_good = self.mutation_score is None or self.mutation_score >= REQUIRED_SCORE
        return planted_good and score_good and not self.unexplained


def report_planted(report: Report, bugs: Sequence[Planted], jobs: int, out: TextIO) -> None:
    """Hunt all `bugs` and the control."""
    seeds = QUICK_SEEDS if report.quick else MAX_SEEDS
    print(f"planted bugs, up to {seeds} seeds each\n{'bug':{_NAME}} {'seeds':>6} {'tests':>6}  caught by", file=out)
    control, *found = _shown(run_planted([CONTROL, *bugs], jobs=jobs, seeds=seeds), out)
    report.seeds_per_bug = seeds
    report.control_found = control.found
    report.planted = len(found)
    report.caught = sum(one.caught for one in found)
    report.caught_by_simulation = sum(one.seeds is not None for one in found)
    report.caught_by_directed_tests = sum(one.directed is True for one in found)
    report.not_caught = [one.name for one in found if not one.caught]
    report.planted_bugs = found
    counts = (
        f"{report.caught_by_simulation} by the simulator, {report.caught_by_directed_tests} by directed tests alone"
    )
    print(f"\n{report.caught} of {report.planted} planted bugs caught: {counts}", file=out)
    if report.control_found is not None:
        print(f"The control, without any bug, was found guilty: {report.control_found}", file=out)


def _shown(outcomes: Iterable[Caught], out: TextIO) -> list[Caught]:
    """`tests` is a dash where the simulator made asking them needless."""
    rows = []
    for row in outcomes:
        tests = {None: "-", True: "fail", False: "pass"}[row.directed]
        rule = (row.found or "").partition(":")[0] or ("nothing" if not row.caught else "directed tests")
        unseen = f" (not simulated: {row.unseen})" if row.unseen else ""
        seeds = row.seeds or (f">{row.tried}" if row.tried else "-")
        print(f"{row.name:{_NAME}} {seeds:>6} {tests:>6}  {rule}{unseen}", file=out)
        print(f"    breaks: {row.breaks} ({row.source})", file=out, flush=True)
        rows.append(row)
    return rows


def report_mutation(report: Report, jobs: int, out: TextIO) -> None:
    """Run the mutants of all targets."""
    scores = [run_mutation(target, jobs=jobs, quick=report.quick) for target in targets()]
    _print_scores(scores, out)
    report.mutants = sum(score.mutants for score in scores)
    report.mutants_caught = sum(score.caught for score in scores)
    report.mutants_timed_out = sum(score.timed_out for score in scores)
    report.mutants_equivalent = sum(score.equivalent for score in scores)
    report.scores = {score.target: round(score.score, 4) for score in scores}
    total = report.mutants - report.mutants_equivalent
    report.mutation_score = round((report.mutants_caught + report.mutants_timed_out) / max(1, total), 4)
    report.survivors = [survivor for score in scores for survivor in score.survivors]
    report.unexplained = sum(not survivor.kind for survivor in report.survivors)
    report.stale_explanations = [place for score in scores for place in score.stale]
    print(f"\nmutation score {report.mutation_score:.1%}, {report.unexplained} survivors without explanation", file=out)


def _print_scores(scores: Sequence[Score], out: TextIO) -> None:
    for survivor in (survivor for score in scores for survivor in score.survivors):
        print(f"\n{survivor.file}:{survivor.line} {survivor.function}  [{survivor.mutation}]", file=out)
        print(f"    {survivor.code}", file=out)
        reason = f"{survivor.kind}: {survivor.why}" if survivor.kind else "NOT EXPLAINED"
        print(f"    {reason} ({survivor.tests} tests execute it)", file=out)
    for place in (place for score in scores for place in score.stale):
        print(f"\nAn explanation of what does not survive any more: {place}", file=out)
    heads = ("mutants", "caught", "timed out", "equivalent", "harmless", "survivors", "seconds")
    print(f"\n{'target':10}" + "".join(f"{head:>12}" for head in (*heads, "score")), file=out)
    for score in scores:
        cells = (score.mutants, score.caught, score.timed_out, score.equivalent, score.harmless, len(score.survivors))
        row = "".join(f"{cell:>12}" for cell in (*cells, score.seconds))
        print(f"{score.target:10}{row}{score.score:>12.1%}", file=out)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--planted", action="store_true", help="only the planted bugs")
    parser.add_argument("--mutation", action="store_true", help="only mutation testing")
    parser.add_argument("--quick", action="store_true", help="fewer seeds, and a tenth of the mutants")
    parser.add_argument("--json", action="store_true", help="print the report instead of tables")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument("--only", action="append", default=[], help="plant this bug alone; may be repeated")
    arguments = parser.parse_args()
    everything = not arguments.planted and not arguments.mutation
    out = sys.stderr if arguments.json else sys.stdout
    bugs = [bug for bug in catalogue() if not arguments.only or bug.name in arguments.only]
    report = Report(quick=arguments.quick)
    started = time.monotonic()
    if everything or arguments.planted:
        report_planted(report, bugs, arguments.jobs, out)
    if everything or arguments.mutation:
        report_mutation(report, arguments.jobs, out)
    report.wall_seconds = round(time.monotonic() - started, 1)
    text = msgspec.json.format(msgspec.json.encode(report)) + b"\n"
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_bytes(text)
    if arguments.json:
        print(text.decode(), end="")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
