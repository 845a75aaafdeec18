"""Metadata about topics: which there are, and which agent clients shall ask for each partition."""

from __future__ import annotations

from typing import Final

from pidkeeper.broker_agent.data.codes import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from pidkeeper.broker_agent.data.leading import Leaders
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.kafka.wire.metadata import MetadataRequest, PartitionMetadata, Topic, TopicMetadata
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import TopicDescription
from pidkeeper.protocol.topic_names import is_topic_name

_TOLD: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_PARTITIONS})
"""What hinders a topic from being created for good; for the rest clients come again."""


class Describer:
    """Answers Metadata's questions about topics."""

    def __init__(self, topics: Topics, leaders: Leaders) -> None:
        self._topics = topics
        self._leaders = leaders

    async def describe(self, request: MetadataRequest) -> list[TopicMetadata]:
        """Of each topic that is asked for, or of all."""
        if request.topics is None:
            return [await self._described(topic) for topic in await self._topics.all_or_last()]
        names = [topic.name for topic in request.topics if topic.name is not None]
        ids = [topic.topic_id for topic in request.topics if topic.name is None]
        by_name: dict[str, TopicDescription | RequestError] = {}
        try:
            by_id = await self._topics.find_ids(ids)
            if request.allow_auto_topic_creation:
                by_name = await self._topics.find_or_create(names)
            else:
                by_name |= await self._topics.find(names)
        except RequestError:
            return [TopicMetadata(topic.name, topic.topic_id, _unanswered(topic)) for topic in request.topics]
        answer = []
        for topic in request.topics:
            found = by_id.get(topic.topic_id) if topic.name is None else by_name.get(topic.name)
            if isinstance(found, TopicDescription):
                answer.append(await self._described(found))
            else:
                answer.append(TopicMetadata(topic.name, topic.topic_id, _code(topic, found)))
        return answer

    async def _described(self, topic: TopicDescription) -> TopicMetadata:
        leaders = await self._leaders.leaders(topic)
        partitions = [
            PartitionMetadata(partition, leader, (leader,), (leader,)) for partition, leader in enumerate(leaders)
        ]
        return TopicMetadata(topic.name, topic.topic_id, partitions=partitions)


def _unanswered(topic: Topic) -> int:
    named = topic.name is None or is_topic_name(topic.name)
    return LEADER_NOT_AVAILABLE if named else INVALID_TOPIC_EXCEPTION


def _code(topic: Topic, hindered: RequestError | None) -> int:
    """Why a topic is not described."""
    if topic.name is None:
        return UNKNOWN_TOPIC_ID
    if not is_topic_name(topic.name):
        return INVALID_TOPIC_EXCEPTION
    if hindered is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    return hindered.code.kafka_code if hindered.code in _TOLD else LEADER_NOT_AVAILABLE
