"""What is asked of the controllers about a consumer group: the group, its offsets, and the ends of their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import click
import msgspec

from pidkeeper.cli.controllers import Controllers
from pidkeeper.cli.failures import RefusedError
from pidkeeper.cli.topics import described
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import MAX_FETCHED_OFFSETS, FetchedOffset, GroupDescription, OffsetsPage
from pidkeeper.protocol.log_messages import PartitionDescription

PAGE: Final = MAX_FETCHED_OFFSETS

PARTITIONS_AT_ONCE: Final = 200
"""In one request, which may take 64 KiB: the longest names of as many topics take 58."""

T = TypeVar("T")


class GroupOffset(msgspec.Struct, frozen=True):
    """Where a group is to go on in one partition; `offset` None if it has committed none.

    `pending`: a transaction holds an offset. `end`: of the partition; None if the topic went away meanwhile. `lag`: the
    offsets between.
    """

    topic: str
    partition: int
    offset: int | None
    leader_epoch: int
    metadata: str
    committed_ms: int
    pending: bool
    end: int | None
    lag: int | None


class Wanted(NamedTuple):
    """Partitions that were asked for, by topic; None for all of them."""

    topics: dict[str, frozenset[int] | None]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """From texts such as `topic` and `topic:0,1`. Raises click.BadParameter."""
        topics: dict[str, frozenset[int] | None] = {}
        for text in texts:
            topic, colon, numbers = text.partition(":")
            if not topic or not all(number.isdecimal() for number in (numbers.split(",") if colon else ())):
                raise click.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:P,P", param_hint="--topic")
            some = frozenset(map(int, numbers.split(","))) if colon else None
            known = topics.get(topic, frozenset())
            topics[topic] = None if some is None or known is None else known | some
        return cls(topics)

    def has(self, topic: str, partition: int) -> bool:
        """Whether a partition is among them."""
        some = self.topics.get(topic, frozenset())
        return some is None or partition in some


def described_group(members: Controllers, group: str) -> GroupDescription:
    """A consumer group. Raises CommandError; RefusedError if there is none."""
    return members.ask(GroupDescription, "GET", f"/v1/groups/describe?{urlencode({'group': group})}")


def plain(one: GroupDescription) -> dict[str, Any]:
    """With its members by the names of their fields, which they have not on the wire."""
    fields = {name: getattr(one, name) for name in one.__struct_fields__}
    return {**fields, "members": [msgspec.structs.asdict(each) for each in one.members]}


def group_offsets(members: Controllers, group: str) -> list[GroupOffset]:
    """The offsets of a group, also those that transactions hold, in order. Raises CommandError."""
    found = list(fetched_offsets(members, group))
    ends = {topic: _ends(members, topic) for topic in dict.fromkeys(one.topic for one in found)}
    return [_joined(one, ends[one.topic].get(one.partition)) for one in found]


def fetched_offsets(members: Controllers, group: str) -> Iterator[FetchedOffset]:
    """The same, without the ends of the partitions."""
    query: dict[str, str | int] = {"group": group, "limit": PAGE}
    while True:
        page = members.ask(OffsetsPage, "GET", f"/v1/groups/offsets?{urlencode(query)}")
        yield from page.offsets
        if page.next_after is None:
            return
        query["after_topic"], query["after_partition"] = page.next_after


def portions(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as one request takes at a time."""
    return (rows[first : first + PARTITIONS_AT_ONCE] for first in range(0, len(rows), PARTITIONS_AT_ONCE))


def by_topic(rows: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    """What there is of each topic, in order."""
    found: dict[str, list[T]] = {}
    for topic, one in rows:
        found.setdefault(topic, []).append(one)
    return found


def _ends(members: Controllers, topic: str) -> dict[int, PartitionDescription]:
    """The partitions of a topic by number; none if it went away."""
    try:
        return {one.partition: one for one in described(members, topic)[1]}
    except RefusedError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name:
            raise
        return {}


def _joined(one: FetchedOffset, log: PartitionDescription | None) -> GroupOffset:
    offset = None if one.offset < 0 else one.offset
    end = None if log is None else log.end
    return GroupOffset(
        one.topic,
        one.partition,
        offset,
        one.leader_epoch,
        one.metadata,
        one.timestamp_ms,
        one.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT.kafka_code,
        end,
        None if end is None or offset is None else end - offset,
    )
