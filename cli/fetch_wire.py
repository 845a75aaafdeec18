"""The client's side of Fetch, versions 4 to 12; the agent's side is in `broker_agent.kafka.wire.data.fetch`. Pure."""

from __future__ import annotations

from typing import Final

from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    NO_OFFSET,
    VERSIONS,
    AbortedTransaction,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import RecordsReader
from pidkeeper.service.kafka.wire.primitives import WireError, array, int32, int64, string, tags

_LOG_START_SINCE: Final = 5
_SESSIONS_SINCE: Final = 7
_LEADER_EPOCH_SINCE: Final = 9
_RACKS_SINCE: Final = 11
_LAST_FETCHED_EPOCH_SINCE: Final = 12


def write_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body; forgotten topics are left out, as they are without a session."""
    flexible = VERSIONS.is_flexible(version)
    limits = (request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes)
    body = b"".join(map(int32, limits)) + bytes([request.isolation_level])
    if version >= _SESSIONS_SINCE:
        body += int32(request.session_id) + int32(request.session_epoch)
    body += array([_topic(one, version) for one in request.topics], flexible=flexible)
    if version >= _SESSIONS_SINCE:
        body += array([], flexible=flexible)
    if version >= _RACKS_SINCE:
        body += string(request.rack_id, flexible=flexible)
    return body + tags(flexible=flexible)


def _topic(one: FetchTopic, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    partitions = [_partition(each, version) for each in one.partitions]
    return string(one.topic, flexible=flexible) + array(partitions, flexible=flexible) + tags(flexible=flexible)


def _partition(one: FetchPartition, version: int) -> bytes:
    return b"".join(
        (
            int32(one.partition),
            int32(one.current_leader_epoch) if version >= _LEADER_EPOCH_SINCE else b"",
            int64(one.fetch_offset),
            int32(one.last_fetched_epoch) if version >= _LAST_FETCHED_EPOCH_SINCE else b"",
            int64(NO_OFFSET) if version >= _LOG_START_SINCE else b"",
            int32(one.partition_max_bytes),
            tags(flexible=VERSIONS.is_flexible(version)),
        )
    )


def read_fetch_response(reader: RecordsReader, version: int, topic: str, partition: int) -> FetchedPartition:
    """What an answer has of the one partition that was asked for. Its records keep the whole frame in memory.

    An error of the whole answer is the partition's. Raises WireError, also for an answer about another partition.
    """
    flexible = VERSIONS.is_flexible(version)
    reader.int32()  # The throttle time: one reader is throttled nowhere.
    if version >= _SESSIONS_SINCE:
        error = reader.int16()
        reader.int32()
        if error:
            return FetchedPartition(partition, error)
    name = _one_of(reader, flexible=flexible).string(flexible=flexible)
    found = _read_partition(_one_of(reader, flexible=flexible), version)
    if (name, found.partition) != (topic, partition):
        raise WireError(f"an answer about {name}-{found.partition}, where {topic}-{partition} was asked for")
    for _ in range(2):
        if flexible:
            reader.skip_tags()
    reader.finish()
    return found


def _one_of(reader: RecordsReader, *, flexible: bool) -> RecordsReader:
    """The reader at the only element of an array."""
    if (count := reader.array_length(flexible=flexible, min_element_bytes=1)) != 1:
        raise WireError(f"an answer about {count}, where one was asked for")
    return reader


def _read_partition(reader: RecordsReader, version: int) -> FetchedPartition:
    flexible = VERSIONS.is_flexible(version)
    partition, error = reader.int32(), reader.int16()
    high_watermark, last_stable = reader.int64(), reader.int64()
    log_start = reader.int64() if version >= _LOG_START_SINCE else NO_OFFSET
    aborted = _read_aborted(reader, flexible=flexible)
    if version >= _RACKS_SINCE:
        reader.int32()
    records = reader.nullable_records(flexible=flexible)
    if flexible:
        reader.skip_tags()
    pieces = () if records is None else (records,)
    return FetchedPartition(partition, error, high_watermark, last_stable, log_start, aborted, pieces)


def _read_aborted(reader: RecordsReader, *, flexible: bool) -> list[AbortedTransaction] | None:
    count = reader.nullable_array_length(flexible=flexible, min_element_bytes=16)
    if count is None:
        return None
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(reader.int64(), reader.int64()))
        if flexible:
            reader.skip_tags()
    return aborted
