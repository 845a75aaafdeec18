"""Requests made by two other codecs are read by ours, in every version."""

from __future__ import annotations

import uuid
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.wire.data.create_topics import (
    Assignment,
    CreateTopicsRequest,
    NewTopic,
    NewTopicConfig,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_records import DeleteRecordsRequest, PartitionEnd, TopicEnds
from pidkeeper.broker_agent.kafka.wire.data.delete_topics import DeleteTopicsRequest, DoomedTopic
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import ConfigResource, DescribeConfigsRequest
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import (
    ListOffsetsRequest,
    PartitionTimestamp,
    TopicTimestamps,
    is_known_timestamp,
)
from pidkeeper.broker_agent.kafka.wire.data.produce import PartitionRecords, ProduceRequest, TopicRecords
from pidkeeper.protocol.log_messages import EARLIEST, LATEST, MAX_TIMESTAMP
from tests.support.data_codecs import APIS, read, versions_of
from tests.support.plain_messages import CLIENT_ID, CORRELATION_ID, NO_UUID, Plain, requests

T = TypeVar("T")

names = st.text(st.characters(codec="utf-8"), max_size=20)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
timeouts = st.integers(0, 2**31 - 1)
int32_lists = st.lists(int32s, max_size=4)
levels = st.sampled_from(IsolationLevel)


some_examples = settings(max_examples=12)
"""For each of several versions: enough for every field and length to differ."""


def few(element: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    return st.lists(element, max_size=3)


def check(api: str, version: int, message: Plain, expected: Any) -> None:
    for frame in requests(api, version, message):
        header, request = read(frame)
        assert (header.api_key, header.api_version, header.client_id) == (APIS[api], version, CLIENT_ID)
        assert header.correlation_id == CORRELATION_ID
        assert request == expected


records = st.none() | st.binary(max_size=40)
partition_records = few(st.tuples(int32s, records))


@pytest.mark.parametrize("version", versions_of("produce"))
@some_examples
@given(st.none() | names, int16s, timeouts, few(st.tuples(names, partition_records)))
def test_produce(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: list[tuple[str, list[tuple[int, bytes | None]]]],
) -> None:
    message = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {"name": name, "partition_data": [{"index": at, "records": data} for at, data in partitions]}
            for name, partitions in topics
        ],
    }
    expected = [
        TopicRecords(name, [PartitionRecords(at, None if data is None else memoryview(data)) for at, data in parts])
        for name, parts in topics
    ]
    check("produce", version, message, ProduceRequest(transactional_id, acks, timeout_ms, expected, version >= 12))


def test_records_keep_nothing_else_of_the_frame() -> None:
    data = bytes(range(200))
    message = {"acks": -1, "timeout_ms": 1, "transactional_id": None}
    topic = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
    for version in versions_of("produce"):
        frame, _ = requests("produce", version, message | {"topic_data": [topic]})
        kept = read(frame)[1].topics[0].partitions[0].records
        assert type(kept) is bytes and kept == data


fetch_partitions = few(st.tuples(int32s, int64s, int32s, int32s, int32s))


@pytest.mark.parametrize("version", versions_of("fetch"))
@some_examples
@given(
    st.tuples(int32s, timeouts, int32s, int32s),
    levels,
    few(st.tuples(names, fetch_partitions)),
    st.tuples(int32s, int32s),
    few(st.tuples(names, int32_lists)),
    names,
)
def test_fetch(
    version: int,
    limits: tuple[int, int, int, int],
    level: IsolationLevel,
    topics: list[tuple[str, list[tuple[int, int, int, int, int]]]],
    session: tuple[int, int],
    forgotten: list[tuple[str, list[int]]],
    rack_id: str,
) -> None:
    fields = "partition", "fetch_offset", "partition_max_bytes", "current_leader_epoch", "last_fetched_epoch"
    message = dict(zip(("replica_id", "max_wait_ms", "min_bytes", "max_bytes"), limits, strict=True)) | {
        "isolation_level": level.value,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            {
                "topic": name,
                "partitions": [dict(zip(fields, each, strict=True)) | {"log_start_offset": 9} for each in parts],
            }
            for name, parts in topics
        ],
        "forgotten_topics_data": [{"topic": name, "partitions": numbers} for name, numbers in forgotten],
        "rack_id": rack_id,
    }
    if version < 12:
        topics = [(name, [(*each[:4], -1) for each in partitions]) for name, partitions in topics]
    if version < 9:
        topics = [(name, [(*each[:3], -1, -1) for each in partitions]) for name, partitions in topics]
    expected = FetchRequest(
        *limits,
        level,
        [FetchTopic(name, [FetchPartition(*each) for each in partitions]) for name, partitions in topics],
        *(session if version >= 7 else (0, -1)),
        [ForgottenTopic(*each) for each in forgotten] if version >= 7 else [],
        rack_id if version >= 11 else "",
    )
    check("fetch", version, message, expected)


@pytest.mark.parametrize("version", versions_of("list_offsets"))
@some_examples
@given(int32s, levels, few(st.tuples(names, few(st.tuples(int32s, int64s, int32s)))))
def test_list_offsets(
    version: int, replica_id: int, level: IsolationLevel, topics: list[tuple[str, list[tuple[int, int, int]]]]
) -> None:
    message = {
        "replica_id": replica_id,
        "isolation_level": level.value,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": at, "timestamp": timestamp, "current_leader_epoch": epoch}
                    for at, timestamp, epoch in partitions
                ],
            }
            for name, partitions in topics
        ],
    }
    wanted = [
        TopicTimestamps(
            name,
            [PartitionTimestamp(at, timestamp, epoch if version >= 4 else -1) for at, timestamp, epoch in partitions],
        )
        for name, partitions in topics
    ]
    level = level if version >= 2 else IsolationLevel.READ_UNCOMMITTED
    check("list_offsets", version, message, ListOffsetsRequest(replica_id, level, wanted))


def test_a_version_knows_its_special_timestamps() -> None:
    def known(version: int) -> list[int]:
        return [timestamp for timestamp in range(-6, 3) if is_known_timestamp(version, timestamp)]

    assert all(known(version) == [EARLIEST, LATEST, 0, 1, 2] for version in range(1, 7))
    assert known(7) == [MAX_TIMESTAMP, EARLIEST, LATEST, 0, 1, 2]


new_topics = st.tuples(
    names, int32s, int16s, few(st.tuples(int32s, int32_lists)), few(st.tuples(names, st.none() | names))
)


@pytest.mark.parametrize("version", versions_of("create_topics"))
@some_examples
@given(few(new_topics), timeouts, st.booleans())
def test_create_topics(version: int, topics: list[Any], timeout_ms: int, validate_only: bool) -> None:
    message = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": factor,
                "assignments": [{"partition_index": at, "broker_ids": brokers} for at, brokers in assignments],
                "configs": [{"name": key, "value": value} for key, value in configs],
            }
            for name, partitions, factor, assignments, configs in topics
        ],
        "timeout_ms": timeout_ms,
        "validate_only": validate_only,
    }
    wanted = [
        NewTopic(
            name,
            partitions,
            factor,
            [Assignment(*each) for each in assignments],
            [NewTopicConfig(*each) for each in configs],
        )
        for name, partitions, factor, assignments, configs in topics
    ]
    check("create_topics", version, message, CreateTopicsRequest(wanted, timeout_ms, validate_only))


ids = st.uuids().filter(lambda one: one != NO_UUID)


@pytest.mark.parametrize("version", versions_of("delete_topics"))
@some_examples
@given(few(names), few(ids), timeouts)
def test_delete_topics(version: int, by_name: list[str], by_id: list[uuid.UUID], timeout_ms: int) -> None:
    wanted = [DoomedTopic(name) for name in by_name]
    if version >= 6:
        wanted += [DoomedTopic(None, topic_id) for topic_id in by_id]
    message: Plain = {"timeout_ms": timeout_ms}
    if version >= 6:
        message["topics"] = [{"name": topic.name, "topic_id": topic.topic_id} for topic in wanted]
    else:
        message["topic_names"] = by_name
    check("delete_topics", version, message, DeleteTopicsRequest(wanted, timeout_ms))


@pytest.mark.parametrize("version", versions_of("delete_records"))
@some_examples
@given(few(st.tuples(names, few(st.tuples(int32s, int64s)))), timeouts)
def test_delete_records(version: int, topics: list[tuple[str, list[tuple[int, int]]]], timeout_ms: int) -> None:
    message = {
        "topics": [
            {"name": name, "partitions": [{"partition_index": at, "offset": offset} for at, offset in partitions]}
            for name, partitions in topics
        ],
        "timeout_ms": timeout_ms,
    }
    wanted = [TopicEnds(name, [PartitionEnd(*each) for each in partitions]) for name, partitions in topics]
    check("delete_records", version, message, DeleteRecordsRequest(wanted, timeout_ms))


resources = few(st.tuples(st.integers(-128, 127), names, st.none() | few(names)))


@pytest.mark.parametrize("version", versions_of("describe_configs"))
@some_examples
@given(resources, st.booleans(), st.booleans())
def test_describe_configs(
    version: int, asked: list[tuple[int, str, list[str] | None]], synonyms: bool, documentation: bool
) -> None:
    message = {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in asked
        ],
        "include_synonyms": synonyms,
        "include_documentation": documentation,
    }
    wanted = [ConfigResource(*each) for each in asked]
    expected = DescribeConfigsRequest(wanted, synonyms, documentation and version >= 3)
    check("describe_configs", version, message, expected)
