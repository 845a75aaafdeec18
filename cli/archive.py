"""`pidkeeper archive`: copies of what members archived, away from their disks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table

if TYPE_CHECKING:
    from pidkeeper.pipeline.interrupts import Interrupts
    from pidkeeper.pipeline.shipping import Failed, Round, Shipped, Shipper

POLL_SECONDS: Final = 0.2
"""How soon a signal ends the wait for the next round."""


@click.group()
def archive() -> None:
    """Ship members' allocation archives to a bucket, to HDFS or to another disk."""


@archive.command()
@click.argument(
    "directories",
    metavar="DATA_DIR...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="TARGET",
    help="A local path, or a URI such as s3://bucket/path or webhdfs://namenode:9870/path.",
)
@click.option("--watch", is_flag=True, help="Ship again and again, until Ctrl-C or SIGTERM.")
@click.option(
    "--every",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0.5),
    help="With --watch: seconds between two rounds.",
)
@click.option("--snapshots/--no-snapshots", default=True, show_default=True, help="Whether to ship snapshots too.")
@click.option(
    "--quick",
    is_flag=True,
    help="Compare copies from earlier runs by their sizes and ends, and not byte by byte.",
)
@output_option
def ship(
    directories: tuple[Path, ...],
    target: str,
    watch: bool,
    every: float,
    snapshots: bool,
    quick: bool,
    output: str,
) -> None:
    """Copy what is not there yet from members' data directories, which may be in use, to TARGET.

    Each file is verified before, and compared with its copy behind that. Nothing at TARGET is overwritten or deleted.
    `pidkeeper audit run TARGET/CLUSTER_ID/*` audits the copies.

    Exits 1 if a file was damaged, could not be copied, or is there with other bytes; the others are copied.
    """
    from pidkeeper.pipeline.files.location import locate
    from pidkeeper.pipeline.interrupts import Interrupts
    from pidkeeper.pipeline.shipping import Options, Shipper

    try:
        place = locate(target)
    except OSError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    speaker = _Speaker(output, watch)
    shipper = Shipper(place, Options(snapshots=snapshots, quick=quick), speaker.told)
    interrupts = Interrupts()
    if watch:
        count = _counted(len(directories), "directory", "directories")
        click.echo(f"shipping {count} to {place} every {every:g} s, until Ctrl-C or SIGTERM", err=True)
    with interrupts.noted():
        last = _rounds(shipper, list(directories), every if watch else None, interrupts, speaker)
    if last.failed:
        raise CommandError(
            f"{_counted(last.failed, 'file', 'files')} of {last.failed + last.shipped + last.present} failed"
        )
    if last.interrupted and not watch:
        raise KeyboardInterrupt


def _rounds(
    shipper: Shipper, directories: list[Path], every: float | None, interrupts: Interrupts, speaker: _Speaker
) -> Round:
    """The last of them."""
    while True:
        done = shipper.ship(directories, lambda: interrupts.asked)
        speaker.ended(done)
        if every is None:
            return done
        deadline = time.monotonic() + every
        while not interrupts.asked and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if interrupts.asked:
            return done


class _Speaker:
    """Says of each file what became of it; of a failure that stays, once."""

    def __init__(self, output: str, watch: bool) -> None:
        self._output = output
        self._watch = watch
        self._failing: set[tuple[str, str]] = set()

    def told(self, file: Shipped | Failed) -> None:
        """Of one file, when it is done."""
        from pidkeeper.pipeline.shipping import Shipped

        if isinstance(file, Shipped):
            if self._output == TABLE:
                click.echo(f"shipped {file.target}  {file.bytes:,} bytes")
        elif (file.source, file.reason) not in self._failing:
            self._failing.add((file.source, file.reason))
            click.echo(f"failed: {file.source}: {file.reason}", err=True)

    def ended(self, done: Round) -> None:
        """Of a round; while watching, for programs, one document each."""
        failing = {(file.source, file.reason) for member in done.members for file in member.failed}
        self._failing &= failing
        if self._output != TABLE:
            print_document(done, self._output, one_of_many=self._watch)
        elif not self._watch:
            _print(done)


def _print(done: Round) -> None:
    columns = ("Cluster", "Node", "Shipped", "Bytes", "There already", "Failed")
    rows: list[tuple[Any, ...]] = [
        (
            member.cluster_id or member.directory,
            "-" if member.node_id is None else member.node_id,
            len(member.shipped),
            f"{member.bytes:,}",
            member.present,
            len(member.failed),
        )
        for member in done.members
    ]
    print_table(columns, rows)
    print_facts([("Target", done.target), ("Seconds", f"{done.seconds:.1f}")])


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
