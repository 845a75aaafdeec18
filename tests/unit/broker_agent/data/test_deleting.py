"""DeleteRecords: what is deleted, and what is refused as Kafka refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from pidkeeper.broker_agent.data import deleting
from pidkeeper.broker_agent.data.deleting import RecordDeleter
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.kafka.wire.data.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsRequest,
    PartitionEnd,
    TopicEnds,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.support.data_parts import raising
from tests.support.store_rig import RECORDS, StoreRig

OUT_OF_RANGE, UNKNOWN, TIMED_OUT, NO_VERSION = 1, 3, 7, 35


class Asked:
    """A topic `t` of two partitions, with three batches in the first."""

    def __init__(self) -> None:
        self.rig = StoreRig()
        self.leader = self.rig.leader
        self.leader.add_topic("t", 2)
        self.agent = self.rig.agent()
        topics = Topics(DataSettings(store="unused"), self.leader, self.agent.session)
        self.deleter = RecordDeleter(self.leader, topics)

    async def fill(self) -> Asked:
        for _ in range(3):
            await self.agent.produce(self.leader.topic("t").first_log)
        return self

    async def delete(self, *ends: tuple[str, int, int]) -> list[tuple[int, int]]:
        """First offset and code for each topic, partition and offset."""
        topics = [TopicEnds(topic, [PartitionEnd(partition, offset)]) for topic, partition, offset in ends]
        told = await self.deleter.delete_records(DeleteRecordsRequest(topics, 1000))
        assert [(one.topic, one.partitions[0].partition) for one in told] == [end[:2] for end in ends]
        return [(one.partitions[0].low_watermark, one.partitions[0].error_code) for one in told]


async def test_what_lies_below_is_gone_and_its_object_is_garbage() -> None:
    asked = await Asked().fill()
    assert await asked.delete(("t", 0, 3)) == [(3, 0)]
    await asked.agent.collect()
    assert len(await asked.rig.names()) == 2
    assert await asked.delete(("t", 0, 1)) == [(3, 0)], "a start never falls"
    assert await asked.delete(("t", 0, HIGH_WATERMARK), ("t", 1, HIGH_WATERMARK)) == [(3 * RECORDS, 0), (0, 0)]
    await asked.agent.collect()
    assert await asked.rig.names() == set()


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (("t", 0, 3 * RECORDS + 1), OUT_OF_RANGE),
        (("t", 0, -2), OUT_OF_RANGE),
        (("t", 0, -(2**63)), OUT_OF_RANGE),
        (("t", 2, 0), UNKNOWN),
        (("t", -1, 0), UNKNOWN),
        (("u", 0, 0), UNKNOWN),
        (("?", 0, 0), UNKNOWN),
    ],
)
async def test_what_cannot_be_deleted(end: tuple[str, int, int], code: int) -> None:
    asked = await Asked().fill()
    assert await asked.delete(end, ("t", 0, 2)) == [(-1, code), (2, 0)] or end[:2] == ("t", 0)
    assert await asked.delete(end) == [(-1, code)]


async def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    asked = await Asked().fill()
    assert await asked.delete(("t", 0, 4), ("t", 0, 2)) == [(2, 0), (2, 0)]


async def test_a_topic_that_went_meanwhile_is_unknown() -> None:
    asked = await Asked().fill()
    await asked.delete(("t", 0, 0))
    asked.leader.drop_topic("t")
    assert await asked.delete(("t", 0, 2)) == [(-1, UNKNOWN)]
    assert len(asked.leader.asked("find_topics")) == 1
    assert await asked.delete(("t", 0, 2)) == [(-1, UNKNOWN)]
    assert len(asked.leader.asked("find_topics")) == 2


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        ("delete_records", ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT),
        ("delete_records", ErrorCode.UNSUPPORTED_VERSION, NO_VERSION),
        ("find_topics", ErrorCode.REQUEST_TIMED_OUT, TIMED_OUT),
    ],
)
async def test_what_the_quorum_refuses_is_told(call: str, code: ErrorCode, told: int) -> None:
    asked = await Asked().fill()
    asked.leader.fault(call, raising(RequestError(code)))
    assert await asked.delete(("t", 0, 2), ("t", 1, 0)) == [(-1, told)] * 2
    assert await asked.delete(("t", 0, 2)) == [(2, 0)]


async def test_an_agent_that_is_not_in_force_asks_its_clients_to_come_again() -> None:
    asked = await Asked().fill()
    asked.rig.agent()
    assert await asked.delete(("t", 0, 2)) == [(-1, TIMED_OUT)]
    assert asked.agent.session.doubted == [asked.agent.session.broker_epoch]
    asked.agent.session.broker_epoch = None
    assert await asked.delete(("t", 0, 2)) == [(-1, TIMED_OUT)]


async def test_more_partitions_than_one_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleting, "MAX_LOG_STARTS", 1)
    asked = await Asked().fill()
    assert await asked.delete(("t", 0, 2), ("t", 1, 0), ("t", 0, 2)) == [(2, 0), (0, 0), (2, 0)]
    assert len(asked.leader.asked("delete_records")) == 2


async def test_an_answer_of_another_length_is_none() -> None:
    asked = await Asked().fill()

    def shorter(_: Any, answer: Any) -> None:
        answer.logs.clear()

    asked.leader.edits["delete_records"] = shorter
    assert await asked.delete(("t", 0, 2)) == [(-1, -1)]
