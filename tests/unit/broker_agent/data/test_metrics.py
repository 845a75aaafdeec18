"""What an agent shows of its data plane: counters, budgets, and whether the quorum knows its store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from pidkeeper.broker_agent.agent import Agent
from pidkeeper.broker_agent.api.app import build_app
from pidkeeper.broker_agent.api.data_metrics import PREFIX, DataCollector
from pidkeeper.broker_agent.controllers.aiohttp_transport import AiohttpTransport
from pidkeeper.broker_agent.controllers.client import ControllerClient
from pidkeeper.broker_agent.coordinator.caller import ANYBODY
from pidkeeper.broker_agent.data.room import DataRoom
from pidkeeper.broker_agent.data.seeking import StoreSeeker
from pidkeeper.broker_agent.data.settings import LEAST_PENDING_BYTES, DataSettings
from pidkeeper.broker_agent.data.store.counted import OPERATIONS
from pidkeeper.broker_agent.data.store.port import ObjectMissingError, StoreRefusedError, StoreUnavailableError
from pidkeeper.broker_agent.ids.prefetch import PrefetchSettings
from pidkeeper.broker_agent.kafka.wire.data.fetch import FetchedTopic, FetchPartition, FetchRequest, FetchTopic
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.produce import PartitionRecords, ProduceRequest, TopicRecords
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.protocol.metadata_version import PARTITION_LOGS
from pidkeeper.service.access import Access
from pidkeeper.service.kafka.listener import KafkaListener
from tests.support.data_parts import FaultyStore, raising, records
from tests.support.log_leader import FOUNDING, STORE, LogLeader
from tests.support.metrics_page import differences, exposed, listed
from tests.support.served_app import served
from tests.support.waiting import until
from tests.support.whole_agent import make_agent

BATCH = records()


class Shown:
    """An agent with a data plane, and what its metrics show."""

    def __init__(self) -> None:
        client = ControllerClient(("http://c:1",), AiohttpTransport(), random.Random())
        self.agent: Agent = make_agent(client, settings=PrefetchSettings(min_blocks=1))
        session = self.agent.session
        session.store_id, session.founding_id = STORE, FOUNDING
        self.leader, self.store = LogLeader(), FaultyStore()
        session.broker_epoch = session.store_epoch = self.leader.register()
        self.leader.add_topic("t")
        self.settings = settings = DataSettings(store="unused", linger_ms=0, max_pending_bytes=LEAST_PENDING_BYTES)
        self.room = DataRoom(settings, self.store, self.leader, session, self.agent.directory, random.Random(1))
        self.seeker = StoreSeeker(settings, random.Random(1), on_found=lambda _: None, admitted=lambda: True)
        self.seeker.up = True
        self.collector = DataCollector(self.room, session, self.seeker)

    def value(self, name: str, **labels: str) -> float:
        (value,) = [
            sample.value
            for family in self.collector.collect()
            for sample in family.samples
            if sample.name == PREFIX + name and sample.labels == labels
        ]
        return value

    async def produce(self, *batches: memoryview, topic: str = "t") -> list[int]:
        """The codes."""
        wanted = [TopicRecords(topic, [PartitionRecords(0, one) for one in batches])]
        answer = await self.room.producer.produce(ProduceRequest(None, -1, 5000, wanted), ANYBODY)
        return [one.error_code for topic_answer in answer for one in topic_answer.partitions]

    async def fetch(self, offset: int, wait_ms: int = 0) -> bytes:
        """The records."""
        wanted = [FetchTopic("t", [FetchPartition(0, offset, 1 << 20)])]
        request = FetchRequest(-1, wait_ms, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED, wanted)

        def encode(_: int, topics: Sequence[FetchedTopic]) -> bytes:
            return b"".join(b"".join(one.records) for topic in topics for one in topic.partitions)

        return await self.room.fetcher.fetch(request, ANYBODY, encode)


@pytest.fixture
async def shown() -> AsyncIterator[Shown]:
    made = Shown()
    yield made
    await made.room.stop()


async def test_the_page_of_metrics_lists_all_of_them(shown: Shown) -> None:
    assert differences(listed("Agents with partition logs"), exposed(shown.collector.collect())) == []


async def test_what_was_taken_put_and_given_is_counted(shown: Shown) -> None:
    assert await shown.produce(BATCH, BATCH) == [0, 0]
    assert await shown.produce(BATCH, topic="unknown") == [3]
    assert len(await shown.fetch(0)) == 2 * len(BATCH)
    counted = ("produce_requests", "batches_received", "objects_put", "fetch_requests", "damaged_reads")
    assert [shown.value(f"{name}_total") for name in counted] == [2, 2, 1, 1, 0]
    assert shown.value("batches_refused_total", code="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert (shown.value("received_bytes_total"), shown.value("sent_bytes_total")) == (2 * len(BATCH), 2 * len(BATCH))
    assert (shown.value("memory_reads_total"), shown.value("store_reads_total")) == (2, 0)
    assert shown.value("recent_bytes") == 2 * len(BATCH)
    assert (shown.value("put_duration_seconds_count"), shown.value("commit_duration_seconds_count")) == (1, 1)


async def test_what_is_under_way_is_shown_while_it_is(shown: Shown) -> None:
    held = asyncio.Event()
    shown.store.put_faults.append(lambda _: held.wait())
    producing = asyncio.create_task(shown.produce(BATCH))
    await until(lambda: bool(shown.store.puts))
    assert (shown.value("pending_bytes"), shown.value("objects_put_total")) == (len(BATCH), 0)
    await until(lambda: shown.value("put_age_seconds") > 0.001)
    await shown.room.gatherer.room.take(LEAST_PENDING_BYTES - len(BATCH))
    waiting = asyncio.create_task(shown.produce(BATCH))
    await until(lambda: shown.value("produce_waiting") == 1)
    shown.room.gatherer.room.give_back(LEAST_PENDING_BYTES - len(BATCH))
    held.set()
    assert (await producing, await waiting) == ([0], [0])
    assert (shown.value("pending_bytes"), shown.value("produce_waiting"), shown.value("put_age_seconds")) == (0, 0, 0)


async def test_consumers_that_wait_are_shown(shown: Shown) -> None:
    fetching = asyncio.create_task(shown.fetch(0, wait_ms=20_000))
    await until(lambda: shown.value("watch_calls") == 1)
    await shown.produce(BATCH)
    assert len(await fetching) == len(BATCH)
    budget = shown.room.fetcher.bytes
    await budget.take(budget.capacity)
    blocked = asyncio.create_task(shown.fetch(0))
    await until(lambda: shown.value("fetch_waiting") == 1)
    assert shown.value("fetching_bytes") == budget.capacity
    budget.give_back(budget.capacity)
    assert len(await blocked) == len(BATCH)


async def test_objects_that_came_to_nothing_are_shown(shown: Shown) -> None:
    shown.store.put_faults.append(raising(StoreRefusedError("full")))
    assert await shown.produce(BATCH) == [56]
    assert shown.value("objects_given_up_total") == 1
    await until(lambda: shown.value("objects_to_delete") == 0)
    shown.room.discarder.left = 3
    assert shown.value("objects_left_total") == 3


async def test_batches_are_counted_by_the_code_that_they_are_refused_with(shown: Shown) -> None:
    assert await shown.produce(memoryview(bytes(BATCH)[:-1] + b"x")) == [2]
    assert await shown.produce(records(1), records(3)) == [0, 45]
    shown.leader.fault("find_topics", raising(RequestError(ErrorCode.REQUEST_TIMED_OUT, "late")))
    assert await shown.produce(BATCH, topic="late") == [7]
    for code in ("CORRUPT_MESSAGE", "OUT_OF_ORDER_SEQUENCE_NUMBER", "REQUEST_TIMED_OUT"):
        assert shown.value("batches_refused_total", code=code) == 1, code


async def test_a_store_that_fails_is_told_from_one_that_lost_something(shown: Shown) -> None:
    shown.store.put_faults.append(raising(StoreUnavailableError("away")))
    assert await shown.produce(BATCH) == [0]
    # Puts what was kept out of the memory.
    shown.room.recent.add("another", [bytes(shown.settings.recent_bytes)])
    gone = ObjectMissingError("gone")
    # One that is missing may have been rolled meanwhile: the quorum is asked once more.
    for faults, damaged in (([StoreUnavailableError("away")], 0), ([gone], 0), ([gone, gone], 1)):
        shown.store.read_faults.extend(map(raising, faults))
        await shown.fetch(0)
        assert shown.value("damaged_reads_total") == damaged
    (name,) = await shown.store.names()
    await shown.store.delete([name])
    await shown.store.put(name, [bytes(len(BATCH))])
    await shown.fetch(0)
    assert shown.value("damaged_reads_total") == 2
    errors = {operation: shown.value("store_errors_total", operation=operation) for operation in OPERATIONS}
    assert errors == {"put": 1, "create": 0, "read": 4, "list": 0, "delete": 0}


async def test_a_store_that_the_quorum_does_not_know_takes_no_ids_away(shown: Shown) -> None:
    session = shown.agent.session
    session.cluster_id, session.store_epoch = "x", None
    shown.agent.reserve.offer(ProducerIdBlock(100, 10))
    async with served(
        build_app(shown.agent, KafkaListener(Access.PRODUCER), room=shown.room, store=shown.seeker)
    ) as http:
        assert (shown.value("store_known"), shown.value("store_up")) == (0, 1)
        assert (await http.get("/readyz")).status == 200
        verbose = await (await http.get("/readyz?verbose")).text()
        why = f"the quorum's metadata version is {session.metadata_version}, records need {PARTITION_LOGS}"
        assert f"[-]store failed, which does not count: {why}\n" in verbose
        assert verbose.endswith("readyz check passed\n")
        assert (await http.get("/readyz/store")).status == 503
        session.metadata_version = PARTITION_LOGS
        assert "not told of the store yet" in await (await http.get("/readyz/store")).text()
        session.store_epoch = session.broker_epoch
        assert (await http.get("/readyz/store")).status == 200
        assert shown.value("store_known") == 1
        assert PREFIX + "store_known 1.0" in await (await http.get("/metrics")).text()
        shown.seeker.up = False
        assert "the store unused: " in await (await http.get("/readyz/store")).text()
        assert shown.value("store_up") == 0
        shown.seeker.up, session.broker_epoch = True, None
        assert (await http.get("/readyz")).status == 503
        assert "not registered" in await (await http.get("/readyz/store")).text()


async def test_an_agent_without_a_store_has_no_check_of_one(shown: Shown) -> None:
    shown.agent.session.store_id = None
    shown.agent.reserve.offer(ProducerIdBlock(100, 10))
    async with served(build_app(shown.agent, KafkaListener(Access.PRODUCER))) as http:
        assert (await http.get("/readyz/store")).status == 404
        assert PREFIX not in await (await http.get("/metrics")).text()
