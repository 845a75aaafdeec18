"""OffsetCommit, key 8, versions 2 to 9 (KIP-211 from version 5, KIP-320 from 6, KIP-345 from 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import finish
from pidkeeper.broker_agent.kafka.wire.groups.partitions import (
    TopicCodes,
    TopicCommits,
    codes_response,
    read_topic_commits,
)
from pidkeeper.service.kafka.wire.primitives import Reader, int32, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(2, 9, first_flexible=8)
"""Version 10 is left out: it has topic ids (KIP-848)."""

_LAST_WITH_RETENTION: Final = 4
_THROTTLE_SINCE: Final = 3
_LEADER_EPOCH_SINCE: Final = 6
_INSTANCES_SINCE: Final = 7


class OffsetCommitRequest(msgspec.Struct, frozen=True):
    """`generation`, `member_id`, `instance_id`: of the member that commits; -1, "" and None without one."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    topics: list[TopicCommits]


def read_offset_commit_request(reader: Reader, version: int) -> OffsetCommitRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    group_id, generation, member_id = reader.string(flexible=flexible), reader.int32(), reader.string(flexible=flexible)
    instance_id = reader.nullable_string(flexible=flexible) if version >= _INSTANCES_SINCE else None
    if version <= _LAST_WITH_RETENTION:
        reader.int64()  # How long offsets are kept is a setting of the cluster.
    topics = read_topic_commits(reader, flexible=flexible, leader_epochs=version >= _LEADER_EPOCH_SINCE)
    finish(reader, flexible=flexible)
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, topics)


def offset_commit_response(version: int, topics: Sequence[TopicCodes]) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    throttle = int32(0) if version >= _THROTTLE_SINCE else b""
    return throttle + codes_response(topics, flexible=flexible) + tags(flexible=flexible)
