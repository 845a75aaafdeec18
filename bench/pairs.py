"""`python -m bench.pairs BEFORE`: is this tree as fast as another one? Both are measured in turn, pair by pair.

BEFORE is a checkout whose `make setup` was run. Whatever slows the machine down slows both sides of a pair, so the
ratio of a pair says more than either figure. Of the ratios the median counts, with an interval of order statistics,
which assumes nothing of how they are distributed.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from bench.report import Report, Row, figure, median
from pidkeeper.cli.local_cluster import import_root

SECTIONS: Final = ("allocate", "claims", "failover")
CONFIDENCE: Final = 0.95
LEAST_PAIRS: Final = 6
"""With fewer not even the interval from the lowest to the highest ratio has the confidence."""

WORSE: Final = 0.97
WORSE_TAIL: Final = 0.9
"""A figure is worse where its whole interval lies below this; tails and failovers vary more from run to run."""

RUN_SECONDS: Final = 1800
_TAIL: Final = re.compile(r"p99 ([0-9.]+) ms")


class Figure(msgspec.Struct, frozen=True):
    """One figure of one run. `rate`: more of it is better; else it is a time or a cost."""

    value: float
    unit: str
    rate: bool
    tail: bool


class Comparison(msgspec.Struct, frozen=True):
    """One figure of all pairs. `ratio` is above 1 where this tree is better; `low` and `high` are its interval."""

    name: str
    unit: str
    before: float
    after: float
    ratio: float
    low: float
    high: float
    worse: bool


def figures(report: Report) -> dict[str, Figure]:
    """By name: what the rows measured, and the 99th percentile where a remark tells it."""
    found = {}
    for row in report.rows:
        rate = row.unit.endswith("/s")
        found[row.name] = Figure(row.measured, row.unit, rate, tail=row.section == "failover")
        if (tail := _tail(row)) is not None:
            found[f"{row.name}: p99"] = Figure(tail, "ms", rate=False, tail=True)
    return found


def _tail(row: Row) -> float | None:
    match = _TAIL.search(row.remark)
    return None if match is None else float(match[1])


def interval(ratios: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The narrowest interval of order statistics that holds the true median with `confidence`.

    Each ratio lies below the true median with probability 1/2, so how many do is binomial. Raises ValueError if there
    are too few ratios.
    """
    ordered, count = sorted(ratios), len(ratios)
    outside = 0.0
    for cut in range(count // 2 + 1):
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 1 - confidence:
            break
    if not cut:
        raise ValueError(f"{count} pairs are too few for a confidence of {confidence}")
    return ordered[cut - 1], ordered[count - cut]


def compare(before: Sequence[Mapping[str, Figure]], after: Sequence[Mapping[str, Figure]]) -> list[Comparison]:
    """All figures but those `added`, in the order of the first run. `before` and `after` are as long, pair by pair.

    Raises ValueError if there are none, or if a run lacks one that another has: what was not compared is not good.
    """
    names, new = list(before[0]), added(before, after)
    lacking = {name for one in (*before, *after) for name in set(names) ^ (set(one) - new)}
    if lacking or not names:
        raise ValueError(f"not every run has the same figures: {sorted(lacking) or 'there are none'}")
    return [_compared(name, [one[name] for one in before], [one[name] for one in after]) for name in names]


def added(before: Sequence[Mapping[str, Figure]], after: Sequence[Mapping[str, Figure]]) -> set[str]:
    """The figures that every run of this tree has and no run of the other: its benchmark has grown since."""
    return set(after[0]).intersection(*after) - set().union(*before)


def _compared(name: str, before: Sequence[Figure], after: Sequence[Figure]) -> Comparison:
    kind = before[0]
    ratios = [
        new.value / old.value if kind.rate else old.value / new.value for old, new in zip(before, after, strict=True)
    ]
    low, high = interval(ratios)
    return Comparison(
        name=name,
        unit=kind.unit,
        before=median([one.value for one in before]),
        after=median([one.value for one in after]),
        ratio=median(ratios),
        low=low,
        high=high,
        worse=high < (WORSE_TAIL if kind.tail else WORSE),
    )


def measure(tree: Path, sections: Sequence[str], quick: bool) -> Report:
    """One run of the benchmark of `tree`. Raises ClickException if it ends with a broken promise or not at all."""
    command = [str(tree / ".venv" / "bin" / "python"), "-m", "bench.run", "--json"]
    command += [argument for section in sections for argument in ("--only", section)]
    command += ["--quick"] if quick else []
    try:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except FileNotFoundError as error:
        raise click.ClickException(f"{tree} has no {error.filename}: run `make setup` there") from error
    except subprocess.TimeoutExpired as error:
        raise click.ClickException(f"the benchmark of {tree} did not end within {RUN_SECONDS} s") from error
    if done.returncode != 0:
        raise click.ClickException(f"the benchmark of {tree} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Report)


def in_turn(before: Path, after: Path, pairs: int) -> Iterator[tuple[Path, Path]]:
    """Who is first in each pair: by turns, so that neither always has the warmer machine."""
    for number in range(pairs):
        yield (before, after) if number % 2 == 0 else (after, before)


def print_comparisons(comparisons: Sequence[Comparison]) -> None:
    """One table."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for column in ("before", "after", "ratio", f"{CONFIDENCE:.0%} interval"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit")
    table.add_column("")
    for one in comparisons:
        bounds = f"{one.low:.2f} to {one.high:.2f}"
        verdict = "[red]worse[/]" if one.worse else ""
        table.add_row(one.name, figure(one.before), figure(one.after), f"{one.ratio:.2f}", bounds, one.unit, verdict)
    console.print(table)


@click.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--pairs", default=9, show_default=True, type=click.IntRange(LEAST_PAIRS), help="How many.")
@click.option("--quick", is_flag=True, help="One short repetition of everything.")
@click.option("--only", multiple=True, type=click.Choice(SECTIONS), help="A section to run; may be given again.")
def run(before: Path, pairs: int, quick: bool, only: tuple[str, ...]) -> None:
    """Compare this tree with the one in BEFORE, and write every run to build/pairs.json.

    A ratio above 1 means that this tree is better. Ends with 1 if a figure is worse.
    """
    trees = (before.resolve(), import_root().resolve())
    if trees[0] == trees[1]:
        raise click.UsageError(f"{before} is this tree itself: give another checkout")
    reports: dict[Path, list[Report]] = {tree: [] for tree in trees}
    out = trees[1] / "build" / "pairs.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    for number, order in enumerate(in_turn(*trees, pairs), 1):
        for tree in order:
            click.echo(f"pair {number} of {pairs}: {'before' if tree == trees[0] else 'after'}", err=True)
            reports[tree].append(measure(tree, only or SECTIONS, quick))
        runs = {"before": reports[trees[0]], "after": reports[trees[1]]}
        out.write_bytes(msgspec.json.format(msgspec.json.encode(runs)) + b"\n")
    found = [[figures(report) for report in reports[tree]] for tree in trees]
    try:
        comparisons = compare(*found)
    except ValueError as error:
        raise click.ClickException(f"{error}; all runs are in {out}") from error
    print_comparisons(comparisons)
    for name in sorted(added(*found)):
        click.echo(f"not compared, as {before} does not measure it: {name}")
    notes = {note for tree in trees for report in reports[tree] for note in report.notes}
    for note in sorted(notes):
        click.echo(f"note: {note}")
    sys.exit(1 if any(one.worse for one in comparisons) else 0)


if __name__ == "__main__":
    run()
