"""Who may do what to which topic: what rules forbid is answered before the rest of a request goes on.

Operations and codes are Kafka's (KIP-11): Produce takes WRITE, Fetch READ, ListOffsets, Metadata and DescribeConfigs
DESCRIBE, CreateTopics and a topic that Metadata creates CREATE, DeleteTopics and DeleteRecords DELETE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from pidkeeper.broker_agent.coordinator.caller import Caller, everything
from pidkeeper.broker_agent.data.codes import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID
from pidkeeper.broker_agent.data.fetching import Encode
from pidkeeper.broker_agent.data.producing import Told
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.kafka.wire.data.create_topics import CreatedTopic, CreateTopicsRequest
from pidkeeper.broker_agent.kafka.wire.data.delete_records import (
    DeleteRecordsRequest,
    PartitionLowWatermark,
    TopicLowWatermarks,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_topics import DeletedTopic, DeleteTopicsRequest, DoomedTopic
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import TOPIC, DescribeConfigsRequest, DescribedResource
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchedPartition, FetchedTopic, FetchRequest
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import ListOffsetsRequest, PartitionOffset, TopicOffsets
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    PartitionAppend,
    ProduceRequest,
    TopicAppend,
    TopicRecords,
)
from pidkeeper.broker_agent.kafka.wire.metadata import MetadataRequest, Topic, TopicMetadata
from pidkeeper.broker_agent.security.resources import (
    TOPIC_CREATE,
    TOPIC_DELETE,
    TOPIC_DESCRIBE,
    TOPIC_READ,
    TOPIC_WRITE,
)
from pidkeeper.protocol.errors import RequestError

_DENIED: Final = TOPIC_AUTHORIZATION_FAILED


class _Named(Protocol):
    """A part of a request, or of an answer."""

    @property
    def topic(self) -> str: ...


_Asked = TypeVar("_Asked", bound=_Named)
_Outcome = TypeVar("_Outcome")


class PermittedRoom:
    """What `room` serves, to those who may."""

    def __init__(self, room: DataRoom) -> None:
        self._room = room

    def produce(self, request: ProduceRequest, caller: Caller, told: Told) -> None:
        """See `Producer.begin`."""
        if caller.may is everything:
            self._room.producer.begin(request, caller, told)
            return
        allowed = _allowed(request.topics, caller, TOPIC_WRITE)
        if len(allowed) == len(request.topics):
            self._room.producer.begin(request, caller, told)
            return

        def with_denied(found: list[TopicAppend] | None) -> None:
            told(None if found is None else _merged(request.topics, allowed, found, _denied_append))

        if allowed:
            self._room.producer.begin(replace(request, topics=allowed), caller, with_denied)
        else:
            asyncio.get_running_loop().call_soon(with_denied, [])

    async def fetch(self, request: FetchRequest, caller: Caller, encode: Encode) -> bytes:
        """See `Fetcher.fetch`. What is denied is told at once, as every error is."""
        allowed = _allowed(request.topics, caller, TOPIC_READ)
        if len(allowed) == len(request.topics):
            return await self._room.fetcher.fetch(request, caller, encode)

        def with_denied(code: int, topics: Sequence[FetchedTopic]) -> bytes:
            if code:
                return encode(code, topics)
            told = _merged(
                request.topics,
                allowed,
                topics,
                lambda one: FetchedTopic(
                    one.topic, [FetchedPartition(each.partition, _DENIED) for each in one.partitions]
                ),
            )
            return encode(code, told)

        return await self._room.fetcher.fetch(replace(request, topics=allowed, min_bytes=0), caller, with_denied)

    async def list_offsets(self, request: ListOffsetsRequest, version: int, caller: Caller) -> list[TopicOffsets]:
        """See `OffsetLister.list_offsets`."""
        allowed = _allowed(request.topics, caller, TOPIC_DESCRIBE)
        found = await self._room.lister.list_offsets(replace(request, topics=allowed), version)
        return _merged(
            request.topics,
            allowed,
            found,
            lambda one: TopicOffsets(one.topic, [PartitionOffset(each.partition, _DENIED) for each in one.partitions]),
        )

    async def describe(self, request: MetadataRequest, caller: Caller) -> list[TopicMetadata]:
        """See `Describer.describe`. Of all topics those are told that may be described."""
        describer = self._room.describer
        if request.topics is None:
            told = await describer.describe(request)
            return [one for one in told if one.name is not None and caller.may(TOPIC_DESCRIBE, one.name)]
        outcomes: dict[Topic, TopicMetadata] = {}
        for auto_create in (True, False):
            part = [one for one in request.topics if self._creates(request, one, caller) is auto_create]
            asked = replace(request, topics=part, allow_auto_topic_creation=auto_create)
            outcomes |= zip(part, await describer.describe(asked) if part else (), strict=True)
        return [_seen(outcomes[one], one, caller) for one in request.topics]

    async def create_topics(self, request: CreateTopicsRequest, caller: Caller) -> list[CreatedTopic]:
        """See `Administrator.create_topics`."""
        allowed = [one for one in request.topics if caller.may(TOPIC_CREATE, one.name)]
        denied = {one.name for one in request.topics} - {one.name for one in allowed}
        found = await self._room.administrator.create_topics(replace(request, topics=allowed))
        return [*found, *(CreatedTopic(name, _DENIED) for name in sorted(denied))]

    async def delete_topics(self, request: DeleteTopicsRequest, caller: Caller) -> list[DeletedTopic]:
        """See `Administrator.delete_topics`. One that is named by its id may be one that the caller shall not know."""
        try:
            by_id = await self._room.topics.find_ids(one.topic_id for one in request.topics if one.name is None)
        except RequestError as error:
            code = error.code.kafka_code
            return [DeletedTopic(one.name, one.topic_id, code, error.detail) for one in request.topics]

        def refused(one: DoomedTopic) -> DeletedTopic | None:
            known = by_id.get(one.topic_id)
            name = one.name if one.name is not None or known is None else known.name
            if name is None or caller.may(TOPIC_DELETE, name):
                return None
            hidden = one.name is None and not caller.may(TOPIC_DESCRIBE, name)
            return DeletedTopic(one.name, one.topic_id, UNKNOWN_TOPIC_ID if hidden else _DENIED)

        refusals = [refused(one) for one in request.topics]
        allowed = [one for one, refusal in zip(request.topics, refusals, strict=True) if refusal is None]
        found = iter(await self._room.administrator.delete_topics(replace(request, topics=allowed)))
        return [refusal or next(found) for refusal in refusals]

    async def delete_records(self, request: DeleteRecordsRequest, caller: Caller) -> list[TopicLowWatermarks]:
        """See `RecordDeleter.delete_records`."""
        allowed = _allowed(request.topics, caller, TOPIC_DELETE)
        found = await self._room.deleter.delete_records(replace(request, topics=allowed))
        return _merged(
            request.topics,
            allowed,
            found,
            lambda one: TopicLowWatermarks(
                one.topic, [PartitionLowWatermark(each.partition, error_code=_DENIED) for each in one.partitions]
            ),
        )

    async def describe_configs(self, request: DescribeConfigsRequest, caller: Caller) -> list[DescribedResource]:
        """See `Administrator.describe_configs`."""
        permitted = [one.resource_type != TOPIC or caller.may(TOPIC_DESCRIBE, one.name) for one in request.resources]
        allowed = [one for one, may in zip(request.resources, permitted, strict=True) if may]
        found = iter(await self._room.administrator.describe_configs(replace(request, resources=allowed)))
        return [
            next(found) if may else DescribedResource(one.resource_type, one.name, (), _DENIED)
            for one, may in zip(request.resources, permitted, strict=True)
        ]

    def _creates(self, request: MetadataRequest, topic: Topic, caller: Caller) -> bool:
        """Whether the topic is to be created if there is none."""
        return request.allow_auto_topic_creation and topic.name is not None and caller.may(TOPIC_CREATE, topic.name)


def _allowed(asked: Sequence[_Asked], caller: Caller, operation: str) -> list[_Asked]:
    return [one for one in asked if caller.may(operation, one.topic)]


def _merged(
    asked: Sequence[_Asked], allowed: Sequence[_Asked], found: Sequence[_Outcome], deny: Callable[[_Asked], _Outcome]
) -> list[_Outcome]:
    """The outcomes in the order of what was asked: those that were found for what is allowed, and refusals."""
    if len(allowed) == len(asked):
        return list(found)
    outcomes = iter(found)
    names = {one.topic for one in allowed}
    return [next(outcomes) if one.topic in names else deny(one) for one in asked]


def _denied_append(topic: TopicRecords) -> TopicAppend:
    return TopicAppend(topic.topic, [PartitionAppend(one.partition, _DENIED) for one in topic.partitions])


def _seen(told: TopicMetadata, topic: Topic, caller: Caller) -> TopicMetadata:
    """What the caller is told of a topic: nothing of one that it may not describe, not even whether there is one."""
    if told.name is None or caller.may(TOPIC_DESCRIBE, told.name):
        return told
    if topic.name is None:
        return TopicMetadata(None, topic.topic_id, UNKNOWN_TOPIC_ID)
    return TopicMetadata(topic.name, error_code=_DENIED)
