"""Quotas of bytes, seen by real clients and by one that does not care what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from pidkeeper.broker_agent.data.store.memory import MemoryStore
from pidkeeper.broker_agent.kafka.quotas.meter import FETCH, KINDS, PRODUCE
from pidkeeper.broker_agent.security.quota_list import QuotaList
from tests.support.data_agent import DataAgent, data_agent
from tests.support.data_parts import records
from tests.support.log_leader import LogLeader
from tests.support.plain_messages import requests, response
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until

SECONDS = 15.0
Start = Callable[[str], Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start an agent with these quotas."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(text: str) -> DataAgent:
            (tmp_path / "quotas").write_text(text)
            quorum = await stack.enter_async_context(StubQuorum())
            quotas = QuotaList(str(tmp_path / "quotas"))
            leader = LogLeader()
            leader.add_topic("t")
            return await stack.enter_async_context(data_agent(quorum, leader, MemoryStore(), quotas))

        yield begin


class Raw:
    """One that sends whatever it wants to, whenever it wants to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, agent: DataAgent) -> AsyncIterator[Raw]:
        host, port = agent.address.split(":")
        made = cls(*await asyncio.open_connection(host, int(port)))
        try:
            yield made
        finally:
            made.writer.transport.abort()
            await asyncio.gather(made.writer.wait_closed(), return_exceptions=True)

    def produce(self, value: bytes, acks: int = -1) -> None:
        message = {
            "transactional_id": None,
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": records(values=(value,))}]}],
        }
        self._send(requests("produce", 9, message)[0])

    def fetch(self, offset: int, wait_ms: int = 0, max_bytes: int = 1 << 20) -> None:
        partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        message = {
            "replica_id": -1,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "isolation_level": 0,
            "session_epoch": -1,
            "forgotten_topics_data": [],
            "rack_id": "",
            "topics": [{"topic": "t", "partitions": [partition]}],
        }
        self._send(requests("fetch", 12, message)[0])

    async def answer(self, api: str, version: int) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return response(api, version, await self.reader.readexactly(length))

    def _send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4, "big") + frame)


async def test_librdkafka_is_told_and_waits(start: Start) -> None:
    agent: DataAgent = await start("anonymous produce_bytes_per_second=40000\n")
    told: list[Any] = []

    def produced() -> float:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": agent.address, "linger.ms": 0, "batch.size": 5000, "throttle_cb": told.append}
        )
        begin = time.monotonic()
        errors: list[Any] = []
        for _ in range(15):
            producer.produce("t", bytes(4000), partition=0, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
        assert producer.flush(20) == 0
        assert errors == [None] * 15
        return time.monotonic() - begin

    took = await asyncio.to_thread(produced)
    assert took > 0.25, "60 KB at 40 KB/s, of which a second's worth may come at once"
    assert max(event.throttle_time for event in told) > 0
    assert agent.meters is not None
    assert agent.meters.throttled.answers[PRODUCE] > 1
    assert not agent.meters.throttled.answers[FETCH]


async def test_aiokafka_consumes_all_at_the_rate(start: Start) -> None:
    agent: DataAgent = await start("anonymous fetch_bytes_per_second=40000\n")
    loop, count = asyncio.get_running_loop(), 12
    async with AIOKafkaProducer(bootstrap_servers=agent.address, max_batch_size=1) as producer:
        for number in range(count):
            await producer.send_and_wait("t", b"%d" % number + bytes(5000), partition=0)
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.address, auto_offset_reset="earliest")
    async with consumer, asyncio.timeout(SECONDS):
        consumer.assign([TopicPartition("t", 0)])
        begin = loop.time()
        found = [await consumer.getone() for _ in range(count)]
        took = loop.time() - begin
    assert [one.offset for one in found] == list(range(count))
    assert took > 0.25, "60 KB at 40 KB/s, of which a second's worth may come at once"
    assert agent.meters is not None
    assert agent.meters.throttled.answers[FETCH] > 0


async def test_a_producer_that_does_not_care_is_held(start: Start) -> None:
    agent: DataAgent = await start("* produce_bytes_per_second=20000\n")
    loop = asyncio.get_running_loop()
    async with Raw.connected(agent) as client:
        begin = loop.time()
        for _ in range(6):
            client.produce(bytes(5000))
        told = [(await client.answer("produce", 9))["throttle_time_ms"] for _ in range(6)]
        took = loop.time() - begin
    assert told[-1] > 0
    assert took > 0.2, "what follows the fifth request is not even read for a while"


async def test_records_that_want_no_answer_are_held_for_too(start: Start) -> None:
    agent: DataAgent = await start("* produce_bytes_per_second=20000\n")
    loop = asyncio.get_running_loop()
    async with Raw.connected(agent) as client:
        begin = loop.time()
        for acks in (0, 0, 0, 0, 0, -1):
            client.produce(bytes(5000), acks)
        assert (await client.answer("produce", 9))["responses"][0]["partition_responses"][0]["base_offset"] == 5
        assert loop.time() - begin > 0.2


async def test_over_the_quota_a_fetch_has_no_records_and_leaves_the_quorum_alone(start: Start) -> None:
    agent: DataAgent = await start("* fetch_bytes_per_second=10000\n")
    async with Raw.connected(agent) as client, Raw.connected(agent) as second:
        for _ in range(4):
            client.produce(bytes(6000))
            await client.answer("produce", 9)
        client.fetch(0)
        first = await client.answer("fetch", 12)
        size = len(first["responses"][0]["partitions"][0]["records"])
        assert 6000 < size < 10_000, "no more than there is room for"
        client.fetch(1)
        beyond = await client.answer("fetch", 12)
        assert len(beyond["responses"][0]["partitions"][0]["records"]) == size, "the first batch is given in any case"
        assert 0 < beyond["throttle_time_ms"] < 1000
        counted = agent.room.counters.store_reads + agent.room.counters.recent_reads
        second.fetch(2)
        refused = await second.answer("fetch", 12)
        assert (refused["responses"], refused["error_code"]) == ([], 0)
        assert 0 < refused["throttle_time_ms"] <= beyond["throttle_time_ms"]
        assert agent.room.counters.store_reads + agent.room.counters.recent_reads == counted
        client.fetch(2)
        assert (await client.answer("fetch", 12))["responses"][0]["partitions"][0]["records"], "after the wait"


async def test_what_another_connection_used_while_a_consumer_waited_counts(start: Start) -> None:
    agent: DataAgent = await start("* fetch_bytes_per_second=10000\n")
    async with Raw.connected(agent) as client, Raw.connected(agent) as waiting:
        for _ in range(3):
            client.produce(bytes(9000))
            await client.answer("produce", 9)
        waiting.fetch(3, wait_ms=10_000)
        await until(lambda: agent.room.counters.fetch_requests == 1)
        for offset in range(2):
            client.fetch(offset)
            await client.answer("fetch", 12)
        async with Raw.connected(agent) as producer:
            producer.produce(bytes(100))
            await producer.answer("produce", 9)
        answer = await waiting.answer("fetch", 12)
        assert answer["responses"] == [] and answer["throttle_time_ms"] > 0


@pytest.mark.parametrize("kind", ["produce", "fetch"])
async def test_one_quota_does_not_hold_what_has_another(start: Start, kind: str) -> None:
    agent: DataAgent = await start(f"* {kind}_bytes_per_second=1000\n")
    async with Raw.connected(agent) as first, Raw.connected(agent) as second:
        first.produce(bytes(6000))
        assert ((await first.answer("produce", 9))["throttle_time_ms"] > 0) is (kind == "produce")
        for number in range(2):
            second.fetch(0)
            answer = await second.answer("fetch", 12)
            assert (answer["throttle_time_ms"] > 0) is (kind == "fetch"), number
            if kind == "fetch":
                break
    assert agent.meters is not None
    assert [name for name in KINDS if agent.meters.throttled.answers[name]] == [kind]
