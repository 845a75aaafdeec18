"""The outcome of a run, for people and for programs."""

from __future__ import annotations

from typing import Final

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tests.chaos.copies import Control
from tests.chaos.figures import GAP_MEDIAN_SECONDS, RECOVERY_P99_SECONDS, Tally, quantile
from tests.chaos.resources import Verdict as Resources

TOOTHLESS_AFTER: Final = 5
"""Injected so often without an effect that anybody saw, a kind of fault shows nothing."""


class Gap(msgspec.Struct, frozen=True):
    """Times without a block around faults of one kind, each of which struck a leader alone, in seconds."""

    faults: int
    median_s: float
    p99_s: float
    worst_s: float

    @classmethod
    def of(cls, seconds: list[float]) -> Gap:
        """Of the single gaps, at least one."""
        return cls(len(seconds), *(round(quantile(seconds, share), 4) for share in (0.5, 0.99, 1.0)))


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run found, as in build/chaos.json.

    `minutes`: of faults, without set-up and check. `duplicates`: IDs, or pairs of ID and epoch, that more than one got.
    `lost`: acknowledged blocks that a member's history lacks. `claim_errors`: claims that failed at agents with a
    filled reserve during the fault of a single member. `recovery_p99_s`: from the end of the last fault of an act to
    the next block. `fatal_errors`: what ended Kafka clients, in words. `records_…`, `transactions_…`,
    `copies_…` and `commits_…`: as in the checker's verdict. `negative_control_flagged`: whether all controls
    that ran were found fault with. `broken`: every promise that was not kept, in words; `slow`: the same of times;
    `missing`: what this machine cannot do.
    """

    seed: int
    minutes: float
    faults_by_kind: dict[str, Tally]
    acts: int
    ids_checked: int
    blocks_checked: int
    duplicates: int
    lost: int
    claim_errors: int
    fatal_client_errors: int
    fatal_errors: list[str]
    records_checked: int
    transactions_checked: int
    records_lost: int
    records_doubled: int
    records_reordered: int
    transactions_torn: int
    copies_checked: int
    copies_lost: int
    copies_doubled: int
    copies_reordered: int
    commits_checked: int
    commits_refused: int
    commits_lost: int
    commits_of_zombies: int
    recovery_p99_s: float
    leader_gaps: dict[str, Gap]
    elections: int
    voter_changes: int
    negative_control_flagged: bool
    controls: list[Control]
    resources: list[Resources]
    broken: list[str]
    slow: list[str]
    missing: dict[str, str]
    proxy: str
    directory: str


def promises(report: Report) -> list[str]:
    """What a run broke that its figures tell, times aside."""
    broken = [_outgrown(one) for one in report.resources if not one.passed]
    for count, what in (
        (report.duplicates, "IDs were handed out twice"),
        (report.lost, "acknowledged blocks are lost"),
        (report.fatal_client_errors, f"fatal errors of Kafka clients: {'; '.join(report.fatal_errors)}"),
        (report.claim_errors, "claims failed at a filled reserve during the fault of one member"),
        (report.records_lost, "acknowledged records are lost"),
        (report.records_doubled, "records are in a log twice"),
        (report.records_reordered, "records are behind later ones of their producer"),
        (report.transactions_torn, "transactions are seen in part, or although they were aborted"),
        (report.copies_lost, "records were not copied"),
        (report.copies_doubled, "records were copied more than once"),
        (report.copies_reordered, "copies are not in the order of their records"),
        (report.commits_lost, "commits of groups are lost"),
        (report.commits_of_zombies, "commits were taken of generations that were over"),
    ):
        if count:
            broken.append(f"{count:,} {what}")
    broken += [f"the checker finds nothing wrong with {one.name}" for one in report.controls if not one.flagged]
    return broken + _toothless(report)


def _toothless(report: Report) -> list[str]:
    return [
        f"of {tally.injected} faults of the kind {kind} none was seen to bite"
        for kind, tally in report.faults_by_kind.items()
        if tally.injected >= TOOTHLESS_AFTER and not tally.bitten
    ]


def _outgrown(one: Resources) -> str:
    """`growth` is None of one that lived too briefly, and was too large all the same."""
    grew = "" if one.growth is None else f" grew by {one.growth:,.0f} a minute, {one.bar.per_minute:,.0f} may be, and"
    return f"{one.process}: {one.bar.quantity}{grew} came to {one.highest:,.0f}, {one.bar.highest:,.0f} may be"


def delays(report: Report) -> list[str]:
    """Times that were longer than they may be: of recovery, and of the gaps around faults of a leader alone."""
    slow = []
    if report.recovery_p99_s > RECOVERY_P99_SECONDS:
        slow.append(f"service back within {report.recovery_p99_s:.2f} s at p99, {RECOVERY_P99_SECONDS:g} s may be")
    for kind, most in GAP_MEDIAN_SECONDS.items():
        gap = report.leader_gaps.get(kind)
        if gap is not None and gap.median_s > most:
            slow.append(f"a leader's {kind} costs {gap.median_s:.2f} s (median), {most:g} s may be")
    return slow


def print_report(report: Report, console: Console) -> None:
    """The figures as a table, then what was broken."""
    faults = Table("fault", box=box.SIMPLE_HEAD)
    faults.columns[0].no_wrap = True
    for header in ("injected", "seen to bite", "hit nobody", "leader's gap"):
        faults.add_column(header, justify="right", no_wrap=True)
    for kind, tally in sorted(report.faults_by_kind.items()):
        gap = report.leader_gaps.get(kind)
        shown = "" if gap is None else f"{gap.median_s:.2f} s"
        faults.add_row(kind, str(tally.injected), str(tally.bitten), str(tally.missed or ""), shown)
    console.print(faults)
    figures = Table(box=None, show_header=False)
    figures.add_column(justify="right")
    figures.add_column()
    for number, words in _figures(report):
        figures.add_row(number, words)
    console.print(figures)
    for kind, why in sorted(report.missing.items()):
        console.print(f"not done: {kind}: {why}")
    for sentence in report.broken:
        console.print(f"BROKEN: {sentence}", style="bold red")
    for sentence in report.slow:
        console.print(f"SLOW: {sentence}", style="bold yellow")


def _figures(report: Report) -> list[tuple[str, str]]:
    flagged = sum(control.flagged for control in report.controls)
    return [
        (f"{report.minutes:.1f}", f"minutes, {report.acts} acts, links through {report.proxy}, seed {report.seed}"),
        (f"{report.ids_checked:,}", f"IDs checked, of {report.blocks_checked:,} blocks"),
        (f"{report.duplicates:,}", "IDs handed out twice"),
        (f"{report.lost:,}", "acknowledged blocks lost"),
        (f"{report.claim_errors:,}", "claims failed at a filled reserve during the fault of one member"),
        (f"{report.fatal_client_errors:,}", "fatal errors of Kafka clients"),
        (f"{report.records_checked:,}", f"records checked, {report.transactions_checked:,} transactions among them"),
        (f"{report.records_lost:,}", "acknowledged records lost"),
        (f"{report.records_doubled + report.records_reordered:,}", "records doubled or out of order"),
        (f"{report.transactions_torn:,}", "transactions torn"),
        (f"{report.copies_checked:,}", "copies of a group checked"),
        (f"{report.copies_lost:,}", "records not copied"),
        (f"{report.copies_doubled + report.copies_reordered:,}", "copies doubled or out of order"),
        (f"{report.commits_checked:,}", f"commits of groups checked; {report.commits_refused:,} others were refused"),
        (f"{report.commits_lost + report.commits_of_zombies:,}", "commits lost, or of zombies"),
        (f"{report.recovery_p99_s:.2f}", "seconds from the last heal to the next block (p99)"),
        (f"{report.elections:,}", f"elections, {report.voter_changes:,} changes of voters"),
        _grown(report.resources),
        (f"{flagged}", f"of {len(report.controls)} controls were found fault with, as they must be"),
    ]


def _grown(resources: list[Resources]) -> tuple[str, str]:
    """Over how long growth was judged, and of which processes it was not."""
    judged = {one.process: one.minutes for one in resources if one.growth is not None}
    brief = sorted({one.process for one in resources} - judged.keys())
    rest = f"; {', '.join(brief)} lived too briefly" if brief else ""
    return (
        f"{sum(judged.values()):.0f}",
        f"minutes of the lives of {len(judged)} processes were judged for growth{rest}",
    )
