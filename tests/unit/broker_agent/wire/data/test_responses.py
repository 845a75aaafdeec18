"""Our responses are read by two other codecs, in every version."""

from __future__ import annotations

import struct
import uuid
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.coordinator.directory import Node
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA
from pidkeeper.broker_agent.kafka.wire import metadata
from pidkeeper.broker_agent.kafka.wire.data.create_topics import (
    CreatedTopic,
    CreatedTopicConfig,
    create_topics_response,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_records import (
    PartitionLowWatermark,
    TopicLowWatermarks,
    delete_records_response,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_topics import DeletedTopic, delete_topics_response
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import (
    ConfigEntry,
    ConfigSynonym,
    DescribedResource,
    describe_configs_response,
)
from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    fetch_response,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer, frame_pieces
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import PartitionOffset, TopicOffsets, list_offsets_response
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    PartitionAppend,
    RecordError,
    TopicAppend,
    produce_frame,
    produce_response,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.versions import FETCH, PRODUCE
from tests.support.data_codecs import APIS, VERSIONS, versions_of
from tests.support.plain_messages import CORRELATION_ID, Plain, of_version, response

T = TypeVar("T")

some_examples = settings(max_examples=12)
names = st.text(st.characters(codec="utf-8"), max_size=20)
nullable_names = st.none() | names
int8s = st.integers(-128, 127)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
throttles = st.integers(0, 2**31 - 1)
codes = st.sampled_from([-1, 0, 1, 2, 3, 6, 17, 35, 36, 43, 45, 47, 48, 87, 90])
int32_lists = st.lists(int32s, max_size=4)


def few(element: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    return st.lists(element, max_size=3)


def check(api: str, version: int, body: bytes, expected: Plain) -> None:
    header = RequestHeader(APIS[api], version, CORRELATION_ID, None)
    frame = frame_response(header, VERSIONS[APIS[api]], body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert response(api, version, frame[4:]) == of_version(api, version, expected)


errors = few(st.builds(RecordError, int32s, nullable_names))
appends = few(st.builds(PartitionAppend, int32s, codes, int64s, int64s, errors, nullable_names))


@pytest.mark.parametrize("version", versions_of("produce"))
@some_examples
@given(few(st.builds(TopicAppend, names, appends)), throttles)
def test_produce(version: int, topics: list[TopicAppend], throttle: int) -> None:
    def plain(one: PartitionAppend) -> Plain:
        return {
            "index": one.partition,
            "error_code": 120 if version >= 11 and one.error_code == 48 else one.error_code,
            "base_offset": one.base_offset,
            "log_append_time_ms": -1,
            "log_start_offset": one.log_start_offset,
            "record_errors": [
                {"batch_index": each.batch_index, "batch_index_error_message": each.message}
                for each in one.record_errors
            ],
            "error_message": one.error_message,
        }

    expected = {
        "responses": [{"name": one.topic, "partition_responses": list(map(plain, one.partitions))} for one in topics],
        "throttle_time_ms": throttle,
    }
    check("produce", version, produce_response(version, topics, throttle), expected)


@pytest.mark.parametrize("version", versions_of("produce"))
@some_examples
@given(names, int32s, int32s, st.integers(0, 2**63 - 1))
def test_a_batch_that_was_taken_is_answered_as_any_other(
    version: int, topic: str, partition: int, correlation_id: int, offset: int
) -> None:
    taken = [TopicAppend(topic, [PartitionAppend(partition, base_offset=offset)])]
    header = RequestHeader(PRODUCE, version, correlation_id, None)
    whole = frame_response(header, WITH_DATA.served[PRODUCE], produce_response(version, taken))
    assert produce_frame(header, taken) == whole


@pytest.mark.parametrize(("version", "code"), [(10, 48), (11, 120), (12, 120)])
def test_a_producer_without_a_transaction_is_told_to_abort_it_once_clients_know_the_word(
    version: int, code: int
) -> None:
    body = produce_response(version, [TopicAppend("t", [PartitionAppend(0, 48)])])
    assert body == produce_response(version, [TopicAppend("t", [PartitionAppend(0, code)])])
    assert struct.pack(">ih", 0, code) in body


views: st.SearchStrategy[Buffer] = st.binary(max_size=30).map(memoryview)
pieces = few(views | st.binary(max_size=30))
aborted = st.none() | few(st.builds(AbortedTransaction, int64s, int64s))
fetched = few(st.builds(FetchedPartition, int32s, codes, int64s, int64s, int64s, aborted, pieces))


@pytest.mark.parametrize("version", versions_of("fetch"))
@some_examples
@given(few(st.builds(FetchedTopic, names, fetched)), codes, throttles)
def test_fetch(version: int, topics: list[FetchedTopic], code: int, throttle: int) -> None:
    def plain(one: FetchedPartition) -> Plain:
        transactions = one.aborted_transactions
        return {
            "partition_index": one.partition,
            "error_code": one.error_code,
            "high_watermark": one.high_watermark,
            "last_stable_offset": one.last_stable_offset,
            "log_start_offset": one.log_start_offset,
            "aborted_transactions": None if transactions is None else [each._asdict() for each in transactions],
            "preferred_read_replica": -1,
            "records": b"".join(one.records),
        }

    expected = {
        "throttle_time_ms": throttle,
        "error_code": code,
        "session_id": 0,
        "responses": [{"topic": one.topic, "partitions": list(map(plain, one.partitions))} for one in topics],
    }
    body = fetch_response(version, topics, code, throttle)
    check("fetch", version, b"".join(body), expected)
    header = RequestHeader(FETCH, version, CORRELATION_ID, None)
    framed = b"".join(frame_pieces(header, VERSIONS[FETCH], body))
    assert framed == frame_response(header, VERSIONS[FETCH], b"".join(body))


def test_records_are_answered_as_the_pieces_that_they_are() -> None:
    records = (bytes(100), memoryview(bytes(200))[50:])
    topics = [FetchedTopic("t", [FetchedPartition(0, records=records)])]
    for version in versions_of("fetch"):
        header = RequestHeader(FETCH, version, CORRELATION_ID, None)
        framed = frame_pieces(header, VERSIONS[FETCH], fetch_response(version, topics))
        assert [piece for piece in framed if any(piece is one for one in records)] == list(records)


offsets = few(st.builds(PartitionOffset, int32s, codes, int64s, int64s, int32s))


@pytest.mark.parametrize("version", versions_of("list_offsets"))
@some_examples
@given(few(st.builds(TopicOffsets, names, offsets)), throttles)
def test_list_offsets(version: int, topics: list[TopicOffsets], throttle: int) -> None:
    def plain(one: PartitionOffset) -> Plain:
        return {
            "partition_index": one.partition,
            "error_code": one.error_code,
            "timestamp": one.timestamp,
            "offset": one.offset,
            "leader_epoch": one.leader_epoch,
        }

    expected = {
        "throttle_time_ms": throttle,
        "topics": [{"name": one.topic, "partitions": list(map(plain, one.partitions))} for one in topics],
    }
    check("list_offsets", version, list_offsets_response(version, topics, throttle), expected)


created_configs = st.builds(CreatedTopicConfig, names, nullable_names, st.booleans(), int8s, st.booleans())
created = st.builds(
    CreatedTopic, names, codes, nullable_names, st.uuids(), int32s, int16s, st.none() | few(created_configs)
)


@pytest.mark.parametrize("version", versions_of("create_topics"))
@some_examples
@given(few(created), throttles)
def test_create_topics(version: int, topics: list[CreatedTopic], throttle: int) -> None:
    def config(one: CreatedTopicConfig) -> Plain:
        return {
            "name": one.name,
            "value": one.value,
            "read_only": one.read_only,
            "config_source": one.source,
            "is_sensitive": one.is_sensitive,
        }

    def plain(one: CreatedTopic) -> Plain:
        return {
            "name": one.name,
            "topic_id": one.topic_id,
            "error_code": one.error_code,
            "error_message": one.error_message,
            "num_partitions": one.partitions,
            "replication_factor": one.replication_factor,
            "configs": None if one.configs is None else list(map(config, one.configs)),
        }

    expected = {"throttle_time_ms": throttle, "topics": list(map(plain, topics))}
    check("create_topics", version, create_topics_response(version, topics, throttle), expected)


@pytest.mark.parametrize("version", versions_of("delete_topics"))
@some_examples
@given(st.data(), throttles)
def test_delete_topics(version: int, data: st.DataObject, throttle: int) -> None:
    told = nullable_names if version >= 6 else names
    topics = data.draw(few(st.builds(DeletedTopic, told, st.uuids(), codes, nullable_names)))
    expected = {
        "throttle_time_ms": throttle,
        "responses": [
            {
                "name": one.name,
                "topic_id": one.topic_id,
                "error_code": one.error_code,
                "error_message": one.error_message,
            }
            for one in topics
        ],
    }
    check("delete_topics", version, delete_topics_response(version, topics, throttle), expected)


low_watermarks = few(st.builds(PartitionLowWatermark, int32s, int64s, codes))


@pytest.mark.parametrize("version", versions_of("delete_records"))
@some_examples
@given(few(st.builds(TopicLowWatermarks, names, low_watermarks)), throttles)
def test_delete_records(version: int, topics: list[TopicLowWatermarks], throttle: int) -> None:
    expected = {
        "throttle_time_ms": throttle,
        "topics": [
            {
                "name": one.topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "low_watermark": each.low_watermark,
                        "error_code": each.error_code,
                    }
                    for each in one.partitions
                ],
            }
            for one in topics
        ],
    }
    check("delete_records", version, delete_records_response(version, topics, throttle), expected)


synonyms = few(st.builds(ConfigSynonym, names, nullable_names, int8s))
entries = few(
    st.builds(ConfigEntry, names, nullable_names, int8s, st.booleans(), st.booleans(), synonyms, int8s, nullable_names)
)


@pytest.mark.parametrize("version", versions_of("describe_configs"))
@some_examples
@given(few(st.builds(DescribedResource, int8s, names, entries, codes, nullable_names)), throttles)
def test_describe_configs(version: int, resources: list[DescribedResource], throttle: int) -> None:
    def entry(one: ConfigEntry) -> Plain:
        return {
            "name": one.name,
            "value": one.value,
            "read_only": one.read_only,
            "config_source": one.source,
            "is_sensitive": one.is_sensitive,
            "synonyms": [{"name": each.name, "value": each.value, "source": each.source} for each in one.synonyms],
            "config_type": one.config_type,
            "documentation": one.documentation,
        }

    def plain(one: DescribedResource) -> Plain:
        return {
            "error_code": one.error_code,
            "error_message": one.error_message,
            "resource_type": one.resource_type,
            "resource_name": one.name,
            "configs": list(map(entry, one.configs)),
        }

    expected = {"throttle_time_ms": throttle, "results": list(map(plain, resources))}
    check("describe_configs", version, describe_configs_response(version, resources, throttle), expected)


NODES = [Node(3, "one.example", 9092), Node(5, "two.example", 9093)]


def metadata_plain(topics: list[metadata.TopicMetadata]) -> Plain:
    def partition(one: metadata.PartitionMetadata) -> Plain:
        return {
            "error_code": 0,
            "partition_index": one.partition,
            "leader_id": one.leader,
            "leader_epoch": -1,
            "replica_nodes": one.replicas,
            "isr_nodes": one.isr,
            "offline_replicas": [],
        }

    def topic(one: metadata.TopicMetadata) -> Plain:
        return {
            "error_code": one.error_code,
            "name": one.name,
            "topic_id": one.topic_id,
            "is_internal": False,
            "partitions": list(map(partition, one.partitions)),
        }

    return {
        "throttle_time_ms": 0,
        "brokers": [{"node_id": node.id, "host": node.host, "port": node.port, "rack": None} for node in NODES],
        "cluster_id": "cluster-a",
        "controller_id": 3,
        "topics": list(map(topic, topics)),
        "error_code": 0,
    }


partitions = few(st.builds(metadata.PartitionMetadata, int32s, int32s, int32_lists, int32_lists))


@pytest.mark.parametrize("version", range(14))
@some_examples
@given(few(st.tuples(names, st.uuids(), codes, partitions)))
def test_metadata(version: int, asked: list[tuple[str, uuid.UUID, int, Any]]) -> None:
    topics = [metadata.TopicMetadata(*each) for each in asked]
    body = metadata.topics_response(version, topics, NODES, "cluster-a")
    frame = frame_response(RequestHeader(3, version, CORRELATION_ID, None), metadata.VERSIONS, body)
    expected = of_version("metadata", version, metadata_plain(topics))
    assert response("metadata", version, frame[4:]) == expected
