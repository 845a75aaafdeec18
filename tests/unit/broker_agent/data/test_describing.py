"""What clients are told of topics, and of offsets by time."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.data import topics as topics_module
from pidkeeper.broker_agent.data.describing import Describer
from pidkeeper.broker_agent.data.leading import Leaders
from pidkeeper.broker_agent.data.listing import OffsetLister
from pidkeeper.broker_agent.data.record_finding import RecordFinder
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topics import MAX_CREATED, Topics
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import ListOffsetsRequest, PartitionTimestamp, TopicTimestamps
from pidkeeper.broker_agent.kafka.wire.metadata import MetadataRequest, Topic
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import FindTopicsRequest
from pidkeeper.protocol.messages import BrokerDescription
from tests.support.data_parts import StubRegistration, raising, records
from tests.support.gatherer_rig import Rig
from tests.support.log_leader import STORE, LogLeader
from tests.support.segment_builder import START_MS

TIMED_OUT = RequestError(ErrorCode.REQUEST_TIMED_OUT)


def directory(own: int, *others: int) -> Directory:
    known = Directory(Node(own, f"agent-{own}", 9092))
    known.update([BrokerDescription(one, 1, False, f"agent-{one}:9092") for one in (own, *others)])
    return known


class Asked:
    """A leader, and what describes its topics."""

    def __init__(self, **options: Any) -> None:
        self.leader = LogLeader()
        session = StubRegistration(self.leader.register())
        self.topics = Topics(DataSettings(store="unused", **options), self.leader, session)
        self.describer = Describer(self.topics, Leaders(directory(7)))

    async def describe(self, *topics: Topic | str, create: bool = False) -> list[tuple[str | None, int, int]]:
        """Name, code and number of partitions."""
        asked = [Topic(one) if isinstance(one, str) else one for one in topics]
        answer = await self.describer.describe(MetadataRequest(asked or None, create))
        return [(one.name, one.error_code, len(one.partitions)) for one in answer]


async def test_topics_by_name_and_by_id() -> None:
    asked = Asked()
    topic = asked.leader.add_topic("t", 3)
    assert await asked.describe("t", "gone", "no/name", "t") == [
        ("t", 0, 3),
        ("gone", 3, 0),
        ("no/name", 17, 0),
        ("t", 0, 3),
    ]
    assert asked.leader.asked("find_topics") == [FindTopicsRequest(["t", "gone"])]
    other = asked.leader.add_topic("u", 1)
    ids = [Topic(None, one) for one in (topic.topic_id, other.topic_id, uuid.UUID(int=9))]
    assert await asked.describe(*ids) == [("t", 0, 3), ("u", 0, 1), (None, 100, 0)]
    assert await asked.describe() == [("t", 0, 3), ("u", 0, 1)]


async def test_all_topics_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_module, "MAX_NAMED_TOPICS", 2)
    asked = Asked()
    for number in range(5):
        asked.leader.add_topic(f"t{number}")
    assert len(await asked.describe()) == 5
    asked.leader.fault("topics", raising(TIMED_OUT))
    # An empty answer would make consumers believe that their topics are gone.
    assert len(await asked.describe()) == 5


async def test_topics_are_created_when_they_are_asked_for() -> None:
    asked = Asked(default_partitions=4)
    assert await asked.describe("t", create=False) == [("t", 3, 0)]
    assert await asked.describe("t", "a:b", create=True) == [("t", 0, 4), ("a:b", 17, 0)]
    assert await asked.describe("t", create=True) == [("t", 0, 4)]
    assert len(asked.leader.asked("create_topic")) == 1
    many = [f"m{number}" for number in range(MAX_CREATED + 2)]
    assert [code for _, code, _ in await asked.describe(*many, create=True)] == [0] * MAX_CREATED + [5, 5]
    assert [code for _, code, _ in await asked.describe(*many, create=True)] == [0] * (MAX_CREATED + 2)
    off = Asked(auto_create_topics=False)
    assert await off.describe("t", create=True) == [("t", 3, 0)]


async def test_two_clients_create_the_same_topic() -> None:
    asked = Asked()
    asked.leader.fault("create_topic", lambda _: asked.leader.add_topic("t", 2) and None)
    assert await asked.describe("t", create=True) == [("t", 0, 2)]


async def test_the_controllers_do_not_answer() -> None:
    asked = Asked()
    asked.leader.fault("find_topics", raising(TIMED_OUT))
    assert await asked.describe("t", "a:b") == [("t", 5, 0), ("a:b", 17, 0)]
    asked.leader.fault("create_topic", raising(RequestError(ErrorCode.STALE_BROKER_EPOCH)))
    assert await asked.describe("t", create=True) == [("t", 5, 0)]
    asked.leader.fault("create_topic", raising(RequestError(ErrorCode.INVALID_PARTITIONS)))
    assert await asked.describe("t", create=True) == [("t", 37, 0)]


async def test_who_waits_for_topics_is_answered_by_one_call() -> None:
    asked = Asked()
    for name in "abc":
        asked.leader.add_topic(name)
    go = asyncio.Event()
    asked.leader.fault("find_topics", lambda _: go.wait())
    answers = [asyncio.create_task(asked.describe("a")) for _ in range(5)]
    await asyncio.sleep(0.01)
    answers += [asyncio.create_task(asked.describe(name)) for name in "bcbc"]
    await asyncio.sleep(0.01)
    answers[1].cancel()
    go.set()
    told = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(isinstance(one, list) for one in told) == 8
    assert [one.names for one in asked.leader.asked("find_topics")] == [["a"], ["b", "c"]]


async def test_topics_are_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    asked.leader.add_topic("t", 1)
    assert await asked.describe("t") == [("t", 0, 1)]
    monkeypatch.setattr(topics_module, "REFRESH_SECONDS", 0.0)
    asked.leader.drop_topic("t")
    asked.leader.add_topic("t", 2)
    assert await asked.describe("t") == [("t", 0, 1)]
    await asyncio.sleep(0.01)
    assert await asked.describe("t") == [("t", 0, 2)]
    monkeypatch.setattr(topics_module, "KEPT_SECONDS", 0.0)
    asked.leader.drop_topic("t")
    assert await asked.describe("t") == [("t", 3, 0)]


async def test_every_agent_names_the_same_leaders() -> None:
    leader = LogLeader()
    topic = leader.add_topic("t", 300)
    told = [await Leaders(directory(own, *{1, 2, 3} - {own})).leaders(topic) for own in (1, 2, 3)]
    assert told[0] == told[1] == told[2]
    assert all(70 < told[0].count(one) < 130 for one in (1, 2, 3))
    known = directory(1, 2, 3)
    leaders = Leaders(known)
    assert await leaders.leaders(topic) == told[0]
    known.update([BrokerDescription(one, 1, False, f"agent-{one}:9092") for one in (1, 2)])
    moved = await leaders.leaders(topic)
    assert all(now == before for now, before in zip(moved, told[0], strict=True) if before != 3)
    known.update(
        [BrokerDescription(one, 1, False, f"agent-{one}:9092", store_id=STORE if one == 2 else None) for one in (1, 2)]
    )
    assert {*await leaders.leaders(topic)} == {2}, "an agent without a store leads nothing"


async def test_offsets_by_time() -> None:
    rig = Rig()
    topics = Topics(rig.settings, rig.leader, rig.session)
    lister = OffsetLister(rig.leader, topics, RecordFinder(rig.reader, rig.segments))
    await rig.append(records(0, (b"a", b"b")), records(2, base_timestamp=START_MS + 50, max_timestamp=START_MS + 50))

    async def listed(*times: int, version: int = 7, topic: str = "t", partition: int = 0) -> list[tuple[int, int, int]]:
        asked = [TopicTimestamps(topic, [PartitionTimestamp(partition, time) for time in times])]
        request = ListOffsetsRequest(-1, IsolationLevel.READ_COMMITTED, asked)
        answer = await lister.list_offsets(request, version)
        return [(one.error_code, one.offset, one.timestamp) for one in answer[0].partitions]

    latest, earliest = (0, 3, -1), (0, 0, -1)
    assert await listed(-1, -2, START_MS + 10) == [latest, earliest, (0, 2, START_MS + 50)]
    assert await listed(-3, START_MS + 99) == [(0, 2, START_MS + 50), (0, -1, -1)]
    assert await listed(-3, -1, -7, version=6) == [(35, -1, -1), latest, (35, -1, -1)]
    assert await listed(-1, partition=3) == await listed(-1, topic="gone") == [(3, -1, -1)]
    rig.leader.fault("find_offsets", raising(TIMED_OUT))
    assert await listed(-1) == [(6, -1, -1)]
    await rig.stop()
