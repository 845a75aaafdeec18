"""Whole agents whose store is away, at the start or later: they hand out IDs, and go on with records by themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.support.agent_process import RunningAgent, agent_process
from tests.support.gate import Gate
from tests.support.log_leader import LogLeader
from tests.support.s3_store import S3Bucket
from tests.support.stub_controller import StubQuorum
from tests.support.waiting import until

SECONDS: Final = 20.0
RECORDS: Final = 20


@pytest.fixture(scope="module")
def _bucket() -> Iterator[S3Bucket]:
    with S3Bucket() as one:
        yield one


@pytest.fixture
def leader() -> LogLeader:
    return LogLeader()


@pytest.fixture
async def quorum(leader: LogLeader) -> AsyncIterator[StubQuorum]:
    async with StubQuorum() as one:
        one.keep_logs(leader)
        yield one


@pytest.fixture
async def gate(_bucket: S3Bucket) -> AsyncIterator[Gate]:
    async with Gate(_bucket.options["endpoint"].removeprefix("http://")).serving() as one:
        yield one


@pytest.fixture
def settings(_bucket: S3Bucket, gate: Gate, quorum: StubQuorum) -> dict[str, Any]:
    """Of an agent whose bucket is behind the gate."""
    options = _bucket.options | {"endpoint": f"http://{gate.address}"}
    return {
        "controllers": ",".join(quorum.urls),
        "heartbeat_interval_ms": 100,
        "data__store": _bucket.new_url(),
        **{f"data__store_options__{name}": value for name, value in options.items()},
    }


async def probe(running: RunningAgent, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession(running.http) as http, http.get(path) as response:
        return response.status, await response.text()


async def pair(running: RunningAgent) -> int:
    """The code of an InitProducerId with a transactional id."""
    body = {"transactional_id": "x", "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    async with (
        aiohttp.ClientSession(running.http) as http,
        http.post("/v1/init-producer-id", json=body) as response,
    ):
        return int((await response.json())["error_code"])


async def shown(running: RunningAgent, name: str) -> float:
    _, text = await probe(running, "/metrics")
    (value,) = [line.split()[1] for line in text.splitlines() if line.startswith(f"pidkeeper_agent_data_{name} ")]
    return float(value)


@contextlib.asynccontextmanager
async def producing(running: RunningAgent) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=running.kafka, enable_idempotence=True, linger_ms=2)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def consumed(running: RunningAgent, number: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(bootstrap_servers=running.kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([TopicPartition("t", 0)])
        async with asyncio.timeout(SECONDS):
            return [(await consumer.getone()).value for _ in range(number)]
    finally:
        await consumer.stop()


async def test_ids_are_served_before_the_store_is_there_and_records_afterwards(
    settings: dict[str, Any], gate: Gate
) -> None:
    gate.open = False
    async with agent_process(broker_id=3, **settings) as agent:
        running = await agent.ready()
        assert await pair(running) == 0
        status, why = await probe(running, "/readyz/store")
        assert (status, (await probe(running, "/readyz"))[0]) == (503, 200)
        assert "the store s3://" in why and "failed" in why
        assert (await shown(running, "store_up"), await shown(running, "store_known")) == (0, 0)
        confluent = confluent_kafka.Producer(
            {"bootstrap.servers": running.kafka, "enable.idempotence": True, "log_level": 0}
        )
        told: list[Any] = []
        confluent.produce("t", b"confluent", on_delivery=lambda error, message: told.append((error, message.offset())))
        async with producing(running) as producer:
            sent = await producer.send("t", b"aiokafka")
            await until(lambda: gate.turned_away > 1)
            while await shown(running, "produce_requests_total") < 2:
                confluent.poll(0.05)
            assert not told and not sent.done(), "nothing is taken while nobody knows the store"
            gate.open = True
            async with asyncio.timeout(SECONDS):
                await sent
                while not told:
                    await asyncio.sleep(0)
                    confluent.poll(0.05)
        assert told[0][0] is None
        assert sorted(await consumed(running, 2), key=str) == [b"aiokafka", b"confluent"]
        assert (await probe(running, "/readyz/store"))[0] == 200
        assert (await shown(running, "store_up"), await shown(running, "store_known")) == (1, 1)
        assert await agent.stop() == 0
    assert len([line for line in agent.log if "does not say which one it is" in line]) == 1, "each try says it again"


async def test_a_store_that_is_away_for_a_while_costs_tries_alone(settings: dict[str, Any], gate: Gate) -> None:
    async with agent_process(broker_id=3, **settings) as agent:
        running = await agent.ready()
        async with producing(running) as producer:
            sent = [await producer.send("t", b"%d" % number) for number in range(RECORDS)]
            await sent[0]
            await gate.shut()
            later = [await producer.send("t", b"%d" % number) for number in range(RECORDS, 2 * RECORDS)]
            await agent.logged("is away, trying again")
            assert await shown(running, "store_up") == 0
            assert await pair(running) == 0
            gate.open = True
            async with asyncio.timeout(SECONDS):
                offsets = [(await one).offset for one in (*sent, *later)]
        assert offsets == list(range(2 * RECORDS))
        assert await consumed(running, 2 * RECORDS) == [b"%d" % number for number in range(2 * RECORDS)]
        await agent.logged("answers again")
        assert await shown(running, "store_up") == 1


async def test_a_directory_that_is_away_for_a_while_costs_tries_alone(quorum: StubQuorum, tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    settings = {"controllers": ",".join(quorum.urls), "data__store": store}
    async with agent_process(broker_id=3, **settings) as agent:
        running = await agent.ready()
        async with producing(running) as producer:
            await (await producer.send("t", b"0"))
            store.rename(elsewhere)
            later = await producer.send("t", b"1")
            await agent.logged("is away, trying again")
            elsewhere.rename(store)
            async with asyncio.timeout(SECONDS):
                assert (await later).offset == 1
        assert await consumed(running, 2) == [b"0", b"1"]


async def test_another_store_ends_the_agent_whenever_it_comes(
    settings: dict[str, Any], gate: Gate, leader: LogLeader
) -> None:
    leader.register(4)
    gate.open = False
    async with agent_process(broker_id=3, **settings) as agent:
        running = await agent.ready()
        gate.open = True
        assert await agent.wait() == 1
    ended = [line for line in agent.log if "CRITICAL" in line]
    assert len(ended) == 1 and "broker 3 keeps objects in store" in ended[0] and "the cluster's is" in ended[0]
    assert running.kafka


async def test_a_store_that_turns_into_another_one_ends_the_agent(quorum: StubQuorum, tmp_path: Path) -> None:
    settings = {"controllers": ",".join(quorum.urls), "data__store": tmp_path / "store"}
    async with agent_process(broker_id=3, **settings) as agent:
        running = await agent.ready()
        async with producing(running) as producer:
            await (await producer.send("t", b"0"))
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        (tmp_path / "store").mkdir()
        confluent = confluent_kafka.Producer({"bootstrap.servers": running.kafka, "log_level": 0})
        confluent.produce("t", b"1")
        assert await agent.wait() == 1
    assert "bring the cluster's store back" in next(line for line in agent.log if "CRITICAL" in line)
    assert not [*(tmp_path / "store").glob("wal/**/*")], "records were put into a store that nobody had looked at"
