"""Metadata, key 3, versions 0 to 13: the agents that live, and topics with their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from pidkeeper.broker_agent.coordinator.directory import Node
from pidkeeper.service.kafka.wire.primitives import NULL_UUID, Reader, WireError, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 13, first_flexible=9)

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100

_NO_OPERATIONS: Final = -(2**31)
"""Kafka's value for "authorised operations were not asked for"."""

_SPARE_BYTES: Final = 3
"""librdkafka (seen with 2.12.1 and 2.16.0) reserves four bytes for the count of topics, and writes a null over the
first of them: when it asks for all topics, three are left over at the end. Kafka looks at nothing behind a request."""

_NO_LEADER_EPOCH: Final = int32(-1)


class Topic(msgspec.Struct, frozen=True):
    """A topic that was asked for: by name, or from version 12 by id alone."""

    name: str | None
    topic_id: UUID = NULL_UUID


class MetadataRequest(msgspec.Struct, frozen=True):
    """`topics` is None for all of them."""

    topics: list[Topic] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


class PartitionMetadata(msgspec.Struct, frozen=True):
    """Who leads a partition and who has it, by node id. Leader epochs are not kept here: the answer has -1."""

    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]


class TopicMetadata(msgspec.Struct, frozen=True):
    """The answer for one topic; without a name only from version 12 on."""

    name: str | None
    topic_id: UUID = NULL_UUID
    error_code: int = 0
    partitions: Sequence[PartitionMetadata] = ()


def read_metadata_request(reader: Reader, version: int) -> MetadataRequest:
    """Read the whole body. Raises WireError."""
    topics = _read_topics(reader, version)
    request = MetadataRequest(
        topics,
        reader.boolean() if version >= 4 else True,
        reader.boolean() if 8 <= version <= 10 else False,
        reader.boolean() if version >= 8 else False,
    )
    if VERSIONS.is_flexible(version):
        reader.skip_tags()
    reader.finish(_SPARE_BYTES if topics is None and VERSIONS.is_flexible(version) else 0)
    return request


def _read_topics(reader: Reader, version: int) -> list[Topic] | None:
    flexible = VERSIONS.is_flexible(version)
    smallest = 18 if version >= 10 else 2
    if version == 0:
        count = reader.array_length(flexible=False, min_element_bytes=smallest)
        # Version 0 has no null array; there the empty one asks for all topics.
        return [_read_topic(reader, version) for _ in range(count)] or None
    nullable_count = reader.nullable_array_length(flexible=flexible, min_element_bytes=smallest)
    if nullable_count is None:
        return None
    return [_read_topic(reader, version) for _ in range(nullable_count)]


def _read_topic(reader: Reader, version: int) -> Topic:
    flexible = VERSIONS.is_flexible(version)
    topic_id = reader.uuid() if version >= 10 else NULL_UUID
    name = reader.nullable_string(flexible=flexible) if version >= 10 else reader.string(flexible=flexible)
    if flexible:
        reader.skip_tags()
    if name is None and version < 12:
        raise WireError(f"Metadata version {version} asks for a topic without a name, which takes version 12")
    return Topic(name, topic_id)


def unknown_topic(topic: Topic) -> TopicMetadata:
    """The answer for a topic that does not exist."""
    error_code = UNKNOWN_TOPIC_OR_PARTITION if topic.name is not None else UNKNOWN_TOPIC_ID
    return TopicMetadata(topic.name, topic.topic_id, error_code)


def metadata_response(version: int, request: MetadataRequest, nodes: Sequence[Node], cluster_id: str | None) -> bytes:
    """The body of the answer where no topic is known: `nodes` are the brokers, the first of them is the controller."""
    return topics_response(version, [unknown_topic(topic) for topic in request.topics or ()], nodes, cluster_id)


def topics_response(
    version: int, topics: Sequence[TopicMetadata], nodes: Sequence[Node], cluster_id: str | None
) -> bytes:
    """The body of the answer: `nodes` are the brokers, the first of them is the controller."""
    flexible = VERSIONS.is_flexible(version)
    rack_and_tags = (string(None, flexible=flexible) if version >= 1 else b"") + tags(flexible=flexible)
    brokers = [
        int32(node.id) + string(node.host, flexible=flexible) + int32(node.port) + rack_and_tags for node in nodes
    ]
    return b"".join(
        (
            int32(0) if version >= 3 else b"",
            array(brokers, flexible=flexible),
            string(cluster_id, flexible=flexible) if version >= 2 else b"",
            int32(nodes[0].id) if version >= 1 else b"",
            array([_topic(topic, version) for topic in topics], flexible=flexible),
            int32(_NO_OPERATIONS) if 8 <= version <= 10 else b"",
            int16(0) if version >= 13 else b"",
            tags(flexible=flexible),
        )
    )


def _topic(topic: TopicMetadata, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            int16(topic.error_code) + string(topic.name, flexible=flexible),
            topic.topic_id.bytes if version >= 10 else b"",
            b"\x00" if version >= 1 else b"",
            array([_partition(one, version) for one in topic.partitions], flexible=flexible),
            int32(_NO_OPERATIONS) if version >= 8 else b"",
            tags(flexible=flexible),
        )
    )


def _partition(one: PartitionMetadata, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            int16(0) + int32(one.partition) + int32(one.leader),
            _NO_LEADER_EPOCH if version >= 7 else b"",
            array([int32(node) for node in one.replicas], flexible=flexible),
            array([int32(node) for node in one.isr], flexible=flexible),
            array([], flexible=flexible) if version >= 5 else b"",
            tags(flexible=flexible),
        )
    )
