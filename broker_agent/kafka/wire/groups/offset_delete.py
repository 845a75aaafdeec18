"""OffsetDelete, key 47, version 0 (KIP-496)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.partitions import (
    PartitionCount,
    TopicCodes,
    TopicPartitions,
    codes_response,
    read_topic_partitions,
)
from pidkeeper.service.kafka.wire.primitives import Reader, int16, int32
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 0, first_flexible=1)


class OffsetDeleteRequest(msgspec.Struct, frozen=True):
    """Offsets of a group that are to be forgotten."""

    group_id: str
    topics: list[TopicPartitions]


def read_offset_delete_request(reader: Reader, _: int) -> OffsetDeleteRequest:
    """Read the whole body. Raises WireError."""
    group_id = reader.string(flexible=False)
    count = reader.array_length(flexible=False, min_element_bytes=6)
    topics = read_topic_partitions(reader, PartitionCount(), count, flexible=False)
    reader.finish()
    return OffsetDeleteRequest(group_id, topics)


def offset_delete_response(_: int, topics: Sequence[TopicCodes], error_code: int = 0) -> bytes:
    """The body of the answer. `error_code`: of the whole request, beside which there are no topics."""
    return int16(error_code) + int32(0) + codes_response(topics, flexible=False)
