"""CreateTopics, key 19, versions 2 to 7 (KIP-4; KIP-525 from version 5, KIP-516 from 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.frames import array_head
from pidkeeper.service.kafka.wire.primitives import NULL_UUID, Reader, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(2, 7, first_flexible=5)

DEFAULT: Final = -1
"""Of partitions and replication factor in a request: what the cluster takes (KIP-464)."""

UNKNOWN: Final = -1
"""Of the same in an answer: not created, or not to be told."""

_DETAILS_SINCE: Final = 5
_TOPIC_IDS_SINCE: Final = 7


class Assignment(msgspec.Struct, frozen=True):
    """Where the replicas of one partition are wanted."""

    partition: int
    broker_ids: list[int]


class NewTopicConfig(msgspec.Struct, frozen=True):
    """A setting of a topic; null is the default."""

    name: str
    value: str | None


class NewTopic(msgspec.Struct, frozen=True):
    """`partitions` and `replication_factor`: DEFAULT where they are not told, and beside assignments."""

    name: str
    partitions: int
    replication_factor: int
    assignments: list[Assignment]
    configs: list[NewTopicConfig]


class CreateTopicsRequest(msgspec.Struct, frozen=True):
    """`validate_only`: nothing is to be created."""

    topics: list[NewTopic]
    timeout_ms: int
    validate_only: bool


class CreatedTopicConfig(msgspec.Struct, frozen=True):
    """A setting that the topic has; `source` as in DescribeConfigs."""

    name: str
    value: str | None
    read_only: bool = False
    source: int = -1
    is_sensitive: bool = False


class CreatedTopic(msgspec.Struct, frozen=True):
    """The outcome for one topic. Versions below 5 tell neither numbers nor settings, those below 7 no id."""

    name: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: UUID = NULL_UUID
    partitions: int = UNKNOWN
    replication_factor: int = UNKNOWN
    configs: Sequence[CreatedTopicConfig] | None = ()


def read_create_topics_request(reader: Reader, version: int) -> CreateTopicsRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    count = reader.array_length(flexible=flexible, min_element_bytes=10 if flexible else 16)
    topics = [_read_topic(reader, flexible=flexible) for _ in range(count)]
    timeout_ms, validate_only = reader.int32(), reader.boolean()
    if flexible:
        reader.skip_tags()
    reader.finish()
    return CreateTopicsRequest(topics, timeout_ms, validate_only)


def _read_topic(reader: Reader, *, flexible: bool) -> NewTopic:
    name, partitions, replication_factor = reader.string(flexible=flexible), reader.int32(), reader.int16()
    count = reader.array_length(flexible=flexible, min_element_bytes=6 if flexible else 8)
    assignments = [_read_assignment(reader, flexible=flexible) for _ in range(count)]
    count = reader.array_length(flexible=flexible, min_element_bytes=3 if flexible else 4)
    configs = [_read_config(reader, flexible=flexible) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return NewTopic(name, partitions, replication_factor, assignments, configs)


def _read_assignment(reader: Reader, *, flexible: bool) -> Assignment:
    partition = reader.int32()
    count = reader.array_length(flexible=flexible, min_element_bytes=4)
    assignment = Assignment(partition, [reader.int32() for _ in range(count)])
    if flexible:
        reader.skip_tags()
    return assignment


def _read_config(reader: Reader, *, flexible: bool) -> NewTopicConfig:
    config = NewTopicConfig(reader.string(flexible=flexible), reader.nullable_string(flexible=flexible))
    if flexible:
        reader.skip_tags()
    return config


def create_topics_response(version: int, topics: Sequence[CreatedTopic], throttle_time_ms: int = 0) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    results = array([_created(one, version) for one in topics], flexible=flexible)
    return int32(throttle_time_ms) + results + tags(flexible=flexible)


def _created(one: CreatedTopic, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            string(one.name, flexible=flexible),
            one.topic_id.bytes if version >= _TOPIC_IDS_SINCE else b"",
            int16(one.error_code) + string(one.error_message, flexible=flexible),
            _details(one) if version >= _DETAILS_SINCE else b"",
            tags(flexible=flexible),
        )
    )


def _details(one: CreatedTopic) -> bytes:
    if one.configs is None:
        configs = array_head(-1, flexible=True)
    else:
        configs = array([_config(config) for config in one.configs], flexible=True)
    return int32(one.partitions) + int16(one.replication_factor) + configs


def _config(one: CreatedTopicConfig) -> bytes:
    texts = string(one.name, flexible=True) + string(one.value, flexible=True)
    source = one.source.to_bytes(1, "big", signed=True)
    return texts + bytes((one.read_only,)) + source + bytes((one.is_sensitive,)) + tags(flexible=True)
