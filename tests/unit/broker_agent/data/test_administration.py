"""Topics are created, deleted and described as Kafka's clients ask."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pidkeeper.broker_agent.data.administration import Administrator
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.kafka.wire.data.create_topics import (
    Assignment,
    CreatedTopic,
    CreateTopicsRequest,
    NewTopic,
    NewTopicConfig,
)
from pidkeeper.broker_agent.kafka.wire.data.delete_topics import DeleteTopicsRequest, DoomedTopic
from pidkeeper.broker_agent.kafka.wire.data.describe_configs import (
    BROKER,
    TOPIC,
    TOPIC_CONFIG,
    ConfigResource,
    DescribeConfigsRequest,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.support.data_parts import StubRegistration, raising
from tests.support.log_leader import LogLeader


class Asked:
    """An administrator of a leader's topics."""

    def __init__(self) -> None:
        settings = DataSettings(store="unused", default_partitions=4)
        self.leader = LogLeader()
        self.session = StubRegistration(self.leader.register())
        self.administrator = Administrator(settings, Topics(settings, self.leader, self.session), 7)

    async def create(
        self, name: str = "t", partitions: int = -1, replicas: int = -1, *, validate_only: bool = False, **configs: Any
    ) -> CreatedTopic:
        """A topic; `configs` with underlines for dots."""
        given = [NewTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        request = CreateTopicsRequest([NewTopic(name, partitions, replicas, [], given)], 1000, validate_only)
        (outcome,) = await self.administrator.create_topics(request)
        return outcome


async def test_a_topic_is_created_with_the_defaults() -> None:
    asked = Asked()
    outcome = await asked.create()
    assert (outcome.error_code, outcome.partitions, outcome.replication_factor) == (0, 4, 1)
    assert outcome.topic_id == asked.leader.topic("t").topic_id
    assert (await asked.create()).error_code == 36


async def test_replicas_are_the_stores_affair() -> None:
    asked = Asked()
    assert [(await asked.create(f"t{number}", 2, number)).error_code for number in (1, 3, 100)] == [0, 0, 0]
    assert [(await asked.create("x", 2, number)).error_code for number in (0, -2)] == [38, 38]
    topic = NewTopic("x", -1, -1, [Assignment(0, [1])], [])
    (outcome,) = await asked.administrator.create_topics(CreateTopicsRequest([topic], 1000, False))
    assert outcome.error_code == 39


@pytest.mark.parametrize("partitions", [0, -2, 10_001])
async def test_partitions_that_cannot_be(partitions: int) -> None:
    asked = Asked()
    assert (await asked.create(partitions=partitions)).error_code == 37
    assert asked.leader.calls == []


async def test_settings_that_hold_are_taken() -> None:
    asked = Asked()
    outcome = await asked.create(
        retention_ms="3600000",
        retention_bytes="-1",
        cleanup_policy="delete",
        compression_type="producer",
        message_timestamp_type="CreateTime",
        max_message_bytes=str(1 << 20),
    )
    assert outcome.error_code == 0
    topic = asked.leader.topic("t")
    assert (topic.retention_ms, topic.retention_bytes) == (3_600_000, -1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup_policy", "compact,truncate"),
        ("cleanup_policy", ""),
        ("segment_bytes", "large"),
        ("compression_type", "gzip"),
        ("message_timestamp_type", "LogAppendTime"),
        ("max_message_bytes", "5"),
        ("retention_ms", "-2"),
        ("retention_ms", "soon"),
        ("retention_bytes", str(2**63)),
        ("retention_bytes", "9" * 5000),
        ("flush_ms", "1"),
    ],
)
async def test_other_settings_are_refused_with_what_is_wrong(name: str, value: str) -> None:
    asked = Asked()
    given: dict[str, Any] = {name: value}
    outcome = await asked.create(**given)
    assert outcome.error_code == 40
    assert outcome.error_message is not None and name.replace("_", ".") in outcome.error_message
    assert asked.leader.calls == []


@pytest.mark.parametrize(("policy", "kept"), [("compact", -1), ("compact, delete", 1000), ("delete,compact", 1000)])
async def test_a_topic_that_is_to_be_compacted_keeps_each_record(
    policy: str, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What Streams asks of its internal topics."""
    asked = Asked()
    given: dict[str, Any] = {"cleanup_policy": policy, "retention_ms": "1000", "segment_bytes": "52428800"}
    assert (await asked.create("changelog", validate_only=True, **given)).error_code == 0
    assert caplog.messages == []
    assert (await asked.create("changelog", **given)).error_code == 0
    assert asked.leader.topic("changelog").retention_ms == kept
    assert caplog.messages == ["topic changelog asked for compaction: each record of a key is kept"]


async def test_nothing_is_created_to_validate() -> None:
    asked = Asked()
    assert (await asked.create(validate_only=True)).error_code == 0
    assert asked.leader.topic_names() == []
    asked.leader.add_topic("t")
    assert (await asked.create(validate_only=True)).error_code == 36


async def test_names() -> None:
    asked = Asked()
    assert [(await asked.create(name)).error_code for name in ("", ".", "a b", "a" * 250)] == [17] * 4
    twice = [NewTopic("t", -1, -1, [], []), NewTopic("u", -1, -1, [], []), NewTopic("t", -1, -1, [], [])]
    outcomes = await asked.administrator.create_topics(CreateTopicsRequest(twice, 1000, False))
    assert [(one.name, one.error_code) for one in outcomes] == [("t", 42), ("u", 0)]


async def test_a_stale_registration_is_looked_into() -> None:
    asked = Asked()
    asked.leader.fault("create_topic", raising(RequestError(ErrorCode.STALE_BROKER_EPOCH)))
    assert (await asked.create()).error_code == 7
    assert asked.session.doubted == [5]
    asked.session.broker_epoch = None
    assert (await asked.create()).error_code == 7


async def test_topics_are_deleted_by_name_and_by_id() -> None:
    asked = Asked()
    made = [asked.leader.add_topic(name) for name in "ab"]
    doomed = [
        DoomedTopic("a"),
        DoomedTopic(None, made[1].topic_id),
        DoomedTopic("gone"),
        DoomedTopic(None, uuid.UUID(int=9)),
    ]
    outcomes = await asked.administrator.delete_topics(DeleteTopicsRequest(doomed, 1000))
    assert [(one.name, one.error_code) for one in outcomes] == [("a", 0), ("b", 0), ("gone", 3), (None, 100)]
    assert [one.topic_id for one in outcomes[:2]] == [one.topic_id for one in made]
    assert asked.leader.topic_names() == []


async def test_settings_are_described() -> None:
    asked = Asked()
    await asked.create(retention_ms="5000")
    resources = [
        ConfigResource(TOPIC, "t", None),
        ConfigResource(TOPIC, "t", ["retention.ms", "unknown"]),
        ConfigResource(TOPIC, "gone", None),
        ConfigResource(BROKER, "7", ["num.partitions"]),
        ConfigResource(BROKER, "8", None),
        ConfigResource(32, "x", None),
    ]
    told = await asked.administrator.describe_configs(DescribeConfigsRequest(resources, False))
    assert [one.error_code for one in told] == [0, 0, 3, 0, 42, 42]
    assert len(told[0].configs) == 6
    assert [(one.name, one.value, one.source) for one in told[1].configs] == [("retention.ms", "5000", TOPIC_CONFIG)]
    assert [(one.name, one.value) for one in told[3].configs] == [("num.partitions", "4")]
