"""The messages of aiokafka, whose schemas were not generated from Kafka's, in the versions that it has."""

from __future__ import annotations

from typing import Any

import aiokafka.protocol.fetch as aio_fetch
import aiokafka.protocol.offset as aio_offset
import aiokafka.protocol.produce as aio_produce
import pytest

from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    fetch_response,
)
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import (
    ListOffsetsRequest,
    PartitionOffset,
    PartitionTimestamp,
    TopicOffsets,
    TopicTimestamps,
    list_offsets_response,
)
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    PartitionAppend,
    PartitionRecords,
    ProduceRequest,
    TopicAppend,
    TopicRecords,
    produce_response,
)
from tests.support.data_codecs import read

COMMITTED = IsolationLevel.READ_COMMITTED


def read_theirs(request: Any) -> Any:
    header = request.build_request_header(5, "aio")
    found, body = read(header.encode() + request.encode())
    assert (found.correlation_id, found.client_id) == (5, "aio")
    return body


def decode(module: Any, name: str, version: int, body: bytes) -> Any:
    """Their response; encoded again it must be the same."""
    found = getattr(module, f"{name}_v{version}").decode(body)
    assert found.encode() == body
    return found


@pytest.mark.parametrize("version", range(3, 9))
def test_produce(version: int) -> None:
    kind = getattr(aio_produce, f"ProduceRequest_v{version}")
    topics = [TopicRecords("t", [PartitionRecords(3, memoryview(b"abc"))])]
    request = kind(transactional_id="x", required_acks=-1, timeout=9, topics=[("t", [(3, b"abc")])])
    assert read_theirs(request) == ProduceRequest("x", -1, 9, topics)
    body = produce_response(version, [TopicAppend("t", [PartitionAppend(3, 45, 7, 6)])], 11)
    response = decode(aio_produce, "ProduceResponse", version, body)
    told: tuple[Any, ...] = (3, 45, 7, -1) + (6,) * (version >= 5) + ([], None) * (version >= 8)
    assert (response.topics, response.throttle_time_ms) == ([("t", [told])], 11)


@pytest.mark.parametrize("version", range(4, 12))
def test_fetch(version: int) -> None:
    epoch, start = (2,) if version >= 9 else (), (6,) if version >= 5 else ()
    fields: dict[str, Any] = {"replica_id": -1, "max_wait_time": 5, "min_bytes": 1, "max_bytes": 99}
    fields |= {"isolation_level": 1, "topics": [("t", [(3, *epoch, 7, *start, 50)])]}
    if version >= 7:
        fields |= {"session_id": 4, "session_epoch": 8, "forgotten_topics_data": [("u", [1])]}
    if version >= 11:
        fields |= {"rack_id": "r"}
    expected = FetchRequest(
        *(-1, 5, 1, 99, COMMITTED, [FetchTopic("t", [FetchPartition(3, 7, 50, *epoch)])]),
        *((4, 8, [ForgottenTopic("u", [1])]) if version >= 7 else ()),
        *(("r",) if version >= 11 else ()),
    )
    assert read_theirs(getattr(aio_fetch, f"FetchRequest_v{version}")(**fields)) == expected
    partition = FetchedPartition(3, 0, 9, 8, 6, [AbortedTransaction(1, 7)], [b"a", b"bc"])
    body = b"".join(fetch_response(version, [FetchedTopic("t", [partition])], 0, 11))
    response = decode(aio_fetch, "FetchResponse", version, body)
    told = (3, 0, 9, 8, *start, [(1, 7)], *((-1,) if version >= 11 else ()), b"abc")
    assert (response.topics, response.throttle_time_ms) == ([("t", [told])], 11)


@pytest.mark.parametrize("version", range(1, 4))
def test_list_offsets_requests(version: int) -> None:
    """It never sends version 4 and 5, for which it has a leader epoch of eight bytes in place of Kafka's four."""
    level = {"isolation_level": 1} if version >= 2 else {}
    request = getattr(aio_offset, f"OffsetRequest_v{version}")(replica_id=-1, topics=[("t", [(3, -2)])], **level)
    expected_level = COMMITTED if level else IsolationLevel.READ_UNCOMMITTED
    topics = [TopicTimestamps("t", [PartitionTimestamp(3, -2)])]
    assert read_theirs(request) == ListOffsetsRequest(-1, expected_level, topics)


@pytest.mark.parametrize("version", range(1, 6))
def test_list_offsets_responses(version: int) -> None:
    epoch = (2,) if version >= 4 else ()
    body = list_offsets_response(version, [TopicOffsets("t", [PartitionOffset(3, 0, 5, 6, *epoch)])])
    assert decode(aio_offset, "OffsetResponse", version, body).topics == [("t", [(3, 0, 5, 6, *epoch)])]
