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


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """How `system` serves so many `callers`: the medians of its repetitions.

    `rate`: blocks a second. `spread_ms`: latencies at each of `closed_loop.QUANTILES`.
    """

    system: str
    callers: int
    rate: float
    spread_ms: list[float]


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """How long `system` gave nothing after its leader got `signal`: one time for each round."""

    system: str
    signal: str
    times_ms: list[float]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run found. `violations` are broken promises, `notes` what a reader has to know."""

    machine: dict[str, str]
    settings: dict[str, str]
    rows: list[Row]
    violations: list[str]
    notes: list[str]
    curves: list[Curve] = []
    outages: list[Outage] = []


def at_least(
    share: float,
    section: str,
    name: str,
    unit: str,
    samples: list[float],
    floor_samples: list[float],
    remark: str = "",
    *,
    than: str = "floor",
) -> Row:
    """A rate against its floor, or what else it is to be better `than`: such a share is aimed at; 0 for none."""
    row = _beside(section, name, unit, samples, floor_samples, remark)
    ratio = row.measured / median(floor_samples)
    bar, met = (f">= {share:g} x {than}", ratio >= share) if share else (None, None)
    return msgspec.structs.replace(row, ratio=ratio, bar=bar, met=met)


def at_most_times(
    times: float,
    section: str,
    name: str,
    unit: str,
    samples: list[float],
    floor_samples: list[float],
    remark: str = "",
    *,
    than: str = "floor",
) -> Row:
    """A latency against its floor, or what else it is to be better `than`: so many times that at most; 0 for none."""
    row = _beside(section, name, unit, samples, floor_samples, remark)
    floor = median(floor_samples)
    bar, met = (f"<= {times:g} x {than}", row.measured <= times * floor) if times else (None, None)
    return msgspec.structs.replace(row, ratio=floor / row.measured, bar=bar, met=met)


def _beside(section: str, name: str, unit: str, samples: list[float], floor_samples: list[float], remark: str) -> Row:
    return msgspec.structs.replace(
        informing(section, name, unit, samples, remark), floor=median(floor_samples), floor_samples=floor_samples
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


def not_below(section: str, name: str, unit: str, samples: list[float], bar: float, remark: str = "") -> Row:
    """The median against a bar that it is to reach."""
    row = informing(section, name, unit, samples, remark)
    return msgspec.structs.replace(row, bar=f">= {bar:g}", met=row.measured >= bar)


def informing(section: str, name: str, unit: str, samples: list[float], remark: str = "") -> Row:
    """A figure without a bar."""
    return Row(section=section, name=name, unit=unit, measured=median(samples), samples=samples, remark=remark)


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
