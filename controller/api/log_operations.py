"""What the calls about topics and partition logs do."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from pidkeeper.controller.api.admission import Admission, broker_of, check_epoch
from pidkeeper.controller.api.models import TopicPartitionsQuery, TopicQuery, TopicsQuery
from pidkeeper.controller.state.requests import CommitObject, CreateTopic, DeleteTopic
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import (
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FindTopicsRequest,
    ReadLogsRequest,
    ReadLogsResponse,
    TopicDescription,
    TopicPartitionsPage,
    TopicsPage,
    WatchLogsRequest,
    WatchLogsResponse,
)
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.service.call import Call


class LogOperations:
    """One method for each call; see `Operations`."""

    def __init__(self, gate: Admission) -> None:
        self._gate = gate
        self._member = gate.member

    async def commit(self, call: Call[None, None, CommitObjectRequest]) -> CommitObjectResponse:
        """Let the batches of an object join their logs."""
        body = call.body
        check_epoch(body.broker_epoch)
        name = ObjectId(body.broker_id, body.broker_epoch, body.number)
        request = CommitObject(name, body.founding_id, body.size, body.batches, tuple(body.joining))
        response: CommitObjectResponse = await self._gate.submit_for(body.broker_id, call, self._gate.commits, request)
        return response

    async def create_topic(self, call: Call[None, None, CreateTopicRequest]) -> TopicDescription:
        """Create a topic for a client of a broker."""
        return await self._create(call.body, broker_of(call.principal, call.body))

    async def order_topic(self, call: Call[None, None, CreateTopicRequest]) -> TopicDescription:
        """Create a topic for an operator."""
        return await self._create(call.body, None)

    async def delete_topic(self, call: Call[None, None, DeleteTopicRequest]) -> DeleteTopicResponse:
        """Delete a topic for a client of a broker."""
        request = DeleteTopic(call.body.name, call.body.topic_id, broker_of(call.principal, call.body))
        response: DeleteTopicResponse = await self._gate.submit_order(request)
        return response

    async def remove_topic(self, call: Call[None, TopicQuery, None]) -> DeleteTopicResponse:
        """Delete a topic for an operator."""
        topic_id = None if call.query.topic_id is None else uuid.UUID(call.query.topic_id)
        response: DeleteTopicResponse = await self._gate.submit_order(DeleteTopic(call.query.name, topic_id, None))
        return response

    async def topics(self, call: Call[None, TopicsQuery, None]) -> TopicsPage:
        """One page of the topics."""
        self._gate.check_leader()
        return self._member.topics(call.query.after, call.query.limit)

    async def describe_topic(self, call: Call[None, TopicPartitionsQuery, None]) -> TopicPartitionsPage:
        """One topic, with a page of its partitions."""
        self._gate.check_leader()
        query = call.query
        found = self._member.topic_partitions(query.name, query.after, query.limit)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {query.name!r}")
        return found

    async def find_topics(self, call: Call[None, None, FindTopicsRequest]) -> TopicsPage:
        """Topics by name."""
        await self._gate.admit_reader()
        return self._member.find_topics(call.body.names)

    async def read(self, call: Call[None, None, ReadLogsRequest]) -> ReadLogsResponse:
        """Where the batches of some logs are."""
        await (self._gate.confirm() if call.body.confirmed else self._gate.admit_reader())
        return self._member.read_logs(call.body)

    async def offsets(self, call: Call[None, None, FindOffsetsRequest]) -> FindOffsetsResponse:
        """Offsets of logs by time."""
        await self._gate.confirm()
        return self._member.find_offsets(call.body)

    async def watch(self, call: Call[None, None, WatchLogsRequest]) -> WatchLogsResponse:
        """Wait until a log goes on."""
        await self._gate.admit_reader()
        answer: Any = self._member.watch_logs(call.body)
        try:
            async with asyncio.timeout(call.body.wait_ms / 1000):
                response: WatchLogsResponse = await answer
                return response
        except TimeoutError:
            return WatchLogsResponse([])
        finally:
            self._member.end_watch(answer)

    async def _create(self, wanted: CreateTopicRequest, broker: tuple[int, int] | None) -> TopicDescription:
        request = CreateTopic(
            wanted.topic_id,
            wanted.name,
            wanted.partitions,
            wanted.retention_ms,
            wanted.retention_bytes,
            broker,
            wanted.validate_only,
        )
        response: TopicDescription = await self._gate.submit_order(request)
        return response
