"""ListOffsets, key 2, versions 1 to 7 (KIP-79; KIP-98 from version 2, KIP-320 from 4, KIP-734 from 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel, read_isolation_level
from pidkeeper.protocol.log_messages import EARLIEST, LATEST, MAX_TIMESTAMP
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(1, 7, first_flexible=6)

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1

_FIRST_VERSIONS: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7}

_ISOLATION_SINCE: Final = 2
_LEADER_EPOCH_SINCE: Final = 4


class PartitionTimestamp(msgspec.Struct, frozen=True):
    """Wanted: the first offset with at least `timestamp`, in ms since 1970, or what a negative one stands for."""

    partition: int
    timestamp: int
    current_leader_epoch: int = -1


class TopicTimestamps(msgspec.Struct, frozen=True):
    """What is wanted of one topic."""

    topic: str
    partitions: list[PartitionTimestamp]


class ListOffsetsRequest(msgspec.Struct, frozen=True):
    """`replica_id`: -1 for a consumer."""

    replica_id: int
    isolation_level: IsolationLevel
    topics: list[TopicTimestamps]


class PartitionOffset(msgspec.Struct, frozen=True):
    """The outcome for one partition; NO_OFFSET and NO_TIMESTAMP if no record is so late, or beside an error."""

    partition: int
    error_code: int = 0
    timestamp: int = NO_TIMESTAMP
    offset: int = NO_OFFSET
    leader_epoch: int = -1


class TopicOffsets(msgspec.Struct, frozen=True):
    """The outcome for one topic."""

    topic: str
    partitions: Sequence[PartitionOffset]


def is_known_timestamp(version: int, timestamp: int) -> bool:
    """Whether a request of `version` may ask for `timestamp`; else the partition gets UNSUPPORTED_VERSION."""
    return timestamp >= 0 or version >= _FIRST_VERSIONS.get(timestamp, VERSIONS.highest + 1)


def read_list_offsets_request(reader: Reader, version: int) -> ListOffsetsRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    replica_id = reader.int32()
    level = read_isolation_level(reader) if version >= _ISOLATION_SINCE else IsolationLevel.READ_UNCOMMITTED
    count = reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)
    topics = [_read_topic(reader, version) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    reader.finish()
    return ListOffsetsRequest(replica_id, level, topics)


def _read_topic(reader: Reader, version: int) -> TopicTimestamps:
    flexible = VERSIONS.is_flexible(version)
    topic = reader.string(flexible=flexible)
    count = reader.array_length(flexible=flexible, min_element_bytes=12)
    partitions = [_read_partition(reader, version) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return TopicTimestamps(topic, partitions)


def _read_partition(reader: Reader, version: int) -> PartitionTimestamp:
    partition = reader.int32()
    leader_epoch = reader.int32() if version >= _LEADER_EPOCH_SINCE else -1
    timestamp = reader.int64()
    if VERSIONS.is_flexible(version):
        reader.skip_tags()
    return PartitionTimestamp(partition, timestamp, leader_epoch)


def list_offsets_response(version: int, topics: Sequence[TopicOffsets], throttle_time_ms: int = 0) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    throttle = int32(throttle_time_ms) if version >= 2 else b""
    results = [
        string(one.topic, flexible=flexible)
        + array([_offset(partition, version) for partition in one.partitions], flexible=flexible)
        + tags(flexible=flexible)
        for one in topics
    ]
    return throttle + array(results, flexible=flexible) + tags(flexible=flexible)


def _offset(one: PartitionOffset, version: int) -> bytes:
    epoch = int32(one.leader_epoch) if version >= _LEADER_EPOCH_SINCE else b""
    found = int32(one.partition) + int16(one.error_code) + int64(one.timestamp) + int64(one.offset)
    return found + epoch + tags(flexible=VERSIONS.is_flexible(version))
