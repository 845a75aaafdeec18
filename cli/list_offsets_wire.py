"""The client's side of ListOffsets, version 1; the agent's is in `broker_agent.kafka.wire.data.list_offsets`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.kafka.wire.data.list_offsets import VERSIONS, PartitionOffset
from pidkeeper.service.kafka.wire.primitives import Reader, WireError, array, int32, int64, string

VERSION: Final = VERSIONS.lowest
"""It says all that is asked here, and is served by all."""

_NO_BROKER: Final = -1


def write_list_offsets_request(topic: str, partitions: Sequence[int], timestamp: int) -> bytes:
    """The body: the first offset since `timestamp` in each partition of one topic."""
    wanted = [int32(partition) + int64(timestamp) for partition in partitions]
    return int32(_NO_BROKER) + array([string(topic, flexible=False) + array(wanted, flexible=False)], flexible=False)


def read_list_offsets_response(reader: Reader, topic: str) -> list[PartitionOffset]:
    """What an answer has of the one topic that was asked for. Raises WireError, also for one about another topic."""
    if (count := reader.array_length(flexible=False, min_element_bytes=6)) != 1:
        raise WireError(f"an answer about {count} topics, where one was asked for")
    if (name := reader.string(flexible=False)) != topic:
        raise WireError(f"an answer about {name}, where {topic} was asked for")
    count = reader.array_length(flexible=False, min_element_bytes=22)
    found = [PartitionOffset(reader.int32(), reader.int16(), reader.int64(), reader.int64()) for _ in range(count)]
    reader.finish()
    return found
