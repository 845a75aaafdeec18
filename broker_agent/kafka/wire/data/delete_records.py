"""DeleteRecords, key 21, versions 0 to 2 (KIP-107)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 2, first_flexible=2)

HIGH_WATERMARK: Final = -1
"""The offset that deletes all there is."""

NO_OFFSET: Final = -1


class PartitionEnd(msgspec.Struct, frozen=True):
    """Records before `offset` are to go; HIGH_WATERMARK for all."""

    partition: int
    offset: int


class TopicEnds(msgspec.Struct, frozen=True):
    """What is to go of one topic."""

    topic: str
    partitions: list[PartitionEnd]


class DeleteRecordsRequest(msgspec.Struct, frozen=True):
    """Up to where partitions are to lose their records."""

    topics: list[TopicEnds]
    timeout_ms: int


class PartitionLowWatermark(msgspec.Struct, frozen=True):
    """The outcome for one partition: its first offset now, NO_OFFSET beside an error."""

    partition: int
    low_watermark: int = NO_OFFSET
    error_code: int = 0


class TopicLowWatermarks(msgspec.Struct, frozen=True):
    """The outcome for one topic."""

    topic: str
    partitions: Sequence[PartitionLowWatermark]


def read_delete_records_request(reader: Reader, version: int) -> DeleteRecordsRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    count = reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)
    topics = [_read_topic(reader, flexible=flexible) for _ in range(count)]
    timeout_ms = reader.int32()
    if flexible:
        reader.skip_tags()
    reader.finish()
    return DeleteRecordsRequest(topics, timeout_ms)


def _read_topic(reader: Reader, *, flexible: bool) -> TopicEnds:
    topic = reader.string(flexible=flexible)
    count = reader.array_length(flexible=flexible, min_element_bytes=12)
    partitions = [_read_partition(reader, flexible=flexible) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return TopicEnds(topic, partitions)


def _read_partition(reader: Reader, *, flexible: bool) -> PartitionEnd:
    partition = PartitionEnd(reader.int32(), reader.int64())
    if flexible:
        reader.skip_tags()
    return partition


def delete_records_response(version: int, topics: Sequence[TopicLowWatermarks], throttle_time_ms: int = 0) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    results = [
        string(one.topic, flexible=flexible)
        + array([_low_watermark(partition, flexible=flexible) for partition in one.partitions], flexible=flexible)
        + tags(flexible=flexible)
        for one in topics
    ]
    return int32(throttle_time_ms) + array(results, flexible=flexible) + tags(flexible=flexible)


def _low_watermark(one: PartitionLowWatermark, *, flexible: bool) -> bytes:
    return int32(one.partition) + int64(one.low_watermark) + int16(one.error_code) + tags(flexible=flexible)
