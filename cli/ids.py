"""`pidkeeper ids`: blocks and their owners."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path

import click

from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode, failure_at
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.cli.owner_files import owner_in_files, why_ownerless_in_files
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID, OWN
from pidkeeper.protocol.messages import (
    AllocatedBlocksPage,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    ProducerIdOwner,
    RaiseFloorRequest,
    RaiseFloorResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TransactionalOwner,
)
from pidkeeper.snapshots.archive_format import ArchiveError

PRODUCER_ID = click.IntRange(0, MAX_PRODUCER_ID)


@click.group()
def ids() -> None:
    """Allocate blocks, find the owner of an ID, list blocks, raise the floor."""


@ids.command()
@click.option(
    "--broker", required=True, type=click.IntRange(0, MAX_BROKER_ID), help="Broker id to register and allocate for."
)
@click.option("--blocks", default=1, show_default=True, type=click.IntRange(1, 100_000), help="Number of blocks.")
@asks_controllers
@output_option
def allocate(
    broker: int,
    blocks: int,
    members: Controllers,
    output: str,
) -> None:
    """Register as a broker and allocate blocks for it.

    This ends any other registration of the broker id. A running agent with this id stops.
    """
    registered = members.ask(
        RegisterBrokerResponse,
        "POST",
        f"/v1/brokers/{broker}/register",
        RegisterBrokerRequest(incarnation_id=f"cli-{uuid.uuid4()}"),
    )
    request = AllocateProducerIdsRequest(broker, registered.broker_epoch, registered.cluster_id)
    answers: list[AllocateProducerIdsResponse] = []
    for _ in range(blocks):
        answer = members.ask(AllocateProducerIdsResponse, "POST", "/v1/producer-ids/allocate", request)
        if answers:
            _ascends(answers[-1], answer)
        answers.append(answer)
    if output != TABLE:
        print_document(answers, output)
    else:
        print_table(
            ("First", "Last", "BrokerId", "BrokerEpoch"),
            [
                (a.producer_id_start, a.producer_id_start + a.producer_id_len - 1, broker, registered.broker_epoch)
                for a in answers
            ],
        )


@ids.command()
@click.argument("producer_id", type=PRODUCER_ID)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read a member's data directory instead of asking, up to its newest snapshot.",
)
@asks_controllers
@output_option
def owner(
    producer_id: int,
    directory: Path | None,
    members: Controllers,
    output: str,
) -> None:
    """Show whom PRODUCER_ID was given to, and when: a broker, or a transactional id, also one that is forgotten.

    Asks every member, because a member may lack older records. Exits 5 if nobody has it, and says why: it is not handed
    out yet, a raised floor skipped it, or ZooKeeper's controller gave it before the quorum took over.
    """
    found = _asked(members, producer_id) if directory is None else _read(directory, producer_id)
    if output != TABLE:
        print_document(found, output)
        return
    own, transactional = found.broker_id == OWN, found.transactional
    print_facts(
        [
            ("ProducerId", producer_id),
            ("BrokerId", "none: a block of the quorum's own" if own else found.broker_id),
            ("BrokerEpoch", None if own else found.broker_epoch),
            ("Block", f"{found.first} to {found.last}"),
            ("AllocatedAt", _time(found.timestamp_ms)),
            ("RecordOffset", found.offset),
            ("TransactionalId", _transactional_id(found)),
            ("GivenAt", _given(transactional)),
            ("GivenOffset", None if transactional is None else transactional.offset),
        ]
    )


def _asked(members: Controllers, producer_id: int) -> ProducerIdOwner:
    path = f"/v1/producer-ids/{producer_id}/owner"
    answers = members.ask_each(ProducerIdOwner, path)
    found = max((answer for answer in answers.values() if answer is not None), key=_knowledge, default=None)
    if found is None:
        # The leader knows best why nobody has it; members that do not answer are told from that.
        return members.leader_first().ask(ProducerIdOwner, "GET", path)
    return found


def _read(directory: Path, producer_id: int) -> ProducerIdOwner:
    try:
        found = owner_in_files(directory, producer_id)
        if found is not None:
            return found
        reason = why_ownerless_in_files(directory, producer_id)
    except (ArchiveError, OSError) as error:
        raise CommandError(failure_at(directory, error)) from error
    raise CommandError(reason, ExitCode.REFUSED)


def _knowledge(answer: ProducerIdOwner) -> int:
    """How much a member knows: its history, and with it the time, may be longer than another's."""
    known = answer.transactional
    return 0 if known is None else 1 if known.offset is None else 2


def _transactional_id(found: ProducerIdOwner) -> str | None:
    if found.transactional is not None:
        return found.transactional.transactional_id
    if found.free:
        return "none yet"
    return "not known here: the history has a hole" if found.broker_id == OWN else None


def _given(owner: TransactionalOwner | None) -> str | None:
    return None if owner is None or owner.timestamp_ms is None else _time(owner.timestamp_ms)


@ids.command("list")
@click.option(
    "--after", default=-1, type=click.IntRange(-1, MAX_PRODUCER_ID), help="Only blocks that start above this ID."
)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="Most blocks to list.")
@asks_controllers
@output_option
@watch_option
def list_(
    after: int,
    limit: int,
    members: Controllers,
    output: str,
) -> None:
    """List allocated blocks in order of ID, as the leader has them."""
    page = members.leader_first().ask(
        AllocatedBlocksPage, "GET", f"/v1/producer-ids/blocks?after={after}&limit={limit}"
    )
    if output != TABLE:
        print_document(page, output)
        return
    print_table(
        ("First", "Last", "BrokerId", "BrokerEpoch", "Offset", "AllocatedAt"),
        [(b.first, b.last, b.broker_id, b.broker_epoch, b.offset, _time(b.timestamp_ms)) for b in page.blocks],
    )
    if page.next_after is not None:
        click.echo(f"more: --after {page.next_after}", err=True)
    if page.complete_from > 0:
        click.echo(f"the allocation history of this member is incomplete below ID {page.complete_from}", err=True)


@ids.command("raise-floor")
@click.argument("at_least", type=PRODUCER_ID)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. The skipped IDs will never be used.")
@click.option("--force", is_flag=True, help="Skip more IDs than one call may. Takes the operators' --token-file.")
@asks_controllers
@output_option
def raise_floor(
    at_least: int,
    yes: bool,
    force: bool,
    members: Controllers,
    output: str,
) -> None:
    """Make AT_LEAST the lowest producer ID that may still be allocated. This cannot be undone."""
    if not yes:
        click.confirm(f"Never allocate a producer ID below {at_least} again?", abort=True)
    answer = members.ask(RaiseFloorResponse, "POST", "/v1/producer-ids/floor", RaiseFloorRequest(at_least, force))
    if output != TABLE:
        print_document(answer, output)
    else:
        click.echo(
            f"next producer ID: {answer.next_producer_id}"
            + ("" if answer.raised else " (unchanged: it was there already)")
        )


def _ascends(before: AllocateProducerIdsResponse, after: AllocateProducerIdsResponse) -> None:
    """Raises CommandError if the later block is not above the earlier one, as a quorum's always is."""
    if after.producer_id_start < before.producer_id_start + before.producer_id_len:
        first, second = (
            f"{one.producer_id_start} to {one.producer_id_start + one.producer_id_len - 1}" for one in (before, after)
        )
        raise CommandError(
            f"IDs {second} were given out after {first}, and a quorum never goes back: IDs may be given out twice. "
            "Stop its agents, keep the members' directories, and compare them with `pidkeeper audit run`",
            ExitCode.UNHEALTHY,
        )


def _time(timestamp_ms: int) -> str:
    moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
