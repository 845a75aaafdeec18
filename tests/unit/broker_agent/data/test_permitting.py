"""Rules by principal for topics: what each request is answered, and that nothing happens that is forbidden."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.data.permitting import PermittedRoom
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.kafka.wire.data.create_topics import CreateTopicsRequest, NewTopic
from pidkeeper.broker_agent.kafka.wire.data.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsRequest,
    PartitionEnd,
    TopicEnds,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_topics import DeleteTopicsRequest, DoomedTopic
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import (
    BROKER,
    TOPIC,
    ConfigResource,
    DescribeConfigsRequest,
)
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchedTopic, FetchPartition, FetchRequest, FetchTopic
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import ListOffsetsRequest, PartitionTimestamp, TopicTimestamps
from pidkeeper.broker_agent.kafka.wire.data.produce import PartitionRecords, ProduceRequest, TopicAppend, TopicRecords
from pidkeeper.broker_agent.kafka.wire.metadata import MetadataRequest, Topic
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.protocol.log_messages import LATEST
from tests.support.data_parts import RNG, StubRegistration, records
from tests.support.log_leader import LogLeader

DENIED, UNKNOWN, UNKNOWN_ID = 29, 3, 100
RULES = """\
allow alice topic-write in-*
allow alice topic-read out-*
allow alice topic-describe seen
allow alice topic-create new-*
allow alice topic-delete old
deny  alice topic out-secret
allow root topic *
"""


class Asked:
    """A room with topics, asked by somebody of whom rules are kept."""

    def __init__(self, directory: Path) -> None:
        self.leader = LogLeader()
        self.topics = {name: self.leader.add_topic(name, 2) for name in ("in-1", "out-1", "out-secret", "seen", "old")}
        agents = Directory(Node(7, "h", 1))
        session = StubRegistration(self.leader.register())
        settings = DataSettings(store="unused", linger_ms=0)
        self.room = DataRoom(settings, MemoryStore(), self.leader, session, agents, RNG)
        self.permitted = PermittedRoom(self.room)
        (directory / "acls").write_text(RULES)
        self.acls = AclList(str(directory / "acls"))

    def caller(self, name: str) -> Caller:
        return Caller(may=self.acls.may(name))

    async def produce(self, name: str, *topics: str) -> list[tuple[str, list[int]]]:
        parts = [PartitionRecords(0, records(-1)), PartitionRecords(1, records(-1))]
        request = ProduceRequest(None, -1, 5000, [TopicRecords(topic, parts) for topic in topics])
        found: asyncio.Future[list[TopicAppend] | None] = asyncio.get_running_loop().create_future()
        self.permitted.produce(request, self.caller(name), found.set_result)
        assert not found.done(), "in a later turn of the event loop"
        told = await found
        assert told is not None
        return [(one.topic, [each.error_code for each in one.partitions]) for one in told]

    async def fetch(self, name: str, *topics: str, wait_ms: int = 0) -> list[tuple[str, list[int]]]:
        parts = [FetchTopic(topic, [FetchPartition(0, 0, 1 << 20)]) for topic in topics]
        request = FetchRequest(-1, wait_ms, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED, parts)
        told: list[FetchedTopic] = []

        def encode(code: int, topics: Sequence[FetchedTopic]) -> bytes:
            assert code == 0
            told.extend(topics)
            return b"answer"

        assert await self.permitted.fetch(request, self.caller(name), encode) == b"answer"
        return [(one.topic, [each.error_code for each in one.partitions]) for one in told]

    async def describe(self, name: str, *topics: Topic, auto_create: bool = False) -> list[tuple[str | None, int]]:
        told = await self.permitted.describe(MetadataRequest(list(topics), auto_create), self.caller(name))
        return [(one.name, one.error_code) for one in told]


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    made = Asked(tmp_path)
    yield made
    await made.room.stop()


async def test_produce_takes_write(asked: Asked) -> None:
    told = await asked.produce("alice", "seen", "in-1", "out-1", "in-gone")
    assert told == [("seen", [DENIED] * 2), ("in-1", [0, 0]), ("out-1", [DENIED] * 2), ("in-gone", [UNKNOWN] * 2)]
    assert await asked.produce("bob", "in-1") == [("in-1", [DENIED] * 2)]
    assert await asked.produce("root", "seen", "out-secret") == [("seen", [0, 0]), ("out-secret", [0, 0])]
    written = [batch.log for commit in asked.leader.commits for batch in commit.batches]
    allowed = {asked.topics[name].first_log + part for name in ("in-1", "seen", "out-secret") for part in (0, 1)}
    assert set(written) == allowed


async def test_fetch_takes_read_and_tells_at_once(asked: Asked) -> None:
    async with asyncio.timeout(5):
        told = await asked.fetch("alice", "in-1", "out-1", "out-secret", wait_ms=30_000)
    assert told == [("in-1", [DENIED]), ("out-1", [0]), ("out-secret", [DENIED])]
    assert await asked.fetch("root", "out-secret") == [("out-secret", [0])]
    assert not [log for request in asked.leader.asked("read_logs") for log in request.logs if log.log in {0, 1}]


async def test_list_offsets_takes_describe_which_read_and_write_imply(asked: Asked) -> None:
    names = ["in-1", "out-1", "out-secret", "seen", "old", "new-1"]
    parts = [TopicTimestamps(name, [PartitionTimestamp(0, LATEST)]) for name in names]
    request = ListOffsetsRequest(-1, IsolationLevel.READ_UNCOMMITTED, parts)
    told = await asked.permitted.list_offsets(request, 7, asked.caller("alice"))
    codes = [each.error_code for one in told for each in one.partitions]
    assert codes == [0, 0, DENIED, 0, 0, DENIED]
    assert [one.topic for one in told] == names


async def test_of_all_topics_those_are_told_that_may_be_described(asked: Asked) -> None:
    for name, seen in (("alice", {"in-1", "out-1", "seen", "old"}), ("bob", set()), ("root", set(asked.topics))):
        told = await asked.permitted.describe(MetadataRequest(None), asked.caller(name))
        assert {one.name for one in told} == seen


async def test_metadata_shows_nothing_of_a_topic_that_may_not_be_described(asked: Asked) -> None:
    secret, seen = asked.topics["out-secret"].topic_id, asked.topics["seen"].topic_id
    wanted = Topic("out-secret"), Topic("gone"), Topic("seen"), Topic(None, secret), Topic(None, seen)
    told = await asked.describe("alice", *wanted)
    assert told == [("out-secret", DENIED), ("gone", DENIED), ("seen", 0), (None, UNKNOWN_ID), ("seen", 0)]


async def test_metadata_creates_what_may_be_created(asked: Asked) -> None:
    told = await asked.describe("alice", Topic("new-1"), Topic("in-2"), auto_create=True)
    assert told == [("new-1", DENIED), ("in-2", UNKNOWN)]
    assert "new-1" in asked.leader.topic_names(), "who creates a topic may not be one who may see it"
    assert "in-2" not in asked.leader.topic_names()
    assert await asked.describe("root", Topic("any"), auto_create=True) == [("any", 0)]


async def test_create_topics_takes_create(asked: Asked) -> None:
    request = CreateTopicsRequest([NewTopic(name, 1, 1, [], []) for name in ("in-2", "new-1", "x")], 1000, False)
    told = await asked.permitted.create_topics(request, asked.caller("alice"))
    assert {one.name: one.error_code for one in told} == {"new-1": 0, "in-2": DENIED, "x": DENIED}
    assert set(asked.leader.topic_names()) == asked.topics.keys() | {"new-1"}


async def test_delete_topics_takes_delete(asked: Asked) -> None:
    ids = {name: topic.topic_id for name, topic in asked.topics.items()}
    doomed = [
        DoomedTopic("in-1"),
        DoomedTopic(None, ids["seen"]),
        DoomedTopic("old"),
        DoomedTopic(None, ids["out-secret"]),
        DoomedTopic(None, uuid.UUID(int=9)),
    ]
    told = await asked.permitted.delete_topics(DeleteTopicsRequest(doomed, 1000), asked.caller("alice"))
    assert [one.error_code for one in told] == [DENIED, DENIED, 0, UNKNOWN_ID, UNKNOWN_ID]
    assert [one.name for one in told] == ["in-1", None, "old", None, None]
    assert set(asked.leader.topic_names()) == asked.topics.keys() - {"old"}


async def test_delete_records_takes_delete(asked: Asked) -> None:
    assert await asked.produce("root", "old", "in-1") == [("old", [0, 0]), ("in-1", [0, 0])]
    names = ["in-1", "old", "out-secret", "old", "gone"]
    ends = [TopicEnds(name, [PartitionEnd(0, HIGH_WATERMARK), PartitionEnd(1, 0)]) for name in names]
    told = await asked.permitted.delete_records(DeleteRecordsRequest(ends, 1000), asked.caller("alice"))
    assert [(one.topic, [each.error_code for each in one.partitions]) for one in told] == [
        ("in-1", [DENIED, DENIED]),
        ("old", [0, 0]),
        ("out-secret", [DENIED, DENIED]),
        ("old", [0, 0]),
        ("gone", [DENIED, DENIED]),
    ]
    starts = {name: asked.leader.machine.logs.log(asked.topics[name].first_log) for name in ("in-1", "old")}
    assert {name: log and log.start for name, log in starts.items()} == {"in-1": 0, "old": 1}


async def test_describe_configs_takes_describe(asked: Asked) -> None:
    wanted = [ConfigResource(TOPIC, "out-secret", None), ConfigResource(BROKER, "7", None)]
    request = DescribeConfigsRequest([*wanted, ConfigResource(TOPIC, "seen", None)], False)
    told = await asked.permitted.describe_configs(request, asked.caller("alice"))
    assert [(one.name, one.error_code) for one in told] == [("out-secret", DENIED), ("7", 0), ("seen", 0)]
