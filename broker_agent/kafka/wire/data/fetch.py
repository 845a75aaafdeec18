"""Fetch, key 1, versions 4 to 12 (KIP-98; KIP-227 from version 7, KIP-320 from 9, KIP-392 from 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer, array_head, records_head
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel, read_isolation_level
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, int64, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(4, 12, first_flexible=12)
"""Version 13 is left out: it has topic ids (KIP-516)."""

NO_SESSION: Final = 0
"""The session id of every answer: fetch sessions (KIP-227) are not offered, so each request names all it wants."""

FINAL_EPOCH: Final = -1
"""The session epoch of a request outside of sessions."""

NO_OFFSET: Final = -1

_LOG_START_SINCE: Final = 5
_SESSIONS_SINCE: Final = 7
_LEADER_EPOCH_SINCE: Final = 9
_RACKS_SINCE: Final = 11
_LAST_FETCHED_EPOCH_SINCE: Final = 12

_NO_REPLICA: Final = int32(-1)


class FetchPartition(msgspec.Struct, frozen=True):
    """From `fetch_offset` on, at most `partition_max_bytes`. Epochs are -1 if the consumer knows none."""

    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


class FetchTopic(msgspec.Struct, frozen=True):
    """What is wanted of one topic."""

    topic: str
    partitions: list[FetchPartition]


class ForgottenTopic(msgspec.Struct, frozen=True):
    """Partitions that leave a fetch session."""

    topic: str
    partitions: list[int]


class FetchRequest(msgspec.Struct, frozen=True):
    """`replica_id`: -1 for a consumer. The answer may wait `max_wait_ms` for `min_bytes`, and has about `max_bytes`."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: IsolationLevel
    topics: list[FetchTopic]
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_EPOCH
    forgotten: list[ForgottenTopic] = msgspec.field(default_factory=list)
    rack_id: str = ""


class AbortedTransaction(NamedTuple):
    """The producer's records from `first_offset` up to its next abort marker were aborted."""

    producer_id: int
    first_offset: int


class FetchedPartition(msgspec.Struct, frozen=True):
    """The outcome for one partition; offsets are NO_OFFSET beside an error.

    `aborted_transactions`: of the offsets that are answered, None under READ_UNCOMMITTED. `records`: batches in pieces.
    """

    partition: int
    error_code: int = 0
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    records: Sequence[Buffer] = ()


class FetchedTopic(msgspec.Struct, frozen=True):
    """The outcome for one topic."""

    topic: str
    partitions: Sequence[FetchedPartition]


def read_fetch_request(reader: Reader, version: int) -> FetchRequest:
    """Read the whole body. Raises WireError."""
    flexible, sessions = VERSIONS.is_flexible(version), version >= _SESSIONS_SINCE
    limits = reader.int32(), reader.int32(), reader.int32(), reader.int32()
    isolation_level = read_isolation_level(reader)
    session = (reader.int32(), reader.int32()) if sessions else (NO_SESSION, FINAL_EPOCH)
    count = reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)
    topics = [_read_topic(reader, version) for _ in range(count)]
    forgotten = _read_forgotten(reader, flexible=flexible) if sessions else []
    rack_id = reader.string(flexible=flexible) if version >= _RACKS_SINCE else ""
    if flexible:
        reader.skip_tags()
    reader.finish()
    return FetchRequest(*limits, isolation_level, topics, *session, forgotten, rack_id)


def _read_topic(reader: Reader, version: int) -> FetchTopic:
    flexible = VERSIONS.is_flexible(version)
    topic = reader.string(flexible=flexible)
    count = reader.array_length(flexible=flexible, min_element_bytes=16)
    partitions = [_read_partition(reader, version) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return FetchTopic(topic, partitions)


def _read_partition(reader: Reader, version: int) -> FetchPartition:
    partition = reader.int32()
    leader_epoch = reader.int32() if version >= _LEADER_EPOCH_SINCE else -1
    fetch_offset = reader.int64()
    fetched_epoch = reader.int32() if version >= _LAST_FETCHED_EPOCH_SINCE else -1
    if version >= _LOG_START_SINCE:
        reader.int64()  # Followers alone send theirs.
    max_bytes = reader.int32()
    if VERSIONS.is_flexible(version):
        reader.skip_tags()
    return FetchPartition(partition, fetch_offset, max_bytes, leader_epoch, fetched_epoch)


def _read_forgotten(reader: Reader, *, flexible: bool) -> list[ForgottenTopic]:
    forgotten = []
    for _ in range(reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 6)):
        topic = reader.string(flexible=flexible)
        count = reader.array_length(flexible=flexible, min_element_bytes=4)
        forgotten.append(ForgottenTopic(topic, [reader.int32() for _ in range(count)]))
        if flexible:
            reader.skip_tags()
    return forgotten


def fetch_response(
    version: int, topics: Sequence[FetchedTopic], error_code: int = 0, throttle_time_ms: int = 0
) -> list[Buffer]:
    """The body of the answer in pieces, those of the records among them as they are.

    `error_code`: of the whole request; there is no room for it before version 7.
    """
    flexible = VERSIONS.is_flexible(version)
    session = int16(error_code) + int32(NO_SESSION) if version >= _SESSIONS_SINCE else b""
    pieces: list[Buffer] = [int32(throttle_time_ms) + session + array_head(len(topics), flexible=flexible)]
    for one in topics:
        pieces.append(string(one.topic, flexible=flexible) + array_head(len(one.partitions), flexible=flexible))
        for partition in one.partitions:
            pieces.append(_partition_head(partition, version))
            pieces += partition.records
            pieces.append(tags(flexible=flexible))
        pieces.append(tags(flexible=flexible))
    pieces.append(tags(flexible=flexible))
    return [piece for piece in pieces if piece]


def _partition_head(one: FetchedPartition, version: int) -> bytes:
    """All of a partition before its records."""
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            int32(one.partition) + int16(one.error_code) + int64(one.high_watermark) + int64(one.last_stable_offset),
            int64(one.log_start_offset) if version >= _LOG_START_SINCE else b"",
            _aborted(one.aborted_transactions, flexible=flexible),
            _NO_REPLICA if version >= _RACKS_SINCE else b"",
            records_head(one.records, flexible=flexible),
        )
    )


def _aborted(transactions: Sequence[AbortedTransaction] | None, *, flexible: bool) -> bytes:
    if transactions is None:
        return array_head(-1, flexible=flexible)
    encoded = [int64(one.producer_id) + int64(one.first_offset) + tags(flexible=flexible) for one in transactions]
    return array(encoded, flexible=flexible)
