"""OffsetFetch, key 9, versions 1 to 9 (KIP-320 from version 5, KIP-447 from 7, KIP-709 from 8, KIP-848 from 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import finish
from pidkeeper.broker_agent.kafka.wire.groups.partitions import (
    PartitionCount,
    TopicPartitions,
    read_topic_partitions,
)
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(1, 9, first_flexible=6)
"""Version 10 is left out: it has topic ids (KIP-848)."""

NO_OFFSET: Final = -1

BATCHED_SINCE: Final = 8
"""The first version that asks for several groups, each with a code of its own."""

_CODE_SINCE: Final = 2
_ALL_TOPICS_SINCE: Final = 2
_THROTTLE_SINCE: Final = 3
_LEADER_EPOCH_SINCE: Final = 5
_REQUIRE_STABLE_SINCE: Final = 7
_MEMBERS_SINCE: Final = 9


class GroupOffsets(msgspec.Struct, frozen=True):
    """What is wanted of one group; `topics` is None for all. `member_id`, `member_epoch`: None and -1 but for members
    of groups of KIP-848."""

    group_id: str
    topics: list[TopicPartitions] | None
    member_id: str | None = None
    member_epoch: int = -1


class OffsetFetchRequest(msgspec.Struct, frozen=True):
    """`groups`: exactly one before version 8. `require_stable`: offsets that a transaction may replace are refused."""

    groups: list[GroupOffsets]
    require_stable: bool = False


class FetchedOffset(msgspec.Struct, frozen=True):
    """The outcome for one partition; NO_OFFSET if there is none, or beside an error."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class FetchedTopicOffsets(msgspec.Struct, frozen=True):
    """The outcome for one topic."""

    topic: str
    partitions: Sequence[FetchedOffset]


class FetchedGroup(msgspec.Struct, frozen=True):
    """The outcome for one group. `error_code`: of the whole group, beside which there are no topics."""

    group_id: str
    topics: Sequence[FetchedTopicOffsets]
    error_code: int = 0


def read_offset_fetch_request(reader: Reader, version: int) -> OffsetFetchRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    total = PartitionCount()
    if version >= BATCHED_SINCE:
        least = 8 if version >= _MEMBERS_SINCE else 3
        count = reader.array_length(flexible=True, min_element_bytes=least)
        groups = [_read_group(reader, version, total) for _ in range(count)]
    else:
        groups = [GroupOffsets(reader.string(flexible=flexible), _read_topics(reader, version, total))]
    require_stable = reader.boolean() if version >= _REQUIRE_STABLE_SINCE else False
    finish(reader, flexible=flexible)
    return OffsetFetchRequest(groups, require_stable)


def _read_group(reader: Reader, version: int, total: PartitionCount) -> GroupOffsets:
    members = version >= _MEMBERS_SINCE
    group_id = reader.string(flexible=True)
    member_id = reader.nullable_string(flexible=True) if members else None
    member_epoch = reader.int32() if members else -1
    group = GroupOffsets(group_id, _read_topics(reader, version, total), member_id, member_epoch)
    reader.skip_tags()
    return group


def _read_topics(reader: Reader, version: int, total: PartitionCount) -> list[TopicPartitions] | None:
    flexible = VERSIONS.is_flexible(version)
    least = 3 if flexible else 6
    if version < _ALL_TOPICS_SINCE:
        count: int | None = reader.array_length(flexible=flexible, min_element_bytes=least)
    else:
        count = reader.nullable_array_length(flexible=flexible, min_element_bytes=least)
    return None if count is None else read_topic_partitions(reader, total, count, flexible=flexible)


def offset_fetch_response(version: int, groups: Sequence[FetchedGroup]) -> bytes:
    """The body of the answer: exactly one group before version 8."""
    flexible = VERSIONS.is_flexible(version)
    throttle = int32(0) if version >= _THROTTLE_SINCE else b""
    if version >= BATCHED_SINCE:
        return throttle + array([_group(one, version) for one in groups], flexible=True) + tags(flexible=True)
    (one,) = groups
    code = int16(one.error_code) if version >= _CODE_SINCE else b""
    return throttle + _topics(one.topics, version) + code + tags(flexible=flexible)


def _group(one: FetchedGroup, version: int) -> bytes:
    return (
        string(one.group_id, flexible=True) + _topics(one.topics, version) + int16(one.error_code) + tags(flexible=True)
    )


def _topics(topics: Sequence[FetchedTopicOffsets], version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return array(
        [
            string(one.topic, flexible=flexible)
            + array([_offset(each, version) for each in one.partitions], flexible=flexible)
            + tags(flexible=flexible)
            for one in topics
        ],
        flexible=flexible,
    )


def _offset(one: FetchedOffset, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            int32(one.partition) + int64(one.offset),
            int32(one.leader_epoch) if version >= _LEADER_EPOCH_SINCE else b"",
            string(one.metadata, flexible=flexible) + int16(one.error_code) + tags(flexible=flexible),
        )
    )
