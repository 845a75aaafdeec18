"""`pidkeeper audit owner`: who owns or owned an ID, from the tables of an audit."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import click

from pidkeeper.cli.audit_options import out_option
from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

if TYPE_CHECKING:
    from pidkeeper.pipeline.files.location import Location
    from pidkeeper.pipeline.owner import Block, Finding, Ownership


@click.command()
@click.argument("producer_id", type=click.IntRange(0, MAX_PRODUCER_ID))
@out_option("Output directory of an earlier run.")
@output_option
def owner(producer_id: int, out: Location, output: str) -> None:
    """Show which broker owns or owned PRODUCER_ID, from the tables of an earlier run. Needs no Java.

    Exits 0 if one block holds the ID, 1 if none does, 5 if several do, which is a violation.
    """
    try:
        from pidkeeper.pipeline.owner import OwnerError, find_owner
    except ImportError as error:
        raise CommandError(f"this needs {error.name}: pip install 'pidkeeper[audit]'") from error
    try:
        found = find_owner(out, producer_id)
    except ImportError as error:
        raise CommandError(f"this needs {error.name}: pip install 'pidkeeper[audit]'") from error
    except OwnerError as error:
        raise CommandError(str(error)) from error
    if output != TABLE:
        print_document(found, output)
    else:
        _print(found)
    if found.place == "owned_twice":
        count = len(found.blocks) + found.more_blocks
        text = f"violation: {count} blocks hold producer ID {producer_id}; two producers may have it"
        raise CommandError(text, ExitCode.REFUSED)
    if not found.blocks:
        raise CommandError(f"producer ID {producer_id} has no owner: {_why(found)}")


def _print(found: Ownership) -> None:
    if len(found.blocks) == 1:
        _print_block(found.producer_id, found.blocks[0], found.members_audited)
    elif found.blocks:
        _print_blocks(found.blocks)
    elif neighbours := [block for block in (found.block_below, found.block_above) if block is not None]:
        click.echo("nearest blocks:")
        _print_blocks(neighbours)
    if found.more_blocks:
        click.echo(f"and {found.more_blocks:,} more blocks")
    if found.findings:
        click.echo("findings:")
    for finding in found.findings:
        click.echo(f"  {_sentence(finding)}")
    if found.more_findings:
        click.echo(f"  and {found.more_findings:,} more findings, which concern more IDs")


def _print_block(producer_id: int, block: Block, members: int) -> None:
    print_facts(
        [
            ("ProducerId", producer_id),
            ("BrokerId", block.broker_id),
            ("BrokerEpoch", block.broker_epoch),
            ("Block", f"{block.first_id} to {block.last_id} ({block.length:,} IDs)"),
            ("AllocatedAt", _time(block.timestamp_ms)),
            ("RecordOffset", block.offset),
            ("Members", f"{block.members} of {members} have it"),
        ]
    )


def _print_blocks(blocks: list[Block]) -> None:
    columns = ("First", "Last", "IDs", "BrokerId", "BrokerEpoch", "Offset", "Members", "AllocatedAt")
    rows = [
        (b.first_id, b.last_id, b.length, b.broker_id, b.broker_epoch, b.offset, b.members, _time(b.timestamp_ms))
        for b in blocks
    ]
    print_table(columns, rows)


def _sentence(finding: Finding) -> str:
    return f"{finding.severity}: {finding.check}: {finding.subject}: {finding.detail}"


def _why(found: Ownership) -> str:
    """Why nobody has it."""
    below, above = found.block_below, found.block_above
    if below is None and above is None:
        return "the audit found no blocks"
    if above is None:
        assert below is not None, "an ID above all blocks is above one"
        return f"it was not allocated when the audit ran; the highest allocated ID is {below.last_id}"
    if below is None:
        return (
            f"the first known block starts at {above.first_id}. A lower ID was allocated before this quorum existed, "
            "for example by ZooKeeper, or the archive is incomplete"
        )
    reason = "no check explains this gap" if found.gap is None else found.gap.detail
    return f"it lies between the blocks that end at {below.last_id} and start at {above.first_id}; {reason}"


def _time(timestamp_ms: int) -> str:
    try:
        moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms, which is no time"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
