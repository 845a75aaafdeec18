"""`pidkeeper brokers`: the registrations of brokers, as the quorum has them."""

from __future__ import annotations

import click

from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.ids import MAX_BROKER_ID
from pidkeeper.protocol.messages import (
    BrokerDescription,
    BrokersResponse,
    FenceBrokerRequest,
    FenceBrokerResponse,
)


@click.group()
def brokers() -> None:
    """List the registered brokers, fence one."""


@brokers.command("list")
@asks_controllers
@output_option
@watch_option
def list_(members: Controllers, output: str) -> None:
    """List the registered brokers, as the leader has them.

    A broker is fenced once its heartbeats have stopped; its next one ends that. LastContact is when the leader last
    heard it, if that was since it leads.
    """
    known = registered(members)
    if output != TABLE:
        print_document(known, output)
        return
    print_table(
        ("BrokerId", "Epoch", "Fenced", "Kafka", "LastContact", "Incarnation"),
        [
            (one.broker_id, one.broker_epoch, _said(one.fenced), one.kafka, ago(one), one.incarnation_id)
            for one in known
        ],
    )


@brokers.command()
@click.argument("broker_id", metavar="ID", type=click.IntRange(0, MAX_BROKER_ID))
@click.option(
    "--epoch", type=click.IntRange(0, 2**63 - 1), help="Only if the broker still has this epoch; refused otherwise."
)
@asks_controllers
@output_option
def fence(broker_id: int, epoch: int | None, members: Controllers, output: str) -> None:
    """End the registration of broker ID: its epoch is stale from then on, and gets no more blocks.

    The order does not reach the process. One that lives hands out the IDs that it holds, and registers anew, under
    another epoch, as soon as it asks for something. To keep it out, stop it, or take its token or certificate away.
    """
    answer = members.ask(FenceBrokerResponse, "POST", f"/v1/brokers/{broker_id}/fence", FenceBrokerRequest(epoch))
    if output != TABLE:
        print_document(answer, output)
    else:
        click.echo(
            f"broker {broker_id} is not registered any more: epoch {answer.broker_epoch} is stale; "
            "a process that still runs registers anew"
        )


def registered(members: Controllers) -> list[BrokerDescription]:
    """By broker id. Raises CommandError."""
    return members.leader_first().ask(BrokersResponse, "GET", "/v1/brokers").brokers


def ago(one: BrokerDescription) -> str | None:
    """When it was last heard."""
    return None if one.last_contact_ms is None else f"{one.last_contact_ms / 1000:.1f} s ago"


def _said(fenced: bool) -> str:
    return "yes" if fenced else "no"
