"""`pidkeeper audit`: did any producer ID go out twice? Answered from files alone, by code of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pidkeeper.cli.audit_options import PlaceType, SparkOptions, out_option, paths_options, spark_options
from pidkeeper.cli.audit_owner import owner
from pidkeeper.cli.audit_session import explained, held, running
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.output import output_option, print_facts, print_json, print_table
from pidkeeper.pipeline.report.verdict import covered_text
from pidkeeper.pipeline.store import Place, is_uri, join_place, open_store

if TYPE_CHECKING:
    from pidkeeper.pipeline.floor import Floor
    from pidkeeper.pipeline.paths import AuditPaths
    from pidkeeper.pipeline.report.verdict import Verdict

DEFAULT_MARGIN: Final = 1_000_000
"""IDs put on top of the highest one seen: a thousand blocks of the default size that may have gone out after the copies
were made. It costs a 10^-13 part of the space."""


@click.group()
def audit() -> None:
    """Audit the producer IDs that were handed out, from the files of the quorum and of Kafka.

    Needs Java 17 or newer, and the extra: pip install 'pidkeeper[audit]'. `floor` needs neither of them. `owner` needs
    no Java.
    """


audit.add_command(owner)


@audit.command()
@paths_options
@spark_options
@out_option("Directory for tables, verdict and report.")
@click.option(
    "--state",
    type=PlaceType(),
    help="Keep the rows read so far here; the next run reads only new files.",
)
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
    spark_options: SparkOptions,
    out: Place,
    state: Place | None,
    on_bad_file: str,
    output: str,
) -> None:
    """Audit data directories of members, or archives, logs and snapshots below them, and Kafka segments.

    Exits 0 if the verdict is clean, 5 if a check found a violation, 6 if none did but not everything could be looked
    at, 1 if the audit itself failed, 130 if it was interrupted. An interrupted run leaves no verdict. DATA is a path, a
    glob, or a URI such as s3://bucket/path.
    """
    paths = _paths(data, clusters, segments)
    with explained() as interrupts, held(out=out, state=state), running(spark_options, out, interrupts) as spark:
        from pidkeeper.pipeline.audit import AuditOptions, run_audit
        from pidkeeper.pipeline.checks import ALL_CHECKS

        options = AuditOptions(paths, out, state, on_bad_file == "fail")
        with interrupts.cancelling(spark):
            verdict = run_audit(spark, options, ALL_CHECKS)
    _print_verdict(verdict, out, output)
    _end(verdict.violations)
    if verdict.verdict == "incomplete":
        raise click.exceptions.Exit(int(ExitCode.INCOMPLETE))


@audit.command()
@spark_options
@out_option("Output directory of an earlier run.")
@output_option
def report(spark_options: SparkOptions, out: Place, output: str) -> None:
    """Create report.html again from the tables of an earlier run."""
    with explained() as interrupts, held(out=out), running(spark_options, out, interrupts) as spark:
        from pidkeeper.pipeline.audit import draw_again

        with interrupts.cancelling(spark):
            verdict = draw_again(spark, out)
    _print_verdict(verdict, out, output)


@audit.command()
@paths_options
@spark_options
@click.option(
    "--state",
    required=True,
    type=PlaceType(),
    help="Directory for the blocks read so far, the findings and the position in the stream.",
)
@click.option("--once", is_flag=True, help="Exit when all files that exist now are checked.")
@click.option(
    "--every",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0.5),
    help="Seconds between two scans for new files.",
)
def stream(
    data: tuple[str, ...],
    clusters: tuple[Path, ...],
    segments: tuple[str, ...],
    spark_options: SparkOptions,
    state: Place,
    once: bool,
    every: float,
) -> None:
    """Check archive files as members write them, for overlapping blocks and for IDs that fall.

    Ctrl-C or SIGTERM ends it when the current batch is done. It then exits 0, or 5 if this run or an earlier one with
    the same --state found a violation. It exits 130 if it had not started yet.
    """
    if segments:
        raise click.UsageError(
            "Kafka segments cannot be streamed, only archive files can: use `pidkeeper audit run --state`"
        )
    paths = _paths(data, clusters, ())
    with explained() as interrupts, held(state=state):
        from pidkeeper.pipeline.checks.quorum import QUORUM_CHECKS
        from pidkeeper.pipeline.stream import StreamOptions, run_stream, watched
        from pidkeeper.pipeline.stream_state import claim

        options = StreamOptions(paths.data, state, once=once, every_seconds=every)
        watching = watched(options)
        if not is_uri(state):
            claim(open_store(state), paths.data)
        click.echo(watching)
        with running(spark_options, state, interrupts) as spark:
            violations = run_stream(spark, options, dict(QUORUM_CHECKS), click.echo, interrupts)
    _end(violations)


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
    if output == "json":
        print_json(found)
    else:
        _print_floor(found)
    if found.highest is None:
        raise CommandError("no ID was found in these files: the floor cannot be determined")


def _paths(data: tuple[str, ...], clusters: tuple[Path, ...], segments: tuple[str, ...]) -> AuditPaths:
    from pidkeeper.pipeline.paths import AuditPaths, LoadingError, cluster_paths

    try:
        members = [path for directory in clusters for path in cluster_paths(directory)]
    except LoadingError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    if not data and not members and not segments:
        raise click.UsageError("nothing to audit: give data directories, --cluster DIR or --segments PATH")
    return AuditPaths([*data, *members], list(segments))


def _print_verdict(verdict: Verdict, out: Place, output: str) -> None:
    if output == "json":
        print_json(verdict)
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
        ("Batches of Kafka", f"{verdict.batches:,}"),
        ("Files read", f"{verdict.files_read:,}, of which {verdict.files_bad:,} malformed"),
        ("Seconds", f"{verdict.wall_seconds:.1f}"),
        ("Report", str(join_place(out, "report.html"))),
        ("Verdict", verdict.verdict if not verdict.violations else f"{verdict.violations:,} violations"),
    ]
    print_facts(facts)


def _end(violations: int) -> None:
    if violations:
        raise click.exceptions.Exit(int(ExitCode.REFUSED))


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
