"""`pidkeeper topics`: topics and their partitions, as the quorum has them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, urlencode

import click

from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, RefusedError
from pidkeeper.cli.output import TABLE, output_option, print_document, print_facts, print_table
from pidkeeper.cli.watch import watch_option
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import (
    CreateTopicRequest,
    DeleteTopicResponse,
    PartitionDescription,
    TopicDescription,
    TopicPartitionsPage,
    TopicsPage,
)
from pidkeeper.protocol.logs import MAX_PARTITIONS, UNLIMITED

PAGE: Final = 1000
RETENTION: Final = click.IntRange(UNLIMITED, 2**63 - 1)


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics."""


@topics.command()
@click.argument("name")
@click.option("--partitions", required=True, type=click.IntRange(1, MAX_PARTITIONS), help="Number of partitions.")
@click.option(
    "--retention-ms",
    default=UNLIMITED,
    show_default=True,
    type=RETENTION,
    metavar="MS",
    help="How long records are kept, as Kafka's retention.ms; -1 is for ever.",
)
@click.option(
    "--retention-bytes",
    default=UNLIMITED,
    show_default=True,
    type=RETENTION,
    metavar="BYTES",
    help="How much of each partition is kept, as Kafka's retention.bytes; -1 is all.",
)
@asks_controllers
@output_option
def create(
    name: str, partitions: int, retention_ms: int, retention_bytes: int, members: Controllers, output: str
) -> None:
    """Create the topic NAME."""
    # One uuid for all attempts: where only an answer was lost, the topic is there, and it is this one.
    request = CreateTopicRequest(uuid.uuid4(), name, partitions, retention_ms, retention_bytes)
    made = members.ask(TopicDescription, "POST", "/v1/topics", request)
    if output != TABLE:
        print_document(made, output)
    else:
        click.echo(f"topic {made.name} has the id {made.topic_id}, partitions: {made.partitions}")


@topics.command("list")
@asks_controllers
@output_option
@watch_option
def list_(members: Controllers, output: str) -> None:
    """List the topics, sorted by name."""
    found = list(_all(members))
    if output != TABLE:
        print_document(found, output)
        return
    print_table(
        ("Topic", "Partitions", "RetentionMs", "RetentionBytes", "TopicId"),
        [
            (one.name, one.partitions, _bound(one.retention_ms), _bound(one.retention_bytes), str(one.topic_id))
            for one in found
        ],
    )


@topics.command()
@click.argument("name")
@asks_controllers
@output_option
@watch_option
def describe(name: str, members: Controllers, output: str) -> None:
    """Describe the topic NAME and its partitions.

    Start and End are offsets: of the first record that is there, and of the next one that comes. From LastStable on,
    transactions may be undecided: HeldBy is the transactional id of the first of them. Bytes and Batches are of all
    that the partition's log has.
    """
    topic, partitions = described(members, name)
    if output != TABLE:
        print_document({"topic": topic, "partitions": [_plain(one) for one in partitions]}, output)
        return
    print_facts(
        [
            ("Topic", topic.name),
            ("TopicId", topic.topic_id),
            ("Partitions", topic.partitions),
            ("RetentionMs", _bound(topic.retention_ms)),
            ("RetentionBytes", _bound(topic.retention_bytes)),
        ]
    )
    print_table(
        ("Partition", "Log", "Start", "End", "LastStable", "Bytes", "Segments", "Batches", "HeldBy"),
        [
            (
                one.partition,
                one.log,
                one.start,
                one.end,
                one.last_stable,
                one.bytes,
                one.segments,
                one.batches,
                one.held_by,
            )
            for one in partitions
        ],
    )


@topics.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. All that the topic holds will be gone.")
@asks_controllers
@output_option
def delete(name: str, yes: bool, members: Controllers, output: str) -> None:
    """Delete the topic NAME, with all that it holds. This cannot be undone."""
    topic = described_page(members, name, -1, 1).topic
    if not yes:
        click.confirm(f"Delete topic {name} (partitions: {topic.partitions}), with all that it holds?", abort=True)
    query = urlencode({"name": name, "topic_id": str(topic.topic_id)})
    try:
        gone = members.ask(
            DeleteTopicResponse, "DELETE", f"/v1/topics?{query}", final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    except RefusedError as error:
        # It was there just now: an earlier attempt, whose answer was lost, has deleted it, or somebody else has.
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            raise
        gone = DeleteTopicResponse(topic.topic_id, topic.name)
    if output != TABLE:
        print_document(gone, output)
    else:
        click.echo(f"topic {gone.name} with the id {gone.topic_id} is deleted")


def described_page(members: Controllers, name: str, after: int, limit: int) -> TopicPartitionsPage:
    """A topic with its partitions above `after`, at most `limit`. Raises CommandError; REFUSED if there is none."""
    path = f"/v1/topics/describe?name={quote(name, safe='')}&after={after}&limit={limit}"
    return members.ask(TopicPartitionsPage, "GET", path, final=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def described(members: Controllers, name: str) -> tuple[TopicDescription, list[PartitionDescription]]:
    """A topic with all of its partitions."""
    page = described_page(members, name, -1, PAGE)
    topic, partitions = page.topic, page.partitions
    while page.next_after is not None:
        page = described_page(members, name, page.next_after, PAGE)
        if page.topic != topic:
            raise CommandError(f"topic {name} was deleted and created anew meanwhile: ask again")
        partitions += page.partitions
    return topic, partitions


def _all(members: Controllers) -> Iterator[TopicDescription]:
    """All pages of the list."""
    after: str | None = ""
    while after is not None:
        page = members.ask(TopicsPage, "GET", f"/v1/topics?after={quote(after, safe='')}&limit={PAGE}")
        yield from page.topics
        after = page.next_after


def _plain(one: PartitionDescription) -> dict[str, int]:
    """By the names of its fields, which it has not on the wire."""
    return {field: getattr(one, field) for field in one.__struct_fields__}


def _bound(retention: int) -> int | None:
    return None if retention == UNLIMITED else retention
