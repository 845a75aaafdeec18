"""The figures of a run, as they are written and printed."""

from __future__ import annotations

from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tests.cuts.rounds import Cut

MAX_SHOWN: Final = 10


class Tally(msgspec.Struct):
    """Of one window: how often a kill was in it, and how often it did not come to that."""

    hit: int = 0
    missed: int = 0


class Report(msgspec.Struct, kw_only=True):
    """What is written. `cuts`: kills that were in their windows, `missed`: those that were not, or that never came.

    `records`, `transactions`: checked, of all eras. `lost`, `doubled`, `reordered`, `torn`: see `chaos.checker`.
    `orphans`, `missing`: objects of the store at the end that no log needs, and those that logs need and that are not
    there. `brought_back`: deleted objects that copies needed. `broken`: what was wrong, in words.
    `skipped`: what this machine could not do, and why.
    """

    seed: int
    seconds: float
    agents: int
    cuts: int = 0
    missed: int = 0
    power_cuts: int = 0
    by_window: dict[str, Tally] = {}
    restores: int = 0
    brought_back: int = 0
    records: int = 0
    transactions: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    torn: int = 0
    orphans: int = 0
    missing: int = 0
    median_back_s: float = 0.0
    negative_control_flagged: bool = False
    controls: dict[str, bool] = {}
    skipped: dict[str, str] = {}
    broken: list[str] = []

    def take(self, cut: Cut, *, power: bool) -> None:
        """Count one kill."""
        tally = self.by_window.setdefault(cut.window, Tally())
        tally.hit += cut.hit
        tally.missed += not cut.hit
        self.cuts += cut.hit
        self.missed += not cut.hit
        self.power_cuts += cut.hit and power


def print_report(report: Report, console: Console) -> None:
    """The figures as a table, then what was broken."""
    windows = Table("window", box=box.SIMPLE_HEAD)
    windows.columns[0].no_wrap = True
    for header in ("hit", "missed"):
        windows.add_column(header, justify="right", no_wrap=True, min_width=len(header))
    for name, tally in sorted(report.by_window.items()):
        windows.add_row(name, str(tally.hit), str(tally.missed or ""))
    console.print(windows)
    figures = Table(box=None, show_header=False)
    figures.add_column(justify="right")
    figures.add_column()
    for number, words in _figures(report):
        figures.add_row(number, words)
    console.print(figures)
    for what, why in sorted(report.skipped.items()):
        console.print(f"not done: {what}: {why}")
    for sentence in report.broken[:MAX_SHOWN]:
        console.print(f"BROKEN: {sentence}", style="bold red")


def _figures(report: Report) -> list[tuple[str, str]]:
    flagged = sum(report.controls.values())
    return [
        (f"{report.cuts:,}", f"kills in their windows, {report.power_cuts:,} of them power cuts; seed {report.seed}"),
        (f"{report.missed:,}", "that missed their window, and count for nothing"),
        (f"{report.restores:,}", f"restores, for which {report.brought_back:,} deleted objects were brought back"),
        (f"{report.records:,}", f"records checked, {report.transactions:,} transactions among them"),
        (f"{report.lost:,}", "acknowledged records lost"),
        (f"{report.doubled + report.reordered:,}", "records doubled or out of order"),
        (f"{report.torn:,}", "transactions torn"),
        (f"{report.orphans:,}", f"objects in the end that no log needs; {report.missing:,} that are missing"),
        (f"{report.median_back_s:.2f}", "seconds from a kill until records flow again (median)"),
        (f"{flagged}", f"of {len(report.controls)} controls were found fault with, as they must be"),
        (f"{report.seconds:.0f}", f"seconds, with {report.agents} agents"),
    ]
