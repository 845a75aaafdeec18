"""The controllers' client: the calls about topics and partition logs."""

from __future__ import annotations

import asyncio
import random
import uuid

import pytest

from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import (
    LATEST,
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FindTopicsRequest,
    FoundOffset,
    LogBatches,
    OfferedBatch,
    ReadLog,
    ReadLogsRequest,
    ReadLogsResponse,
    StoredBatch,
    TopicsPage,
    WatchedLog,
    WatchLogsRequest,
    WatchLogsResponse,
)
from pidkeeper.protocol.logs import ObjectId
from tests.support.log_leader import FOUNDING, LogLeader
from tests.support.stub_controller import StubQuorum
from tests.support.whole_agent import controller_client

OBJECT = CommitObjectRequest(7, 5, FOUNDING, 0, 100, (OfferedBatch(0, 2, 0, 100, -1, -1, -1, 1000, False),))


async def test_every_call_goes_to_the_leader() -> None:
    async with StubQuorum(3) as quorum, controller_client(quorum.urls) as client:
        quorum.leader, leader = quorum.members[2], LogLeader()
        assert leader.register() == OBJECT.broker_epoch
        quorum.keep_logs(leader)
        topic = await client.create_topic(CreateTopicRequest(uuid.UUID(int=1), "t", 1, broker_id=7, broker_epoch=5))
        assert topic == leader.topic("t")
        assert await client.find_topics(FindTopicsRequest(["t", "u"])) == TopicsPage([topic], None)
        leader.add_topic("u")
        assert await client.topics("", 1) == TopicsPage([topic], "t")
        assert [one.name for one in (await client.topics("t", 1)).topics] == ["u"]
        assert await client.commit_object(OBJECT) == CommitObjectResponse([0], True)
        assert await client.commit_object(OBJECT) == CommitObjectResponse([0], True)
        batches = [StoredBatch(0, 0, 0, 100)]
        assert await client.read_logs(ReadLogsRequest([ReadLog(0, 1, 10)])) == ReadLogsResponse(
            [LogBatches(0, 0, 0, 2, 2, batches)], [ObjectId(7, 5, 0).path(FOUNDING)]
        )
        found = await client.find_offsets(FindOffsetsRequest([(0, LATEST), (9, LATEST)]))
        assert found == FindOffsetsResponse([FoundOffset(0, 2, -1), FoundOffset(3, -1, -1)])
        doomed = DeleteTopicRequest("t", None, 7, 5)
        assert await client.delete_topic(doomed) == DeleteTopicResponse(topic.topic_id, "t")
        with pytest.raises(RequestError) as refused:
            await client.delete_topic(doomed)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_watch_takes_longer_than_an_attempt() -> None:
    async with StubQuorum() as quorum, controller_client(quorum.urls, attempt_seconds=0.1, call_seconds=0.3) as client:
        leader = LogLeader()
        leader.register()
        leader.add_topic("t")
        quorum.keep_logs(leader)
        watch = WatchLogsRequest([WatchedLog(0, 0, 0)], 500)
        began = asyncio.get_running_loop().time()
        assert await client.watch_logs(watch) == WatchLogsResponse([])
        assert asyncio.get_running_loop().time() - began >= 0.5
        watching = asyncio.create_task(client.watch_logs(WatchLogsRequest([WatchedLog(0, 0, 0)], 10_000)))
        await asyncio.sleep(0.2)
        await client.commit_object(OBJECT)
        async with asyncio.timeout(5):
            assert await watching == WatchLogsResponse([0])


class Hanging:
    """A transport whose members never answer. `patience`: how long each was waited for, at most."""

    def __init__(self) -> None:
        self.patience: list[float] = []

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        self.patience.append(timeout_seconds)
        raise TimeoutError


async def test_the_time_that_a_member_waits_is_added_to_each_attempt_and_not_doubled_with_it() -> None:
    hanging = Hanging()
    client = ControllerClient(
        ("http://a", "http://b"), hanging, random.Random(1), attempt_seconds=0.1, call_seconds=0.2
    )
    with pytest.raises(RequestError) as refused:
        await client.watch_logs(WatchLogsRequest([WatchedLog(0, 0, 0)], 200))
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert hanging.patience[:3] == pytest.approx([0.3, 0.4, 0.6])
