"""`pidkeeper groups`: what kafka-consumer-groups.sh shows and does, asked of the quorum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlencode

import click

from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import RefusedError
from pidkeeper.cli.group_offsets import (
    GroupOffset,
    Wanted,
    by_topic,
    described_group,
    fetched_offsets,
    group_offsets,
    plain,
    portions,
)
from pidkeeper.cli.group_resets import reset_offsets
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import (
    DeleteGroupResponse,
    DeleteOffsetsRequest,
    DeleteOffsetsResponse,
    GroupDescription,
    GroupsPage,
)
from pidkeeper.protocol.transactions import TopicPartitions

PAGE: Final = 1000


@click.group()
def groups() -> None:
    """List, describe and delete consumer groups, and have them go on at other offsets."""


@groups.command("list")
@asks_controllers
@output_option
@watch_option
def list_(members: Controllers, output: str) -> None:
    """List the consumer groups, sorted by id.

    Members are those of the generation, which came together at the broker that is the Coordinator. A group of which
    offsets alone are known has neither. Pending are the partitions for which transactions hold an offset.
    """
    found = list(_all(members))
    if output != TABLE:
        print_document([plain(one) for one in found], output)
        return
    print_table(
        ("Group", "Type", "Coordinator", "Generation", "Members", "Offsets", "Pending"),
        [
            (
                one.group_id,
                one.protocol_type or None,
                _known(one.broker_id),
                _known(one.generation),
                len(one.members),
                one.offsets,
                one.pending,
            )
            for one in found
        ],
    )


@groups.command()
@click.argument("group")
@asks_controllers
@output_option
@watch_option
def describe(group: str, members: Controllers, output: str) -> None:
    """Describe GROUP: its members, and where it is to go on in each partition.

    LAG is how many offsets are before the end of the partition, markers of transactions included. PENDING says that a
    transaction holds an offset that takes the place of CURRENT-OFFSET when it is committed.
    """
    one, offsets = described_group(members, group), group_offsets(members, group)
    if output != TABLE:
        print_document({"group": plain(one), "offsets": offsets}, output)
        return
    print_facts(
        [
            ("Group", one.group_id),
            ("Type", one.protocol_type or None),
            ("Coordinator", _known(one.broker_id)),
            ("Generation", _known(one.generation)),
        ]
    )
    if one.members:
        print_table(
            ("MemberId", "InstanceId", "ClientId", "Host"),
            [(each.member_id, each.instance_id, each.client_id, each.host) for each in one.members],
        )
    _print_offsets(offsets)


@groups.command()
@click.argument("group")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. The group's offsets will be gone.")
@asks_controllers
@output_option
def delete(group: str, yes: bool, members: Controllers, output: str) -> None:
    """Delete GROUP, which must have no members, with its offsets. This cannot be undone."""
    one = described_group(members, group)
    if not yes:
        click.confirm(f"Delete group {group} (offsets: {one.offsets})?", abort=True)
    try:
        gone = members.ask(DeleteGroupResponse, "DELETE", f"/v1/groups?{urlencode({'group': group})}")
    except RefusedError as error:
        # It was there just now: an earlier attempt, whose answer was lost, has deleted it, or somebody else has.
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND.name:
            raise
        gone = DeleteGroupResponse(group)
    if output != TABLE:
        print_document(gone, output)
    else:
        click.echo(f"group {gone.group_id} is deleted")


@groups.command("delete-offsets")
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:P,P]",
    help="A topic whose offsets are deleted, or some of its partitions. May be given again.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks_controllers
@output_option
def delete_offsets(group: str, topics: tuple[str, ...], yes: bool, members: Controllers, output: str) -> None:
    """Delete offsets of GROUP, which must have no members.

    A consumer of these partitions then begins where its `auto.offset.reset` says.
    """
    wanted = Wanted.of(topics)
    known = [(one.topic, one.partition) for one in fetched_offsets(members, group) if one.offset >= 0]
    doomed = [place for place in known if wanted.has(*place)]
    if doomed and not yes:
        click.confirm(f"Delete offsets of group {group} (partitions: {len(doomed)})?", abort=True)
    deleted = 0
    for portion in portions(doomed):
        request = DeleteOffsetsRequest(
            group, [TopicPartitions(topic, tuple(some)) for topic, some in by_topic(portion).items()]
        )
        deleted += members.ask(DeleteOffsetsResponse, "POST", "/v1/groups/offsets/forget", request).deleted
    if output != TABLE:
        print_document(DeleteOffsetsResponse(deleted), output)
    else:
        click.echo(f"offsets of group {group} deleted: {deleted}")


groups.add_command(reset_offsets)


def _print_offsets(offsets: list[GroupOffset]) -> None:
    print_table(
        ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "PENDING"),
        [(one.topic, one.partition, one.offset, one.end, one.lag, "yes" if one.pending else "no") for one in offsets],
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _all(members: Controllers) -> Iterator[GroupDescription]:
    """All pages of the list."""
    query: dict[str, str | int] = {"limit": PAGE}
    while True:
        page = members.ask(GroupsPage, "GET", f"/v1/groups?{urlencode(query)}")
        yield from page.groups
        if page.next_after is None:
            return
        query["after"] = page.next_after
