"""`pidkeeper audit`: did any producer ID go out twice? Answered from files alone, by code of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pidkeeper.cli.audit_options import (
    EngineOptions,
    engine_options,
    out_option,
    paths_options,
    store_option,
    storm_option,
)
from pidkeeper.cli.audit_owner import owner
from pidkeeper.cli.audit_session import explained, running, stepper
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table

if TYPE_CHECKING:
    from pidkeeper.pipeline.files.location import Location
    from pidkeeper.pipeline.floor import Floor
    from pidkeeper.pipeline.limits import Limits
    from pidkeeper.pipeline.paths import AuditPaths
    from pidkeeper.pipeline.verdict import Verdict

DEFAULT_MARGIN: Final = 1_000_000
"""IDs put on top of the highest one seen: a thousand blocks of the default size that may have gone out after the copies
were made. It costs a 10^-13 part of the space."""


@click.group()
def audit() -> None:
    """Audit the producer IDs that were handed out, from the files of the quorum and of Kafka.

    Needs the extra, pip install 'pidkeeper[audit]', and Java 17 or newer where Spark is started: by `run` and `stream`,
    if there is much to read or Spark is asked for. `floor` needs neither.
    """


audit.add_command(owner)


@audit.command()
@paths_options
@store_option
@engine_options
@out_option("Directory for tables, verdict and report; the next audit there reads only what is new.")
@storm_option
@click.option("--anew", is_flag=True, help="Read everything, also what an earlier audit in --out has judged.")
@click.option(
    "--on-bad-file",
    default="report",
    show_default=True,
    type=click.Choice(["report", "fail"]),
    help="Whether a malformed file is reported or ends the audit.",
)
@output_option
def run(
    data: tuple[str, ...],
    clusters: tuple[Path, ...],
    segments: tuple[str, ...],
    store: str | None,
    engine: EngineOptions,
    out: Location,
    storm_blocks: int,
    anew: bool,
    on_bad_file: str,
    output: str,
) -> None:
    """Audit data directories of members, or archives, logs and snapshots below them, and Kafka segments.

    Exits 0 if the verdict is clean, 5 if a check found a violation, 6 if none did but not everything could be looked
    at, 1 if the audit itself failed, 130 if it was interrupted. An interrupted audit changes nothing in --out. DATA is
    a path, a glob, or a URI such as s3://bucket/path.
    """
    paths = _paths(data, clusters, segments, store)
    with explained(engine) as interrupts, running(engine, out, interrupts) as ready:
        from pidkeeper.pipeline.audit import AuditOptions, run_audit

        options = AuditOptions(paths, out, anew=anew, fail=on_bad_file == "fail", limits=_limits(storm_blocks))
        verdict = run_audit(ready, options, stepper(interrupts))
    _print_verdict(verdict, out, output)
    _end(verdict)


@audit.command()
@out_option("Output directory of an earlier audit.")
@output_option
def report(out: Location, output: str) -> None:
    """Create report.html again from the tables of the newest audit. Needs no Java."""
    with explained():
        from pidkeeper.pipeline.audit import draw_again

        verdict = draw_again(out)
    _print_verdict(verdict, out, output)


@audit.command()
@paths_options
@store_option
@engine_options
@out_option("Directory for tables, verdict and report; what an earlier audit there has judged is not read again.")
@storm_option
@click.option("--once", is_flag=True, help="Exit after the first look.")
@click.option(
    "--every",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.5),
    help="Seconds from one look to the next.",
)
def stream(
    data: tuple[str, ...],
    clusters: tuple[Path, ...],
    segments: tuple[str, ...],
    store: str | None,
    engine: EngineOptions,
    out: Location,
    storm_blocks: int,
    once: bool,
    every: float,
) -> None:
    """Audit again and again while members and brokers write, and print what is new.

    Ctrl-C or SIGTERM ends it after the current look; a second one at once. It then exits as `audit run`.
    """
    paths = _paths(data, clusters, segments, store)
    with explained(engine, patient=True) as interrupts, running(engine, out, interrupts) as ready:
        from pidkeeper.pipeline.audit import AuditOptions
        from pidkeeper.pipeline.stream import StreamOptions, run_stream

        often = "once" if once else f"every {every:g} s, until Ctrl-C"
        click.echo(f"looking {often}: {', '.join([*paths.data, *paths.segments])}")
        options = StreamOptions(AuditOptions(paths, out, limits=_limits(storm_blocks)), once=once, every_seconds=every)
        verdict = run_stream(ready, options, click.echo, interrupts.wait)
    click.echo(f"{verdict.verdict}: {verdict.violations:,} violations in {verdict.blocks:,} blocks")
    _end(verdict)


@audit.command()
@paths_options
@click.option(
    "--margin",
    default=DEFAULT_MARGIN,
    show_default=True,
    type=click.IntRange(0),
    help="IDs to add to the highest ID found.",
)
@output_option
def floor(
    data: tuple[str, ...], clusters: tuple[Path, ...], segments: tuple[str, ...], margin: int, output: str
) -> None:
    """After a disaster: find the highest ID in any file, committed or not, and print the command that raises the floor.

    Reads damaged files as far as possible, and reports what it could not read. Needs no Java.
    """
    from pidkeeper.pipeline.floor import find_floor
    from pidkeeper.pipeline.paths import LoadingError

    paths = _paths(data, clusters, segments)
    try:
        found = find_floor(paths, margin)
    except LoadingError as error:
        raise CommandError(str(error)) from error
    if output != TABLE:
        print_document(found, output)
    else:
        _print_floor(found)
    if found.highest is None:
        where = ", ".join([*paths.data, *paths.segments])
        raise CommandError(f"no ID was found in {where}: the floor cannot be determined")


def _paths(
    data: tuple[str, ...], clusters: tuple[Path, ...], segments: tuple[str, ...], store: str | None = None
) -> AuditPaths:
    from pidkeeper.pipeline.paths import AuditPaths, LoadingError, cluster_paths, cluster_store

    try:
        members = [path for directory in clusters for path in cluster_paths(directory)]
    except LoadingError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    if not data and not members and not segments:
        raise click.UsageError("nothing to audit: give data directories, --cluster DIR or --segments PATH")
    if store and not data and not members:
        raise click.UsageError("--store is looked at beside what members say of it: give their data directories too")
    stores = [found for directory in clusters if (found := cluster_store(directory)) is not None]
    return AuditPaths([*data, *members], list(segments), store or next(iter(stores), None))


def _limits(storm_blocks: int) -> Limits:
    from pidkeeper.pipeline.limits import Limits

    return Limits(storm_blocks_per_minute=storm_blocks)


def _print_verdict(verdict: Verdict, out: Location, output: str) -> None:
    from pidkeeper.pipeline.verdict import covered_text

    if output != TABLE:
        print_document(verdict, output)
        return
    rows = [(name, count.violations, count.warnings, count.notes) for name, count in verdict.checks.items()]
    print_table(("Check", "Violations", "Warnings", "Notes"), rows)
    for bad in verdict.bad_files:
        click.echo(f"malformed: {bad.file}, byte {bad.position}: {bad.kinds}: {bad.detail}", err=True)
    for what in verdict.coverage.unseen:
        click.echo(f"not seen: {what}", err=True)
    facts: list[tuple[str, object]] = [
        ("Covered", covered_text(verdict.coverage)),
        ("IDs handed out", f"{verdict.ids:,} in {verdict.blocks:,} blocks to {verdict.brokers:,} brokers"),
        ("Batches in logs", f"{verdict.batches:,}"),
        ("Files read", f"{verdict.files_read:,}, of which {verdict.files_bad:,} malformed"),
        ("Seconds", f"{verdict.wall_seconds:.1f}"),
        ("Report", str(out / "report.html")),
        ("Verdict", verdict.verdict if not verdict.violations else f"{verdict.violations:,} violations"),
    ]
    print_facts(facts)


def _end(verdict: Verdict) -> None:
    if verdict.verdict != "clean":
        code = ExitCode.REFUSED if verdict.violations else ExitCode.INCOMPLETE
        raise click.exceptions.Exit(int(code))


def _print_floor(found: Floor) -> None:
    print_table(
        ("Evidence", "Files", "Highest ID", "In"),
        [(one.kind, one.files, one.highest, one.file or "-") for one in found.evidence],
    )
    for one in found.unread:
        click.echo(f"not read: {one.file}, from byte {one.position}: {one.kind}: {one.detail}", err=True)
    if found.warning:
        click.echo(f"warning: {found.warning}", err=True)
    if found.highest is not None:
        click.echo(f"highest ID found: {found.highest}; with a margin of {found.margin} the floor is {found.floor}:")
        click.echo(f"  {found.command}")
        click.echo(f"  pidkeeper storage recover --at-least {found.floor} …, where the quorum itself is lost", err=True)
