"""CreateTopics, DeleteTopics and DescribeConfigs (KIP-4, KIP-133)."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from pidkeeper.broker_agent.data.codes import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topic_settings import broker_entries, created_entries, retention_of, topic_entries
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.kafka.wire.data.create_topics import (
    DEFAULT,
    CreatedTopic,
    CreateTopicsRequest,
    NewTopic,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_topics import DeletedTopic, DeleteTopicsRequest, DoomedTopic
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import (
    BROKER,
    TOPIC,
    ConfigEntry,
    ConfigResource,
    DescribeConfigsRequest,
    DescribedResource,
)
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import TopicDescription
from pidkeeper.protocol.logs import MAX_PARTITIONS

REPLICATION_FACTOR: Final = 1
"""What is told of every topic: one object, which the store keeps as safely as it does."""

_log = logging.getLogger(__name__)


class Administrator:
    """Serves what administrators' clients ask. A request's topics are created or deleted one after another."""

    def __init__(self, settings: DataSettings, topics: Topics, broker_id: int) -> None:
        self._settings = settings
        self._topics = topics
        self._broker_id = broker_id

    async def create_topics(self, request: CreateTopicsRequest) -> list[CreatedTopic]:
        """The outcome for each topic; one that is named twice is refused, as by Kafka."""
        named = Counter(topic.name for topic in request.topics)
        outcomes = []
        for topic in {one.name: one for one in request.topics}.values():
            if named[topic.name] > 1:
                outcomes.append(CreatedTopic(topic.name, INVALID_REQUEST, "the request names this topic twice"))
            else:
                outcomes.append(await self._create(topic, validate_only=request.validate_only))
        return outcomes

    async def delete_topics(self, request: DeleteTopicsRequest) -> list[DeletedTopic]:
        """The outcome for each topic."""
        ids = [topic.topic_id for topic in request.topics if topic.name is None]
        try:
            known = await self._topics.find_ids(ids)
        except RequestError as error:
            code = error.code.kafka_code
            return [DeletedTopic(one.name, one.topic_id, code, error.detail) for one in request.topics]
        return [await self._delete(one, known.get(one.topic_id)) for one in request.topics]

    async def describe_configs(self, request: DescribeConfigsRequest) -> list[DescribedResource]:
        """The settings of each topic or broker."""
        names = [one.name for one in request.resources if one.resource_type == TOPIC]
        try:
            topics = await self._topics.find(names)
        except RequestError as error:
            code = error.code.kafka_code
            return [_undescribed(one, code, error.detail) for one in request.resources]
        return [self._described(one, topics) for one in request.resources]

    async def _create(self, topic: NewTopic, *, validate_only: bool) -> CreatedTopic:
        if (refusal := _refusal(topic)) is not None:
            return refusal
        try:
            retention = retention_of(topic.configs, self._settings)
            partitions = self._topics.default_partitions if topic.partitions == DEFAULT else topic.partitions
            made = await self._topics.create(
                topic.name, partitions, retention.ms, retention.size, validate_only=validate_only
            )
        except RequestError as error:
            return CreatedTopic(topic.name, error.code.kafka_code, error.detail)
        if retention.compacted and not validate_only:
            _log.warning("topic %s asked for compaction: each record of a key is kept", made.name)
        configs = created_entries(made, self._settings)
        return CreatedTopic(
            made.name,
            topic_id=made.topic_id,
            partitions=made.partitions,
            replication_factor=REPLICATION_FACTOR,
            configs=configs,
        )

    async def _delete(self, doomed: DoomedTopic, known: TopicDescription | None) -> DeletedTopic:
        if doomed.name is None and known is None:
            return DeletedTopic(None, doomed.topic_id, UNKNOWN_TOPIC_ID, "there is no topic of this id")
        name = doomed.name if known is None else known.name
        assert name is not None, "named, or found by its id"
        try:
            topic_id = await self._topics.delete(name, None if known is None else known.topic_id)
        except RequestError as error:
            return DeletedTopic(doomed.name, doomed.topic_id, error.code.kafka_code, error.detail)
        return DeletedTopic(name, topic_id)

    def _described(self, one: ConfigResource, topics: dict[str, TopicDescription]) -> DescribedResource:
        if one.resource_type == TOPIC:
            if one.name not in topics:
                return _undescribed(one, UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
            entries = topic_entries(topics[one.name], self._settings)
        elif one.resource_type == BROKER and one.name == str(self._broker_id):
            entries = broker_entries(self._settings)
        elif one.resource_type == BROKER:
            return _undescribed(one, INVALID_REQUEST, f"this is broker {self._broker_id}, which knows its own alone")
        else:
            return _undescribed(one, INVALID_REQUEST, f"nothing of type {one.resource_type} has settings here")
        return DescribedResource(one.resource_type, one.name, _wanted(entries, one.keys))


def _refusal(topic: NewTopic) -> CreatedTopic | None:
    """What a topic may not ask for. Any number of replicas may be asked for, for the store keeps the bytes."""
    if topic.assignments:
        detail = "partitions have no replicas here that could be assigned: the store keeps the bytes"
        return CreatedTopic(topic.name, INVALID_REPLICA_ASSIGNMENT, detail)
    if topic.partitions != DEFAULT and not 1 <= topic.partitions <= MAX_PARTITIONS:
        return CreatedTopic(topic.name, INVALID_PARTITIONS, f"a topic has 1 to {MAX_PARTITIONS} partitions")
    if topic.replication_factor != DEFAULT and topic.replication_factor < 1:
        return CreatedTopic(topic.name, INVALID_REPLICATION_FACTOR, "the replication factor is 1 or more")
    return None


def _undescribed(one: ConfigResource, code: int, detail: str) -> DescribedResource:
    return DescribedResource(one.resource_type, one.name, (), code, detail)


def _wanted(entries: list[ConfigEntry], keys: list[str] | None) -> list[ConfigEntry]:
    return entries if keys is None else [one for one in entries if one.name in keys]
