"""`pidkeeper log dump` and `pidkeeper snapshot`: read a member's files, whether it runs or not. They change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import click
import msgspec

from pidkeeper.cli.failures import CommandError, failure_at
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.controller.storage.dump import DumpedDamage, DumpedFrame, dump_log
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.ids import OWN
from pidkeeper.protocol.records import Record
from pidkeeper.snapshots.image import LastBlock, StateImage
from pidkeeper.snapshots.snapshot_format import SnapshotError, decode_snapshot
from pidkeeper.snapshots.snapshot_id import SnapshotId

DIRECTORY_OPTION = click.option(
    "--dir",
    "directory",
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The member's data directory.",
)


@click.command()
@DIRECTORY_OPTION
@click.option("--from", "from_index", default=0, type=click.IntRange(0), help="Lowest entry index to print.")
@output_option
def dump(directory: Path, from_index: int, output: str) -> None:
    """Print every frame of a member's write-ahead log, oldest first; JSON and YAML have a document for each.

    This is the quorum's own log, with all that it decided. Records of topics are not in it: see `log read`. Exits 1 at
    damage, unless it is a torn end.
    """
    try:
        damage = _dump(directory, from_index, output)
    except OSError as error:
        raise CommandError(failure_at(directory, error)) from error
    if damage is not None and not damage.torn:
        place = directory / "wal" / damage.segment
        raise CommandError(f"corrupt at {place}, byte {damage.offset}, index {damage.index}: {damage.reason}")


def _dump(directory: Path, from_index: int, output: str) -> DumpedDamage | None:
    """Where reading ended early, if it did."""
    damage = None
    for item in dump_log(OsFiles(), directory / "wal"):
        if isinstance(item, DumpedDamage):
            damage = item
        elif item.index < from_index:
            continue
        if output != TABLE:
            print_document(_plain(item), output, one_of_many=True)
        else:
            click.echo("  ".join(_columns(item)))
    return damage


def _plain(item: DumpedFrame | DumpedDamage) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(item)
    if isinstance(item, DumpedFrame):
        fields["records"] = [
            {"record": type(record).__name__, "version": record.VERSION, **msgspec.structs.asdict(record)}
            for record in item.records
        ]
    return fields


def _columns(item: DumpedFrame | DumpedDamage) -> Iterator[str]:
    yield f"{item.segment}:{item.offset}"
    if isinstance(item, DumpedDamage):
        yield f"{'torn end' if item.torn else 'CORRUPT'} at index {item.index}: {item.reason}"
        return
    yield f"{item.type:<10} term={item.term} index={item.index}"
    yield from (_sentence(record) for record in item.records)
    if item.detail:
        yield item.detail


def _sentence(record: Record) -> str:
    fields = ", ".join(f"{name}={value}" for name, value in msgspec.structs.asdict(record).items())
    return f"{type(record).__name__}({fields})"


@click.group()
def snapshot() -> None:
    """List, inspect and verify a member's snapshots."""


@snapshot.command("list")
@DIRECTORY_OPTION
@output_option
def list_(directory: Path, output: str) -> None:
    """List the snapshots by name, oldest first. Their contents are not read: see `verify`."""
    path = directory / "snapshots"
    rows = [
        (found.index, found.term, (path / found.name).stat().st_size, found.name) for found in found_snapshots(path)
    ]
    if output != TABLE:
        print_document([dict(zip(("index", "term", "bytes", "file"), row, strict=True)) for row in rows], output)
    else:
        print_table(("Index", "Term", "Bytes", "File"), rows)


@snapshot.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@output_option
def inspect(file: Path, output: str) -> None:
    """Print the replicated state in a snapshot file."""
    try:
        image = _load(file)
    except (SnapshotError, OSError) as error:
        raise CommandError(failure_at(file, error)) from error
    if output != TABLE:
        print_document(image, output)
        return
    block = image.last_block
    print_facts(
        [
            ("Index", image.index),
            ("Term", image.term),
            ("NextOffset", image.next_offset),
            ("NextProducerId", image.next_producer_id),
            ("LastBlock", None if block is None else f"{block.first} to {block.first + block.length - 1}"),
            ("LastBlockOwner", None if block is None else _owner(block)),
            ("Brokers", len(image.brokers)),
        ]
    )
    if image.brokers:
        print_table(
            ("BrokerId", "BrokerEpoch", "Fenced", "IncarnationId"),
            [(b.broker_id, b.broker_epoch, "yes" if b.fenced else "no", b.incarnation_id) for b in image.brokers],
        )


@snapshot.command()
@DIRECTORY_OPTION
@output_option
def verify(directory: Path, output: str) -> None:
    """Check the checksum and the contents of every snapshot. Exits 1 if one is damaged."""
    path = directory / "snapshots"
    verdicts = [(found.name, snapshot_problem(path / found.name)) for found in found_snapshots(path)]
    if output != TABLE:
        found = [{"file": name, "whole": verdict is None, "problem": verdict} for name, verdict in verdicts]
        print_document(found, output)
    else:
        print_table(("File", "Verdict"), [(name, verdict or "whole") for name, verdict in verdicts])
    if damaged := [name for name, verdict in verdicts if verdict is not None]:
        raise CommandError(f"damaged in {path}: {', '.join(damaged)}")


def found_snapshots(path: Path) -> list[SnapshotId]:
    """The snapshots in a directory by their names, oldest first. Raises CommandError."""
    try:
        names = OsFiles().listdir(path)
    except OSError as error:
        raise CommandError(failure_at(path.parent, error)) from error
    return sorted(found for name in names if (found := SnapshotId.from_name(name)) is not None)


def _owner(block: LastBlock) -> str:
    own = block.broker_id == OWN
    return "the quorum, for transactional producers" if own else f"broker {block.broker_id}, epoch {block.broker_epoch}"


def _load(file: PurePath) -> StateImage:
    return decode_snapshot(OsFiles().read_bytes(file), file.name, None)


def snapshot_problem(file: PurePath) -> str | None:
    """What is wrong with a snapshot file, or None."""
    try:
        _load(file)
    except SnapshotError as error:
        return str(error)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    return None
