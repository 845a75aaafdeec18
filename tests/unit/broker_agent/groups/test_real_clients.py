"""Real clients in groups, by the Kafka listener of an agent, over the real state of the quorum."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import OffsetAndMetadata
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from pidkeeper.broker_agent.data.store.local import LocalStore
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.errors import ErrorCode
from tests.support.data_agent import DataAgent, data_agent
from tests.support.log_leader import LogLeader
from tests.support.stub_controller import StubQuorum

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SECONDS = 30


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[DataAgent]:
    store = LocalStore(tmp_path, OsFiles())
    async with StubQuorum() as quorum, data_agent(quorum, LogLeader(), store, default_partitions=2) as made:
        producer = AIOKafkaProducer(bootstrap_servers=made.address)
        await producer.start()
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
        await producer.stop()
        yield made
    await store.close()


def consumer_of(agent: DataAgent, **options: Any) -> AIOKafkaConsumer:
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return AIOKafkaConsumer("t", bootstrap_servers=agent.address, **settings)


async def read(consumer: AIOKafkaConsumer, count: int) -> set[bytes]:
    found: set[bytes] = set()
    async with asyncio.timeout(SECONDS):
        while len(found) < count:
            batches = await consumer.getmany(timeout_ms=200)
            found |= {one.value for rows in batches.values() for one in rows}
    return found


async def test_aiokafka_shares_a_topic_and_goes_on_where_it_was(agent: DataAgent) -> None:
    one, two = consumer_of(agent), consumer_of(agent)
    await asyncio.gather(one.start(), two.start())
    try:
        async with asyncio.timeout(SECONDS):
            while not (len(one.assignment()) == len(two.assignment()) == 1):
                await asyncio.gather(one.getmany(timeout_ms=100), two.getmany(timeout_ms=100))
        assert one.assignment() | two.assignment() == {TopicPartition("t", 0), TopicPartition("t", 1)}
        await asyncio.gather(one.seek_to_beginning(), two.seek_to_beginning())
        found = await asyncio.gather(read(one, 10), read(two, 10))
        assert found[0] | found[1] == {b"%d" % number for number in range(20)}
        await one.commit()
        await two.commit()
    finally:
        await asyncio.gather(one.stop(), two.stop())
    third = consumer_of(agent)
    await third.start()
    try:
        for partition in range(2):
            assert await third.committed(TopicPartition("t", partition)) == 10
            assert await third.position(TopicPartition("t", partition)) == 10
    finally:
        await third.stop()


async def test_aiokafka_comes_again_while_the_quorum_does_not_answer(agent: DataAgent) -> None:
    """One code has every client come again for each of these requests: COORDINATOR_LOAD_IN_PROGRESS."""
    consumer = consumer_of(agent)
    await consumer.start()
    try:
        partition = TopicPartition("t", 0)
        await consumer.getmany(timeout_ms=100)
        for refused in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            agent.groups.refusals.extend([refused] * 2)
            await consumer.commit({partition: OffsetAndMetadata(7, "m")})
            agent.groups.refusals.extend([refused] * 2)
            assert await consumer.committed(partition) == 7
            assert not agent.groups.refusals
    finally:
        await consumer.stop()


async def test_aiokafka_administers_groups(agent: DataAgent) -> None:
    consumer = consumer_of(agent)
    admin = AIOKafkaAdminClient(bootstrap_servers=agent.address)
    await asyncio.gather(consumer.start(), admin.start())
    try:
        await read(consumer, 20)
        await consumer.commit()
        assert await admin.list_consumer_groups() == [("g", "consumer")]
        (answer,) = await admin.describe_consumer_groups(["g"])
        ((code, name, state, kind, protocol, members, *_),) = answer.groups
        assert (code, name, state, kind, protocol) == (0, "g", "Stable", "consumer", "roundrobin")
        assert [one[1:3] for one in members] == [("aiokafka-0.14.0", "/127.0.0.1")]
        offsets = await admin.list_consumer_group_offsets("g")
        assert {one.partition: each.offset for one, each in offsets.items()} == {0: 10, 1: 10}
    finally:
        await asyncio.gather(consumer.stop(), admin.close())


async def test_aiokafka_commits_offsets_within_a_transaction(agent: DataAgent) -> None:
    """In version 0 of TxnOffsetCommit, which names no member."""
    partition = TopicPartition("t", 0)
    consumer = consumer_of(agent)
    producer = AIOKafkaProducer(bootstrap_servers=agent.address, transactional_id="x")
    await asyncio.gather(consumer.start(), producer.start())
    try:
        for offset, committed in ((3, False), (5, True)):
            agent.groups.refusals.append(ErrorCode.NOT_CONTROLLER)
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"x", partition=0)
            await producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset, "")}, "g")
            await (producer.commit_transaction() if committed else producer.abort_transaction())
            assert await consumer.committed(partition) == (5 if committed else None)
    finally:
        await asyncio.gather(consumer.stop(), producer.stop())


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_kafka_python_goes_on_where_it_was(agent: DataAgent) -> None:
    def work(count: int) -> tuple[set[bytes], set[int]]:
        consumer = kafka.KafkaConsumer(
            "t", bootstrap_servers=agent.address, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        )
        found: set[bytes] = set()
        until = time.monotonic() + SECONDS
        while not consumer.assignment() or len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} records came"
            found |= {one.value for rows in consumer.poll(200).values() for one in rows}
        agent.groups.refusals.append(ErrorCode.NOT_CONTROLLER)
        consumer.commit()
        agent.groups.refusals.append(ErrorCode.NOT_CONTROLLER)
        told = {consumer.committed(partition) for partition in consumer.assignment()}
        consumer.close()
        return found, told

    assert await in_thread(lambda: work(20)) == ({b"%d" % number for number in range(20)}, {10})
    assert await in_thread(lambda: work(0)) == (set(), {10})


def of_librdkafka(agent: DataAgent, **options: Any) -> confluent_kafka.Consumer:
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    return confluent_kafka.Consumer({"bootstrap.servers": agent.address, **settings, **options})


def consumed(consumer: confluent_kafka.Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    until = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} records came"
        for one in consumer.consume(count, 0.2):
            assert one.error() is None, one.error()
            found.append(one)
    return found


async def in_thread(work: Callable[[], Any]) -> Any:
    async with asyncio.timeout(2 * SECONDS):
        return await asyncio.to_thread(work)


async def test_librdkafka_goes_on_where_it_was(agent: DataAgent) -> None:
    partitions = [confluent_kafka.TopicPartition("t", number) for number in range(2)]

    def work() -> None:
        consumer = of_librdkafka(agent)
        consumer.subscribe(["t"])
        assert {one.value() for one in consumed(consumer, 20)} == {b"%d" % number for number in range(20)}
        agent.groups.refusals.append(ErrorCode.NOT_CONTROLLER)
        assert {one.offset for one in consumer.commit(asynchronous=False)} == {10}
        agent.groups.refusals.append(ErrorCode.NOT_CONTROLLER)
        assert [one.offset for one in consumer.committed(partitions)] == [10, 10]
        assert not agent.groups.refusals
        consumer.close()
        # A static member leaves nothing behind that anybody waits for.
        again = of_librdkafka(
            agent, **{"group.instance.id": "i", "partition.assignment.strategy": "cooperative-sticky"}
        )
        again.subscribe(["t"])
        until = time.monotonic() + SECONDS
        while len(again.assignment()) < 2:
            assert time.monotonic() < until
            assert again.poll(0.1) is None
        assert [one.offset for one in again.committed(partitions)] == [10, 10]
        again.close()

    await in_thread(work)


async def test_librdkafka_processes_exactly_once(agent: DataAgent) -> None:
    """KIP-447: what was read and what was written are settled by one record."""

    def work() -> list[int]:
        consumer = of_librdkafka(agent, **{"isolation.level": "read_committed"})
        consumer.subscribe(["t"])
        records = consumed(consumer, 20)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": agent.address, "transactional.id": "x", "log_level": 0}
        )
        producer.init_transactions(SECONDS)
        offsets = []
        for committed in (False, True):
            producer.begin_transaction()
            for one in records:
                producer.produce("out", one.value(), partition=0)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), SECONDS)
            if committed:
                producer.commit_transaction(SECONDS)
            else:
                producer.abort_transaction(SECONDS)
            offsets += sorted(one.offset for one in consumer.committed(positions, SECONDS))
        consumer.close()
        return offsets

    none = confluent_kafka.OFFSET_INVALID
    assert await in_thread(work) == [none, none, 10, 10]


async def test_librdkafka_administers_groups(agent: DataAgent) -> None:
    def work() -> None:
        admin = AdminClient({"bootstrap.servers": agent.address, "log_level": 0})
        consumer = of_librdkafka(agent)
        consumer.subscribe(["t"])
        consumed(consumer, 20)
        consumer.commit(asynchronous=False)
        (found,) = admin.list_consumer_groups().result(SECONDS).valid
        assert (found.group_id, found.is_simple_consumer_group, found.state.name) == ("g", False, "STABLE")
        told = admin.describe_consumer_groups(["g"])["g"].result(SECONDS)
        (member,) = told.members
        assert (told.state.name, member.host, len(member.assignment.topic_partitions)) == ("STABLE", "/127.0.0.1", 2)
        with pytest.raises(KafkaException) as refused:
            admin.delete_consumer_groups(["g"])["g"].result(SECONDS)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        consumer.close()
        wanted = ConsumerGroupTopicPartitions("g", None)
        kept = admin.list_consumer_group_offsets([wanted])["g"].result(SECONDS).topic_partitions
        assert [(one.topic, one.partition, one.offset) for one in kept] == [("t", 0, 10), ("t", 1, 10)]
        moved = [confluent_kafka.TopicPartition("t", 0, 3)]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("g", moved)])["g"].result(SECONDS)
        kept = admin.list_consumer_group_offsets([wanted])["g"].result(SECONDS).topic_partitions
        assert [one.offset for one in kept] == [3, 10]
        admin.delete_consumer_groups(["g"])["g"].result(SECONDS)
        assert admin.list_consumer_groups().result(SECONDS).valid == []

    await in_thread(work)
