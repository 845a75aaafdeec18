"""Produce requests: what each partition is answered, and in which order requests join the logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.data.producing import Producer
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.kafka.wire.data.produce import PartitionRecords, ProduceRequest, TopicAppend, TopicRecords
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS
from tests.support.data_parts import raising, records
from tests.support.gatherer_rig import Rig
from tests.support.waiting import until


class ProducerRig(Rig):
    """And what serves Produce."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.topics = Topics(self.settings, self.leader, self.session)
        self.producer = Producer(self.settings, self.session, self.topics, self.gatherer, self.counters)

    async def produce(
        self, *wanted: tuple[str, int, memoryview | None], acks: int = -1, caller: Caller = ANYBODY, **fields: Any
    ) -> list[tuple[str, int, int, int]]:
        """Topic, partition, code and offset of each."""
        topics = [TopicRecords(topic, [PartitionRecords(partition, data)]) for topic, partition, data in wanted]
        fields = {"transactional_id": None, "timeout_ms": 5000} | fields
        request = ProduceRequest(acks=acks, topics=topics, **fields)
        answer = await self.producer.produce(request, caller)
        return [
            (one.topic, each.partition, each.error_code, each.base_offset) for one in answer for each in one.partitions
        ]

    async def stop(self) -> None:
        await self.topics.stop()
        await super().stop()


@pytest.fixture
async def rig() -> AsyncIterator[ProducerRig]:
    made = ProducerRig()
    yield made
    await made.stop()


@pytest.mark.parametrize("acks", [-1, 0, 1])
async def test_every_partition_is_answered_in_order(rig: ProducerRig, acks: int) -> None:
    told = await rig.produce(
        ("t", 2, records(0)),
        ("gone", 0, records(0)),
        ("t", 3, records(0)),
        ("t", 2, records(1)),
        ("t", 0, None),
        acks=acks,
    )
    assert told == [("t", 2, 0, 0), ("gone", 0, 3, -1), ("t", 3, 3, -1), ("t", 2, 0, 1), ("t", 0, 87, -1)]
    assert rig.gatherer.room.held == 0


async def test_other_acks_are_refused(rig: ProducerRig) -> None:
    assert await rig.produce(("t", 0, records(0)), acks=2) == [("t", 0, 21, -1)]
    assert rig.store.puts == []


async def test_a_transactional_id_that_is_not_allowed(rig: ProducerRig) -> None:
    nobody = Caller(may_use=lambda name: name != "x")
    producer_id, epoch = rig.leader.begin("y", "t", 0)
    data = records(0, transactional=True, producer_id=producer_id, epoch=epoch)
    assert await rig.produce(("t", 0, data), caller=nobody, transactional_id="x") == [("t", 0, 53, -1)]
    assert await rig.produce(("t", 0, data), caller=nobody, transactional_id="y") == [("t", 0, 0, 0)]


async def test_requests_wait_for_a_topic_in_their_order(rig: ProducerRig) -> None:
    """The second knows its topic already, and must not overtake the first, which has to ask for another."""
    rig.leader.add_topic("other")
    await rig.topics.find(["t"])
    go = asyncio.Event()
    rig.leader.fault("find_topics", lambda _: go.wait())
    first = asyncio.create_task(rig.produce(("t", 0, records(0)), ("other", 0, records(0))))
    await asyncio.sleep(0)
    second = asyncio.create_task(rig.produce(("t", 0, records(1))))
    elsewhere = asyncio.create_task(rig.produce(("t", 1, records(0))))
    await asyncio.sleep(0.02)
    go.set()
    assert await first == [("t", 0, 0, 0), ("other", 0, 0, 0)]
    assert await second == [("t", 0, 0, 1)]
    assert await elsewhere == [("t", 1, 0, 0)]


async def test_above_the_budget_requests_wait(rig: ProducerRig) -> None:
    rig.gatherer.room.capacity = size = len(records(0))
    go = asyncio.Event()
    rig.store.put_faults.append(lambda _: go.wait())
    first = asyncio.create_task(rig.produce(("t", 0, records(0))))
    second = asyncio.create_task(rig.produce(("t", 0, records(1))))
    third = asyncio.create_task(rig.produce(("t", 1, records(0)), timeout_ms=0))
    assert await third == [("t", 1, 7, -1)]
    assert (rig.gatherer.room.held, rig.gatherer.room.waiting) == (size, 1)
    go.set()
    assert [await first, await second] == [[("t", 0, 0, 0)], [("t", 0, 0, 1)]]
    assert rig.gatherer.room.held == 0


async def test_no_answer_about_a_topic_is_a_timeout(rig: ProducerRig) -> None:
    rig.leader.fault("find_topics", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT)))
    assert await rig.produce(("t", 0, records(0))) == [("t", 0, 7, -1)]
    assert await rig.produce(("t", 0, records(0))) == [("t", 0, 0, 0)]


async def test_a_topic_that_was_made_anew_is_found_again(rig: ProducerRig) -> None:
    assert await rig.produce(("t", 0, records(0))) == [("t", 0, 0, 0)]
    rig.leader.drop_topic("t")
    rig.leader.add_topic("t", 1)
    assert await rig.produce(("t", 0, records(0))) == [("t", 0, 3, -1)]
    assert await rig.produce(("t", 0, records(0))) == [("t", 0, 0, 0)]


async def test_nothing_is_taken_before_the_quorum_knows_the_store(rig: ProducerRig) -> None:
    rig.session.store_told = False
    assert await rig.produce(("t", 0, records(0)), ("t", 1, records(0))) == [("t", 0, 6, -1), ("t", 1, 6, -1)]
    assert not rig.store.puts


async def test_no_partition_joins_a_transaction_before_the_quorum_has_records_for_that(rig: ProducerRig) -> None:
    rig.session.metadata_version = TRANSACTION_EPOCHS - 1
    data = records(0, transactional=True)
    assert await rig.produce(("t", 0, data), transactional_id="x", joining=True) == [("t", 0, 6, -1)]
    assert not rig.store.puts


async def test_requests_queue_in_the_order_in_which_they_begin(rig: ProducerRig) -> None:
    """The first has no room yet when the second would fit: the second must not overtake it."""
    await rig.topics.find(["t"])
    room = rig.gatherer.room
    told: list[list[TopicAppend] | None] = []
    small, large = records(1), records(0, values=[bytes(500)])
    room.capacity = len(large)
    await room.take(len(large) - len(small))
    for data in (large, small):
        request = ProduceRequest(None, -1, 5000, [TopicRecords("t", [PartitionRecords(0, data)])])
        rig.producer.begin(request, ANYBODY, told.append)
    await asyncio.sleep(0.02)
    assert (told, rig.store.puts) == ([], [])
    room.give_back(len(large) - len(small))
    await until(lambda: len(told) == 2)
    assert [[one.partitions[0].base_offset for one in each] for each in told if each] == [[0], [1]]


async def test_what_breaks_is_reported_and_told(rig: ProducerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    monkeypatch.setattr(rig.producer, "_check", broken)
    told: list[Any] = []
    request = ProduceRequest(None, -1, 5000, [TopicRecords("t", [PartitionRecords(0, records(0))])])
    rig.producer.begin(request, ANYBODY, told.append)
    await until(lambda: told == [None])
    assert [type(report["exception"]) for report in reports] == [ZeroDivisionError]
    assert rig.gatherer.room.held == 0
