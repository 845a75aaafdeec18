"""Produce, key 0, versions 3 to 12 (KIP-98; KIP-467 from version 8, KIP-890 from version 11)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer, RecordsReader, array_head
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.primitives import WireError, array, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import PRODUCE, Versions

VERSIONS: Final = Versions(3, 12, first_flexible=9)
"""Version 13 is left out: it has topic ids."""

ADVERTISED_VERSIONS: Final = Versions(0, VERSIONS.highest, VERSIONS.first_flexible)
"""What a listener says it serves. librdkafka sends nothing compressed to a broker without version 0 (KAFKA-18659)."""

MAX_PARTITIONS: Final = 4096
"""In one request: a batch each, and one entry of the quorum's log has so many at most. It bounds what a frame of 8 MiB
is read into: 4096 structs, where its shortest partitions would be a million."""

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
"""Of an append: the timestamps of the records are the producer's."""

MAX_KNOWN_ANSWERS: Final = 1024
"""Answers of which all but the base offset is kept: one for each version and partition in use, half a kibibyte each."""

_APPEND: Final = struct.Struct(">ihqq")
"""Partition, error, base offset and timestamp."""

_ID: Final = struct.Struct(">i")
_ID_AT: Final = 4
"""The correlation id, in a frame."""

_BASE_OFFSET: Final = struct.Struct(">q")
_BASE_OFFSET_AT: Final = 6
"""In an append."""

_INVALID_TXN_STATE: Final = ErrorCode.INVALID_TXN_STATE.kafka_code
_TRANSACTION_ABORTABLE: Final = ErrorCode.TRANSACTION_ABORTABLE.kafka_code

_JOINING_SINCE: Final = 12
_ABORTABLE_SINCE: Final = 11
_MESSAGES_SINCE: Final = 8
_LOG_START_SINCE: Final = 5


class PartitionRecords(msgspec.Struct, frozen=True):
    """`records`: record batches one after another; None for null."""

    partition: int
    records: Buffer | None


class TopicRecords(msgspec.Struct, frozen=True):
    """What is to be appended to one topic."""

    topic: str
    partitions: list[PartitionRecords]


class ProduceRequest(msgspec.Struct, frozen=True):
    """`acks`: 0 wants no response at all, 1 and -1 do. `joining`: partitions join the transaction with what is written
    to them (KIP-890)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]
    joining: bool = False


class RecordError(msgspec.Struct, frozen=True):
    """Why a batch was refused: `batch_index` is that of the record in the batch."""

    batch_index: int
    message: str | None = None


class PartitionAppend(msgspec.Struct, frozen=True):
    """The outcome for one partition; `base_offset` of the first record, NO_OFFSET beside an error."""

    partition: int
    error_code: int = 0
    base_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None


class TopicAppend(msgspec.Struct, frozen=True):
    """The outcome for one topic."""

    topic: str
    partitions: Sequence[PartitionAppend]


def read_produce_request(reader: RecordsReader, version: int) -> ProduceRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    transactional_id = reader.nullable_string(flexible=flexible)
    acks, timeout_ms = reader.int16(), reader.int32()
    topics: list[TopicRecords] = []
    left = MAX_PARTITIONS
    for _ in range(reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)):
        topics.append(_read_topic(reader, left, flexible=flexible))
        left -= len(topics[-1].partitions)
    if flexible:
        reader.skip_tags()
    reader.finish()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics, version >= _JOINING_SINCE)


def _read_topic(reader: RecordsReader, left: int, *, flexible: bool) -> TopicRecords:
    topic = reader.string(flexible=flexible)
    count = reader.array_length(flexible=flexible, min_element_bytes=6 if flexible else 8)
    if count > left:
        raise WireError(f"{count} partitions of topic {topic!r}, and at most {MAX_PARTITIONS} are taken in a request")
    partitions = [_read_partition(reader, flexible=flexible) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return TopicRecords(topic, partitions)


def _read_partition(reader: RecordsReader, *, flexible: bool) -> PartitionRecords:
    partition = PartitionRecords(reader.int32(), reader.nullable_records(flexible=flexible))
    if flexible:
        reader.skip_tags()
    return partition


def produce_frame(header: RequestHeader, topics: Sequence[TopicAppend]) -> bytes:
    """The whole response frame, length field included."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        one = topics[0].partitions[0]
        if one == PartitionAppend(one.partition, base_offset=one.base_offset):
            # Most producers have one batch in a request, and most batches are taken.
            length, between, behind = _around_base_offset(header.api_version, topics[0].topic, one.partition)
            return b"".join(
                (length, _ID.pack(header.correlation_id), between, _BASE_OFFSET.pack(one.base_offset), behind)
            )
    return frame_response(header, VERSIONS, produce_response(header.api_version, topics))


def produce_response(version: int, topics: Sequence[TopicAppend], throttle_time_ms: int = 0) -> bytes:
    """The body of the answer, without version 10's tagged hints at other leaders (KIP-951).

    INVALID_TXN_STATE is TRANSACTION_ABORTABLE from version 11 on: producers abort, and go on (KIP-890).
    """
    flexible = VERSIONS.is_flexible(version)
    results = [
        string(one.topic, flexible=flexible)
        + array([_append(partition, version) for partition in one.partitions], flexible=flexible)
        + tags(flexible=flexible)
        for one in topics
    ]
    return array(results, flexible=flexible) + int32(throttle_time_ms) + tags(flexible=flexible)


@lru_cache(MAX_KNOWN_ANSWERS)
def _around_base_offset(version: int, topic: str, partition: int) -> tuple[bytes, bytes, bytes]:
    """What is in a frame before the correlation id, between that and the base offset, and behind both, where one batch
    was asked for, and was taken."""
    header = RequestHeader(PRODUCE, version, 0, None)
    whole = frame_response(
        header, VERSIONS, produce_response(version, [TopicAppend(topic, [PartitionAppend(partition)])])
    )
    flexible = VERSIONS.is_flexible(version)
    heads = 2 * len(array_head(1, flexible=flexible)) + len(string(topic, flexible=flexible))
    at = _ID_AT + _ID.size + len(tags(flexible=flexible)) + heads + _BASE_OFFSET_AT
    return whole[:_ID_AT], whole[_ID_AT + _ID.size : at], whole[at + _BASE_OFFSET.size :]


def _append(one: PartitionAppend, version: int) -> bytes:
    flexible, code = VERSIONS.is_flexible(version), one.error_code
    if code == _INVALID_TXN_STATE and version >= _ABORTABLE_SINCE:
        code = _TRANSACTION_ABORTABLE
    return b"".join(
        (
            _APPEND.pack(one.partition, code, one.base_offset, NO_TIMESTAMP),
            int64(one.log_start_offset) if version >= _LOG_START_SINCE else b"",
            _messages(one, flexible=flexible) if version >= _MESSAGES_SINCE else b"",
            tags(flexible=flexible),
        )
    )


def _messages(one: PartitionAppend, *, flexible: bool) -> bytes:
    errors = [
        int32(error.batch_index) + string(error.message, flexible=flexible) + tags(flexible=flexible)
        for error in one.record_errors
    ]
    return array(errors, flexible=flexible) + string(one.error_message, flexible=flexible)
