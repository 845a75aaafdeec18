"""Real clients produce and consume by the Kafka listener of an agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource as ConfluentResource
from confluent_kafka.cimpl import NewTopic as ConfluentTopic

from pidkeeper.broker_agent.data.store.local import LocalStore
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.errors import ErrorCode, RequestError
from tests.support.data_agent import DataAgent, data_agent
from tests.support.data_parts import raising, stored_headers
from tests.support.log_leader import LogLeader
from tests.support.stub_controller import StubQuorum

RECORDS = 200
COMPRESSIONS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[DataAgent]:
    store = LocalStore(tmp_path, OsFiles())
    async with (
        StubQuorum() as quorum,
        data_agent(quorum, LogLeader(), store, default_partitions=3) as made,
    ):
        yield made
    await store.close()


@contextlib.asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    await client.start() if hasattr(client, "start") else None
    try:
        yield client
    finally:
        await (client.stop() if hasattr(client, "stop") else client.close())


async def consumed(agent: DataAgent, topic: str, count: int, **options: Any) -> list[tuple[int, int, bytes]]:
    """Partition, offset and value of the first records, by aiokafka, from the start of each of three partitions."""
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.address, auto_offset_reset="earliest", **options)
    found: list[tuple[int, int, bytes]] = []
    async with started(consumer), asyncio.timeout(20):
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        while len(found) < count:
            batch = await consumer.getmany(timeout_ms=200)
            found += [(one.partition, one.offset, one.value) for rows in batch.values() for one in rows]
    return found


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=str)
async def test_aiokafka(agent: DataAgent, compression: str | None) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=agent.address, enable_idempotence=True, compression_type=compression, max_batch_size=2000
    )
    async with started(producer), asyncio.timeout(20):
        sent = [await producer.send("t", b"%d" % number, partition=number % 3) for number in range(RECORDS)]
        told = [await one for one in sent]
    assert sorted((one.partition, one.offset) for one in told) == sorted(
        (number % 3, number // 3) for number in range(RECORDS)
    )
    found = await consumed(agent, "t", RECORDS, isolation_level="read_committed")
    assert sorted(found) == sorted((number % 3, number // 3, b"%d" % number) for number in range(RECORDS))
    first = agent.leader.topic("t").first_log
    for log in range(first, first + 3):
        headers = await stored_headers(agent.store, agent.leader, log)
        assert headers and all(one.producer_id >= 0 for one in headers.values())


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_librdkafka(agent: DataAgent, compression: str) -> None:
    def produce_and_consume() -> list[tuple[int, int, bytes]]:
        errors: list[Any] = []
        common = {"bootstrap.servers": agent.address, "error_cb": errors.append}
        producer = confluent_kafka.Producer(
            common | {"enable.idempotence": True, "compression.type": compression, "batch.size": 2000, "linger.ms": 2}
        )
        outcomes: list[Any] = []
        for number in range(RECORDS):
            producer.produce(
                "t", b"%d" % number, partition=number % 3, on_delivery=lambda error, _: outcomes.append(error)
            )
        assert producer.flush(20) == 0
        assert outcomes == [None] * RECORDS
        consumer = confluent_kafka.Consumer(common | {"group.id": "unused", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition("t", partition, 0) for partition in range(3)])
        found: list[tuple[Any, Any, Any]] = []
        for _ in range(200):
            for one in consumer.consume(RECORDS, 0.1):
                assert one.error() is None
                found.append((one.partition(), one.offset(), one.value()))
            if len(found) == RECORDS:
                break
        assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0)) == (0, 67)
        consumer.close()
        return found

    found = await asyncio.to_thread(produce_and_consume)
    assert sorted(found) == sorted((number % 3, number // 3, b"%d" % number) for number in range(RECORDS))


async def test_a_consumer_hears_of_new_records_at_once(agent: DataAgent) -> None:
    # Of what comes by the same agent it need not ask the quorum.
    agent.leader.fault("watch_logs", *[raising(RequestError(ErrorCode.REQUEST_TIMED_OUT))] * 1000)
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.address, fetch_max_wait_ms=20_000, request_timeout_ms=40_000)
    async with started(AIOKafkaProducer(bootstrap_servers=agent.address)) as producer, asyncio.timeout(15):
        await producer.send_and_wait("t", b"first", partition=0)
        async with started(consumer):
            consumer.assign([TopicPartition("t", 0)])
            await consumer.seek_to_end()
            waiting = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0.3)
            await producer.send_and_wait("t", b"second", partition=0)
            assert (await waiting).value == b"second"
    assert agent.room.counters.recent_reads > 0
    assert agent.room.counters.store_reads == 0


async def test_an_aborted_transaction_is_not_shown(agent: DataAgent) -> None:
    """The marker is what a consumer takes for the end of what was aborted."""
    async with started(AIOKafkaProducer(bootstrap_servers=agent.address, transactional_id="x")) as producer:
        for value, committed in ((b"dropped", False), (b"kept", True)):
            await producer.begin_transaction()
            await producer.send_and_wait("t", value, partition=0)
            await (producer.commit_transaction() if committed else producer.abort_transaction())
    # Offsets 1 and 3 are markers.
    found = await consumed(agent, "t", 1, isolation_level="read_committed")
    assert [(offset, value) for _, offset, value in found] == [(2, b"kept")]
    found = await consumed(agent, "t", 2, isolation_level="read_uncommitted")
    assert [(offset, value) for _, offset, value in found] == [(0, b"dropped"), (2, b"kept")]


async def test_administration_by_aiokafka(agent: DataAgent) -> None:
    async with started(AIOKafkaAdminClient(bootstrap_servers=agent.address)) as admin, asyncio.timeout(15):
        await admin.create_topics([NewTopic("made", 5, 3, topic_configs={"retention.ms": "1000"})])
        assert await admin.list_topics() == ["made"]
        (described,) = await admin.describe_topics(["made"])
        assert len(described["partitions"]) == 5
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "made")])
        entries = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert (entries["retention.ms"], entries["cleanup.policy"]) == ("1000", "delete")
        await admin.delete_topics(["made"])
        assert await admin.list_topics() == []


async def test_administration_by_librdkafka(agent: DataAgent) -> None:
    def administrate() -> None:
        admin = AdminClient({"bootstrap.servers": agent.address})

        def create(name: str, **configs: str) -> None:
            config = {key.replace("_", "."): value for key, value in configs.items()}
            admin.create_topics([ConfluentTopic(name, 2, config=config)])[name].result(10)

        create("made", retention_ms="5000")
        with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
            create("made")
        with pytest.raises(confluent_kafka.KafkaException, match="INVALID_CONFIG"):
            create("other", compression_type="gzip")
        assert len(admin.list_topics("made", timeout=10).topics["made"].partitions) == 2
        broker = ConfluentResource(ConfluentResource.Type.BROKER, "7")
        entries = admin.describe_configs([broker])[broker].result(10)
        assert entries["num.partitions"].value == "3"
        admin.delete_topics(["made"])["made"].result(10)

    await asyncio.to_thread(administrate)
    assert agent.leader.topic_names() == []


async def test_records_are_deleted_by_librdkafka(agent: DataAgent) -> None:
    def delete() -> list[Any]:
        wanted = [confluent_kafka.TopicPartition("t", 0, 2), confluent_kafka.TopicPartition("t", 1, -1)]
        wanted += [confluent_kafka.TopicPartition("t", 2, 99)]
        admin = AdminClient({"bootstrap.servers": agent.address})
        outcomes: list[Any] = []
        for partition, future in admin.delete_records(wanted, request_timeout=10).items():
            try:
                outcomes.append((partition.partition, future.result(10).low_watermark))
            except confluent_kafka.KafkaException as error:
                outcomes.append((partition.partition, error.args[0].name()))
        return outcomes

    async with started(AIOKafkaProducer(bootstrap_servers=agent.address)) as producer, asyncio.timeout(20):
        for number in range(9):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 3)
        outcomes = await asyncio.to_thread(delete)
    assert sorted(outcomes) == [(0, 2), (1, 3), (2, "OFFSET_OUT_OF_RANGE")]
    found = await consumed(agent, "t", 4)
    assert sorted(found) == [(0, 2, b"6"), (2, 0, b"2"), (2, 1, b"5"), (2, 2, b"8")]


async def test_records_are_deleted_by_aiokafka(agent: DataAgent) -> None:
    async with started(AIOKafkaProducer(bootstrap_servers=agent.address)) as producer, asyncio.timeout(20):
        for number in range(3):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
    async with started(AIOKafkaAdminClient(bootstrap_servers=agent.address)) as admin, asyncio.timeout(15):
        partition = TopicPartition("t", 0)
        assert await admin.delete_records({partition: RecordsToDelete(before_offset=2)}) == {partition: 2}
    assert await consumed(agent, "t", 1) == [(0, 2, b"2")]


async def test_large_requests_that_overlap(agent: DataAgent) -> None:
    """Requests of megabytes, five ahead of their answers, in an order that a sequence number would betray."""

    def produce() -> list[tuple[Any, int | None]]:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": agent.address, "enable.idempotence": True, "batch.size": 900_000, "linger.ms": 1}
        )
        outcomes: list[tuple[Any, int | None]] = []
        for _ in range(60):
            producer.produce(
                "t", bytes(300_000), partition=0, on_delivery=lambda error, one: outcomes.append((error, one.offset()))
            )
        assert producer.flush(30) == 0
        return outcomes

    assert await asyncio.to_thread(produce) == [(None, offset) for offset in range(60)]
    assert max(one.size for one in agent.leader.commits) > 1 << 20
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.address, auto_offset_reset="earliest")
    async with started(consumer), asyncio.timeout(20):
        consumer.assign([TopicPartition("t", 0)])
        assert [len((await consumer.getone()).value) for _ in range(60)] == [300_000] * 60
