"""TxnOffsetCommit, key 28, versions 0 to 5 (KIP-98; KIP-320 from version 2, KIP-447 from 3, KIP-890 from 4)."""

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

VERSIONS: Final = Versions(0, 5, first_flexible=3)

_LEADER_EPOCH_SINCE: Final = 2
_MEMBERS_SINCE: Final = 3
_JOINING_SINCE: Final = 5


class TxnOffsetCommitRequest(msgspec.Struct, frozen=True):
    """`generation`, `member_id`, `instance_id`: of the member that read the records; -1, "" and None if not told.

    `joining`: the group joins the transaction with its offsets (KIP-890).
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation: int
    member_id: str
    instance_id: str | None
    topics: list[TopicCommits]
    joining: bool = False


def read_txn_offset_commit_request(reader: Reader, version: int) -> TxnOffsetCommitRequest:
    """Read the whole body. Raises WireError."""
    flexible, members = VERSIONS.is_flexible(version), version >= _MEMBERS_SINCE
    transactional_id, group_id = reader.string(flexible=flexible), reader.string(flexible=flexible)
    producer_id, producer_epoch = reader.int64(), reader.int16()
    generation = reader.int32() if members else -1
    member_id = reader.string(flexible=flexible) if members else ""
    instance_id = reader.nullable_string(flexible=flexible) if members else None
    topics = read_topic_commits(reader, flexible=flexible, leader_epochs=version >= _LEADER_EPOCH_SINCE)
    finish(reader, flexible=flexible)
    return TxnOffsetCommitRequest(
        transactional_id,
        group_id,
        producer_id,
        producer_epoch,
        generation,
        member_id,
        instance_id,
        topics,
        version >= _JOINING_SINCE,
    )


def txn_offset_commit_response(version: int, topics: Sequence[TopicCodes]) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    return int32(0) + codes_response(topics, flexible=flexible) + tags(flexible=flexible)
