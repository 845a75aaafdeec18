"""`pidkeeper groups reset-offsets`: where a consumer group goes on next, in the words of kafka-consumer-groups.sh."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import Final, NamedTuple

import click
import msgspec

from pidkeeper.cli.agent_options import AgentChoice, asks_agent
from pidkeeper.cli.controllers import Controllers, asks_controllers
from pidkeeper.cli.failures import CommandError, ExitCode, RefusedError
from pidkeeper.cli.group_offsets import Wanted, by_topic, described_group, fetched_offsets, portions
from pidkeeper.cli.output import TABLE, output_option, print_document, print_table
from pidkeeper.cli.topics import described
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import CommitOffsetsResponse, ResetOffsetsRequest
from pidkeeper.protocol.groups import NO_LEADER_EPOCH, PartitionOffset, TopicOffsets
from pidkeeper.protocol.log_messages import PartitionDescription

MAX_OFFSET: Final = 2**63 - 1
TIME_FORMATS: Final = ("%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%dT%H:%M:%S%z")


class Reset(msgspec.Struct, frozen=True):
    """One partition; `offset`: where the group would go on without the reset, None if it has committed none."""

    topic: str
    partition: int
    offset: int | None
    new_offset: int


class Place(NamedTuple):
    """A partition that is reset: what the quorum says of its log, and the committed offset."""

    topic: str
    log: PartitionDescription
    offset: int | None


@click.command("reset-offsets")
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    metavar="TOPIC[:P,P]",
    help="A topic, or some of its partitions. May be given again.",
)
@click.option("--to-earliest", is_flag=True, help="To the first offset that is there.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-offset", type=click.IntRange(0, MAX_OFFSET), metavar="N", help="To this offset.")
@click.option(
    "--shift-by", type=click.IntRange(-MAX_OFFSET, MAX_OFFSET), metavar="N", help="So many offsets on, or back."
)
@click.option(
    "--to-datetime",
    type=click.DateTime(TIME_FORMATS),
    metavar="TIME",
    help="To the first record since then, as 2026-01-31T12:00:00.000; UTC, unless it says otherwise. Asks an agent.",
)
@click.option("--execute", is_flag=True, help="Do it. Without, only what would be done is shown.")
@asks_agent
@asks_controllers
@output_option
def reset_offsets(
    group: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: dt.datetime | None,
    execute: bool,
    agent: AgentChoice,
    members: Controllers,
    output: str,
) -> None:
    """Have GROUP, which must have no members, go on at other offsets.

    Shows the new offset of each partition, and changes nothing without --execute. An offset that a partition has not is
    replaced by the nearest one that it has. A group that is not known yet is made.
    """
    ways = [to_earliest, to_latest, to_offset is not None, shift_by is not None, to_datetime is not None]
    if sum(ways) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --shift-by, --to-datetime")
    places = _places(members, group, Wanted.of(topics))
    if to_datetime is not None:
        offsets = _by_time(members, agent, to_datetime, places)
    elif to_offset is not None:
        offsets = [to_offset for _ in places]
    elif shift_by is not None:
        offsets = [_committed(place) + shift_by for place in places]
    else:
        offsets = [place.log.end if to_latest else place.log.start for place in places]
    resets = [_reset(place, offset) for place, offset in zip(places, offsets, strict=True)]
    codes = _carry_out(members, group, resets) if execute else []
    _print(resets, output)
    if not execute and output == TABLE:
        click.echo("nothing was changed: --execute does it", err=True)
    if refused := {code for code in codes if code}:
        names = ", ".join(one.name for one in ErrorCode if one.kafka_code in refused)
        raise CommandError(f"{len(codes) - codes.count(0)} of {len(codes)} were refused: {names}", ExitCode.REFUSED)


def _places(members: Controllers, group: str, wanted: Wanted) -> list[Place]:
    """The wanted partitions, in order. Raises CommandError."""
    committed = _offsets_of(members, group)
    places = []
    for topic, some in wanted.topics.items():
        logs = {one.partition: one for one in described(members, topic)[1]}
        if missing := sorted((some or frozenset()) - logs.keys()):
            raise CommandError(f"topic {topic} has no partition {missing[0]}", ExitCode.REFUSED)
        numbers = logs if some is None else sorted(some)
        places += [Place(topic, logs[number], committed.get((topic, number))) for number in numbers]
    return places


def _offsets_of(members: Controllers, group: str) -> dict[tuple[str, int], int]:
    """What the group has committed; nothing if it is not known. Raises CommandError if it has members."""
    try:
        if described_group(members, group).members:
            raise CommandError(f"group {group} has members: stop them first", ExitCode.REFUSED)
        known = list(fetched_offsets(members, group))
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND.name:
            raise
        known = []
    return {(one.topic, one.partition): one.offset for one in known if one.offset >= 0}


def _committed(place: Place) -> int:
    if place.offset is None:
        reason = f"the group has committed no offset of {place.topic}-{place.log.partition} that could be shifted"
        raise CommandError(reason, ExitCode.REFUSED)
    return place.offset


def _by_time(members: Controllers, agent: AgentChoice, moment: dt.datetime, places: list[Place]) -> list[int]:
    """The first offset since `moment` in each partition, or its end; as consumers find it."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    # Below 0 a timestamp stands for something else.
    since_ms = max(round(moment.timestamp() * 1000), 0)
    # What speaks with agents is loaded for this alone.
    from pidkeeper.cli.offset_finding import offsets_since

    wanted = by_topic((place.topic, place.log.partition) for place in places)
    with contextlib.closing(agent.connect(members)) as client:
        found = {
            (topic, partition): offset
            for topic, partitions in wanted.items()
            for partition, offset in offsets_since(client, topic, partitions, since_ms, members.timeout).items()
        }
    return [found.get((place.topic, place.log.partition), place.log.end) for place in places]


def _reset(place: Place, offset: int) -> Reset:
    log = place.log
    return Reset(place.topic, log.partition, place.offset, min(max(offset, log.start), log.end))


def _carry_out(members: Controllers, group: str, resets: list[Reset]) -> list[int]:
    """The code of each. Raises CommandError; what was done until then stays."""
    codes = []
    for portion in portions(resets):
        rows = by_topic(
            (one.topic, PartitionOffset(one.partition, one.new_offset, NO_LEADER_EPOCH, "")) for one in portion
        )
        request = ResetOffsetsRequest(group, [TopicOffsets(topic, tuple(some)) for topic, some in rows.items()])
        full = ErrorCode.COORDINATOR_NOT_AVAILABLE
        codes += members.ask(CommitOffsetsResponse, "POST", "/v1/groups/offsets/reset", request, final=full).codes
    return codes


def _print(resets: list[Reset], output: str) -> None:
    if output != TABLE:
        print_document(resets, output)
        return
    print_table(
        ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        [(one.topic, one.partition, one.offset, one.new_offset) for one in resets],
    )
