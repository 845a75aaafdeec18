"""`pidkeeper storage`: a member's data directory, before it runs."""

from __future__ import annotations

from pathlib import Path

import click

from pidkeeper.cli.failures import OF_KAFKA, CommandError, ExitCode, check_not_anothers, failure_at
from pidkeeper.cli.output import TABLE, described_succession, output_option, print_document, print_facts, print_table
from pidkeeper.cli.recover import recover
from pidkeeper.cli.run import CONFIG_OPTION, configured_member
from pidkeeper.cli.verify import verify as verify_directory
from pidkeeper.controller.storage.backup import back_up
from pidkeeper.controller.storage.directory import DirectoryMeta, format_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, read_founding
from pidkeeper.disk.files import OsFiles


@click.group()
def storage() -> None:
    """Format, inspect, verify, back up and recover a member's data directory."""


storage.add_command(recover)


@storage.command("format")
@CONFIG_OPTION
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Data directory, instead of --config.")
@click.option("--cluster-id", help="With --dir: cluster id of the member.")
@click.option("--node-id", type=click.IntRange(1), help="With --dir: node id of the member.")
@click.option("--if-needed", is_flag=True, help="Do nothing if the directory is already formatted for this member.")
@output_option
def format_(
    config: Path | None,
    directory: Path | None,
    cluster_id: str | None,
    node_id: int | None,
    if_needed: bool,
    output: str,
) -> None:
    """Write the identity of a member into its data directory.

    A formatted member is blank: it waits until `pidkeeper quorum found` makes it one of a new quorum, or a member of a
    quorum that was founded before connects. Then it is a recovering member: it counts in no majority until it has
    caught up. So a new cluster elects its first leader when all of its members are up.
    """
    directory, cluster_id, node_id = _identity(config, directory, cluster_id, node_id)
    try:
        check_not_anothers(directory, OF_KAFKA)
        meta = format_directory(OsFiles(), directory, cluster_id, node_id, ignore_formatted=if_needed)
    except (DirectoryError, OSError) as error:
        raise CommandError(failure_at(directory, error), ExitCode.REFUSED) from error
    _print(directory, meta, output)


@storage.command()
@CONFIG_OPTION
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Data directory, instead of --config.")
@output_option
def info(config: Path | None, directory: Path | None, output: str) -> None:
    """Show the identity in a data directory, and the voters that it was founded with."""
    if directory is None:
        directory = _identity(config, None, None, None)[0]
    try:
        meta = read_meta(OsFiles(), directory)
        founding = read_founding(OsFiles(), directory)
    except (DirectoryError, OSError) as error:
        raise CommandError(failure_at(directory, error)) from error
    _print(directory, meta, output, founding)


@storage.command()
@click.option("--dir", "directory", required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--to", "target", required=True, type=click.Path(path_type=Path), help="An empty directory, or none yet.")
@output_option
def backup(directory: Path, target: Path, output: str) -> None:
    """Copy what a member knew at its newest snapshot, for `storage recover`.

    The member may run. The copy has the history of blocks up to that snapshot, and not the log. Take it of a member
    that has caught up.
    """
    try:
        check_not_anothers(target, OF_KAFKA)
        made = back_up(OsFiles(), directory, target)
    except (DirectoryError, OSError) as error:
        raise CommandError(failure_at(directory, error), ExitCode.REFUSED) from error
    if output != TABLE:
        print_document(made, output)
        return
    print_facts(
        [
            ("Directory", target),
            ("ClusterId", made.meta.cluster_id),
            ("Snapshot", made.snapshot.name),
            ("NextProducerId", made.next_producer_id),
            ("Archives", made.archives),
            ("Bytes", f"{made.size:,}"),
        ]
    )


@storage.command()
@click.option("--dir", "directory", required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@output_option
def verify(directory: Path, output: str) -> None:
    """Read a member's log, snapshots and archive, and check every byte that counts. The member may be running.

    Exits 1 if anything is damaged. A torn end of the log is not damage: the next start cuts it off.
    """
    try:
        findings = list(verify_directory(directory))
    except OSError as error:
        raise CommandError(failure_at(directory, error)) from error
    if output != TABLE:
        print_document(findings, output)
    else:
        print_table(("What", "Verdict"), [(found.what, found.problem or f"whole  {found.note}") for found in findings])
    if damaged := [found.what for found in findings if found.problem is not None]:
        raise CommandError(f"{directory} is damaged: {', '.join(damaged)}")


def _identity(
    config: Path | None, directory: Path | None, cluster_id: str | None, node_id: int | None
) -> tuple[Path, str, int]:
    if directory is not None and cluster_id is not None and node_id is not None:
        return directory, cluster_id, node_id
    if directory is not None or cluster_id is not None or node_id is not None:
        raise click.UsageError("--dir, --cluster-id and --node-id must be given together")
    return configured_member(config)


def _print(directory: Path, meta: DirectoryMeta, output: str, founding: Founding | None = None) -> None:
    if output != TABLE:
        print_document({"directory": str(directory), "meta": meta, "founding": founding}, output)
        return
    print_facts(
        [
            ("Directory", directory),
            ("ClusterId", meta.cluster_id),
            ("NodeId", meta.node_id),
            ("DirectoryId", meta.directory_id),
            ("FormatVersion", meta.format_version),
            ("FoundingId", "" if founding is None else founding.founding_id),
            ("FoundingVoters", "" if founding is None else ", ".join(str(voter.id) for voter in founding.voters)),
            *described_succession(None if founding is None else founding.succession),
        ]
    )
