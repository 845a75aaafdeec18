"""What requests about a group's offsets have in common: partitions by topic, and a code for each."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import MAX_PARTITIONS, bounded
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, string, tags


class PartitionCommit(msgspec.Struct, frozen=True):
    """Where the group is to go on. `leader_epoch`: -1 if it is not told; `metadata`: may be null."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class TopicCommits(msgspec.Struct, frozen=True):
    """What is to be committed of one topic."""

    topic: str
    partitions: list[PartitionCommit]


class TopicPartitions(msgspec.Struct, frozen=True):
    """Partitions of one topic."""

    topic: str
    partitions: list[int]


class PartitionCode(msgspec.Struct, frozen=True):
    """The outcome for one partition."""

    partition: int
    error_code: int = 0


class TopicCodes(msgspec.Struct, frozen=True):
    """The outcome for one topic."""

    topic: str
    partitions: Sequence[PartitionCode]


class PartitionCount:
    """How many partitions a request has, over all its topics."""

    def __init__(self) -> None:
        self._count = 0

    def add(self, more: int) -> int:
        """`more`. Raises WireError if these are more than MAX_PARTITIONS with those before."""
        self._count = bounded(self._count + more, MAX_PARTITIONS, "partitions")
        return more


def read_topic_commits(reader: Reader, *, flexible: bool, leader_epochs: bool) -> list[TopicCommits]:
    """Topics with what is to be committed; `leader_epochs`: whether the version has them. Raises WireError."""
    total = PartitionCount()
    count = reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)
    return [_read_commits(reader, total, flexible=flexible, leader_epochs=leader_epochs) for _ in range(count)]


def _read_commits(reader: Reader, total: PartitionCount, *, flexible: bool, leader_epochs: bool) -> TopicCommits:
    topic = reader.string(flexible=flexible)
    least = 12 + 4 * leader_epochs + 2
    count = total.add(reader.array_length(flexible=flexible, min_element_bytes=least))
    partitions = [_read_commit(reader, flexible=flexible, leader_epochs=leader_epochs) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return TopicCommits(topic, partitions)


def _read_commit(reader: Reader, *, flexible: bool, leader_epochs: bool) -> PartitionCommit:
    commit = PartitionCommit(
        reader.int32(),
        reader.int64(),
        reader.int32() if leader_epochs else -1,
        reader.nullable_string(flexible=flexible),
    )
    if flexible:
        reader.skip_tags()
    return commit


def read_topic_partitions(
    reader: Reader, total: PartitionCount, count: int, *, flexible: bool
) -> list[TopicPartitions]:
    """`count` topics with the numbers of some partitions. Raises WireError."""
    return [_read_numbers(reader, total, flexible=flexible) for _ in range(count)]


def _read_numbers(reader: Reader, total: PartitionCount, *, flexible: bool) -> TopicPartitions:
    topic = reader.string(flexible=flexible)
    count = total.add(reader.array_length(flexible=flexible, min_element_bytes=4))
    numbers = [reader.int32() for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return TopicPartitions(topic, numbers)


def codes_response(topics: Sequence[TopicCodes], *, flexible: bool) -> bytes:
    """The array of topics in an answer."""
    end = tags(flexible=flexible)
    return array(
        [
            string(one.topic, flexible=flexible)
            + array(
                [int32(each.partition) + int16(each.error_code) + end for each in one.partitions], flexible=flexible
            )
            + end
            for one in topics
        ],
        flexible=flexible,
    )
