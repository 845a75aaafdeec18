"""The figures of one run, for people and for programs."""

from __future__ import annotations

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `floor` is what the bare counterpart reached in the same run, `ratio` how much of it was reached.

    `bar` says what is aimed at and `met` whether it was reached; both are null for a figure that only informs.
    `samples` are the single repetitions, of which `measured` is the median; `floor_samples` likewise.
    """

    section: str
    name: str
    unit: str
    measured: float
    floor: float | None = None
    ratio: float | None = None
    bar: str | None = None
    met: bool | None = None
    samples: list[float] = []
    floor_samples: list[float] = []
    remark: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run found. `violations` are broken promises, `notes` what a reader has to know."""

    machine: dict[str, str]
    settings: dict[str, str]
    rows: list[Row]
    violations: list[str]
    notes: list[str]


def at_least_half(
    section: str, name: str, unit: str, samples: list[float], floor_samples: list[float], remark: str
) -> Row:
    """A rate against its floor: half of the floor is aimed at."""
    return at_least(0.5, section, name, unit, samples, floor_samples, remark)


def at_least(
    share: float, section: str, name: str, unit: str, samples: list[float], floor_samples: list[float], remark: str
) -> Row:
    """A rate against its floor, of which such a share is aimed at; 0 for none."""
    measured, floor = median(samples), median(floor_samples)
    ratio = measured / floor
    return Row(
        section=section,
        name=name,
        unit=unit,
        measured=measured,
        floor=floor,
        ratio=ratio,
        bar=f">= {share:g} of floor" if share else "",
        met=ratio >= share if share else None,
        samples=samples,
        floor_samples=floor_samples,
        remark=remark,
    )


def at_most_twice(section: str, name: str, unit: str, samples: list[float], floor_samples: list[float]) -> Row:
    """A latency against its floor: at most twice the floor, so that half of its speed is reached."""
    measured, floor = median(samples), median(floor_samples)
    ratio = floor / measured
    return Row(
        section=section,
        name=name,
        unit=unit,
        measured=measured,
        floor=floor,
        ratio=ratio,
        bar="<= 2 x floor",
        met=ratio >= 0.5,
        samples=samples,
        floor_samples=floor_samples,
    )


def at_most(section: str, name: str, unit: str, samples: list[float], bar: float, remark: str = "") -> Row:
    """The median against a fixed bar."""
    measured = median(samples)
    return Row(
        section=section,
        name=name,
        unit=unit,
        measured=measured,
        bar=f"<= {bar:g}",
        met=measured <= bar,
        samples=samples,
        remark=remark,
    )


def median(samples: list[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def print_report(report: Report) -> None:
    """Facts, one table, then what is wrong or worth knowing."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=180)
    for facts in (report.machine, report.settings):
        for name, fact in facts.items():
            console.print(f"[bold]{name}[/]: {fact}", highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("section", "figure"):
        table.add_column(column, no_wrap=True)
    for column in ("measured", "floor", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("unit", "bar", "", "remark"):
        table.add_column(column)
    for row in report.rows:
        verdict = "" if row.met is None else "[green]met[/]" if row.met else "[red]missed[/]"
        table.add_row(
            row.section,
            row.name,
            figure(row.measured),
            figure(row.floor),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.unit,
            row.bar or "",
            verdict,
            row.remark,
        )
    console.print(table)
    for violation in report.violations:
        console.print(f"[bold red]BROKEN PROMISE[/]: {violation}", soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True)


def figure(number: float | None) -> str:
    """Thousands whole, small numbers with two or three digits behind the point."""
    if number is None:
        return ""
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.3f}"
