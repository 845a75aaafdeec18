"""DeleteTopics, key 20, versions 1 to 6 (KIP-4; KIP-599 from version 5, KIP-516 from 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from pidkeeper.service.kafka.wire.primitives import NULL_UUID, Reader, WireError, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(1, 6, first_flexible=4)

_MESSAGES_SINCE: Final = 5
_TOPIC_IDS_SINCE: Final = 6


class DoomedTopic(msgspec.Struct, frozen=True):
    """A topic that is to go: by name, or from version 6 by id alone."""

    name: str | None
    topic_id: UUID = NULL_UUID


class DeleteTopicsRequest(msgspec.Struct, frozen=True):
    """Which topics are to go."""

    topics: list[DoomedTopic]
    timeout_ms: int


class DeletedTopic(msgspec.Struct, frozen=True):
    """The outcome for one topic; only version 6 takes one without a name."""

    name: str | None
    topic_id: UUID = NULL_UUID
    error_code: int = 0
    error_message: str | None = None


def read_delete_topics_request(reader: Reader, version: int) -> DeleteTopicsRequest:
    """Read the whole body. Raises WireError."""
    flexible, ids = VERSIONS.is_flexible(version), version >= _TOPIC_IDS_SINCE
    least = 18 if ids else 1 if flexible else 2
    count = reader.array_length(flexible=flexible, min_element_bytes=least)
    if ids:
        topics = [_read_topic(reader) for _ in range(count)]
    else:
        topics = [DoomedTopic(reader.string(flexible=flexible)) for _ in range(count)]
    timeout_ms = reader.int32()
    if flexible:
        reader.skip_tags()
    reader.finish()
    return DeleteTopicsRequest(topics, timeout_ms)


def _read_topic(reader: Reader) -> DoomedTopic:
    topic = DoomedTopic(reader.nullable_string(flexible=True), reader.uuid())
    reader.skip_tags()
    if (topic.name is None) == (topic.topic_id == NULL_UUID):
        raise WireError(f"DeleteTopics names a topic by name or by id, not {topic.name!r} and {topic.topic_id}")
    return topic


def delete_topics_response(version: int, topics: Sequence[DeletedTopic], throttle_time_ms: int = 0) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    results = array([_deleted(one, version) for one in topics], flexible=flexible)
    return int32(throttle_time_ms) + results + tags(flexible=flexible)


def _deleted(one: DeletedTopic, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            string(one.name, flexible=flexible),
            one.topic_id.bytes if version >= _TOPIC_IDS_SINCE else b"",
            int16(one.error_code),
            string(one.error_message, flexible=flexible) if version >= _MESSAGES_SINCE else b"",
            tags(flexible=flexible),
        )
    )
