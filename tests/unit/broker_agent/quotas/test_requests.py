"""Quotas of requests at a real listener: who is held, for how long, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.quotas.application import MeteredApplication
from pidkeeper.broker_agent.kafka.quotas.bucket import BURST_SECONDS
from pidkeeper.broker_agent.kafka.quotas.meter import REQUESTS, Meters
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.security.quota_list import QuotaList
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.kafka.listener import KafkaListener
from tests.support.waiting import until
from tests.unit.broker_agent.test_kafka_listener import Calls, init, init_transaction

SECONDS = 10.0
RATE = 5
ALICE, BOB = (Principal(name, frozenset()) for name in ("alice", "bob"))


class Answer:
    """To InitProducerId, version 4."""

    def __init__(self, frame: bytes) -> None:
        self.number, self.throttle_ms, self.error, self.producer_id = struct.unpack_from(">4xi1xihq", frame)


class Client:
    """Raw, and without patience: it sends what it is told to send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answers(self, count: int) -> list[Answer]:
        async with asyncio.timeout(SECONDS):
            return [Answer(await self._frame()) for _ in range(count)]

    async def ask(self, number: int) -> Answer:
        self.writer.write(init(number))
        return (await self.answers(1))[0]

    async def _frame(self) -> bytes:
        head = await self.reader.readexactly(4)
        return head + await self.reader.readexactly(int.from_bytes(head, "big"))


class Place:
    """An agent without a store; each principal has a listener of its own in front of it."""

    def __init__(self, path: Path) -> None:
        self.calls = Calls()
        self.path = path
        self.write(f"* requests_per_second={RATE}\n")
        self.quotas = QuotaList(str(path))
        self.meters = Meters(self.quotas, time.monotonic_ns)
        self.listeners: dict[str, KafkaListener] = {}
        self.reserve = BlockReserve()
        self.reserve.offer(ProducerIdBlock(0, 1_000_000))
        responder = KafkaResponder(self.reserve, Directory(Node(1, "127.0.0.1", 1)), lambda: None)
        self._application = MeteredApplication(AgentApplication(responder, self.calls.ask), self.meters)
        self._ports: dict[str, int] = {}
        self._clients: list[Client] = []

    def write(self, text: str) -> None:
        self.path.write_text(text)

    async def client(self, principal: Principal = ALICE) -> Client:
        if principal.name not in self.listeners:
            listener = self.listeners[principal.name] = KafkaListener(Access.PRODUCER, anybody=principal)
            self._ports[principal.name] = await listener.bind("127.0.0.1", 0)
            await listener.serve(self._application)
        client = Client(*await asyncio.open_connection("127.0.0.1", self._ports[principal.name]))
        self._clients.append(client)
        return client

    async def use_up(self, client: Client) -> Answer:
        """The last answer tells its client to wait."""
        client.writer.write(b"".join(init(number) for number in range(RATE * BURST_SECONDS + 1)))
        answers = await client.answers(RATE * BURST_SECONDS + 1)
        assert [one.number for one in answers] == list(range(RATE * BURST_SECONDS + 1))
        assert [one.throttle_ms for one in answers[:-1]] == [0] * (RATE * BURST_SECONDS)
        return answers[-1]

    async def stop(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        await asyncio.gather(*(client.writer.wait_closed() for client in self._clients), return_exceptions=True)
        for listener in self.listeners.values():
            await listener.stop()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with contextlib.AsyncExitStack() as stack:
        made = Place(tmp_path / "quotas")
        stack.push_async_callback(made.stop)
        yield made


async def test_the_request_beyond_a_burst_is_answered_at_once_and_the_next_one_is_not_read(place: Place) -> None:
    client, loop = await place.client(), asyncio.get_running_loop()
    last = await place.use_up(client)
    answered = loop.time()
    assert last.error == 0 and last.producer_id == RATE * BURST_SECONDS
    assert 0 < last.throttle_ms <= 1000 / RATE
    following = await client.ask(100)
    assert loop.time() - answered > 0.8 * last.throttle_ms / 1000, "it was held though it did not wait"
    assert 0 < following.throttle_ms <= 2000 / RATE
    assert place.meters.throttled.answers[REQUESTS] == 2
    assert place.meters.throttled.ms[REQUESTS] > 0


async def test_a_client_without_patience_gets_the_rate_and_no_more(place: Place) -> None:
    place.write("alice requests_per_second=200\n")
    place.quotas.refresh()
    client, loop = await place.client(), asyncio.get_running_loop()
    count = 300
    client.writer.write(b"".join(init(number) for number in range(count)))
    begin = loop.time()
    answers = await client.answers(count)
    took = loop.time() - begin
    assert [one.number for one in answers] == list(range(count))
    assert took > 0.9 * (count / 200 - BURST_SECONDS)
    assert sum(one.throttle_ms > 0 for one in answers) > 5


async def test_another_principal_is_not_held_and_another_connection_shares(place: Place) -> None:
    client, second, other = await place.client(), await place.client(), await place.client(BOB)
    await place.use_up(client)
    assert (await other.ask(1)).throttle_ms == 0
    shared = await second.ask(2)
    assert shared.throttle_ms > 0, "a second connection is no second quota"
    assert len(place.meters.accounts) == 2
    await place.use_up(await place.client(Principal("carol", frozenset())))


async def test_calls_to_the_controllers_count_and_tell_how_long_is_left(place: Place) -> None:
    client, loop = await place.client(), asyncio.get_running_loop()
    place.write("* requests_per_second=2\n")
    place.quotas.refresh()
    client.writer.write(init(0) + init(1) + init_transaction(2) + init(3))
    await client.answers(2)
    await until(lambda: bool(place.calls.waiting))
    asked = loop.time()
    await asyncio.sleep(0.1)
    place.calls.answer()
    (answer,) = await client.answers(1)
    assert (answer.number, answer.producer_id) == (2, 10**6 + 2)
    assert 0 < answer.throttle_ms <= 401, "what it has waited for its answer counts"
    (following,) = await client.answers(1)
    assert following.number == 3
    assert loop.time() - asked > 0.2


async def test_a_quota_that_changes_while_a_client_is_held(place: Place) -> None:
    """It is held for as long as it was told, and no longer; then the new quota is in force."""
    place.write("alice requests_per_second=2\n")
    place.quotas.refresh()
    client, loop = await place.client(), asyncio.get_running_loop()
    client.writer.write(b"".join(map(init, range(4))))
    told = (await client.answers(3))[-1].throttle_ms
    begin = loop.time()
    place.write("alice unlimited\n")
    place.quotas.refresh()
    (answer,) = await client.answers(1)
    assert loop.time() - begin > 0.8 * told / 1000
    assert answer.throttle_ms == 0
    client.writer.write(b"".join(map(init, range(1000))))
    assert not any(one.throttle_ms for one in await client.answers(1000))
    place.write("alice requests_per_second=4\n")
    place.quotas.refresh()
    assert any([(await client.ask(number)).throttle_ms for number in range(5)])


async def test_who_comes_again_owes_what_it_owed(place: Place) -> None:
    place.write("alice requests_per_second=1\n")
    place.quotas.refresh()
    client = await place.client()
    client.writer.write(b"".join(map(init, range(3))))
    told = (await client.answers(2))[-1].throttle_ms
    client.writer.transport.abort()
    again = await (await place.client()).ask(7)
    assert again.throttle_ms > told


async def test_any_number_of_strangers_are_one_principal(place: Place) -> None:
    anonymous = Principal("anonymous", frozenset())
    clients = [await place.client(anonymous) for _ in range(RATE * BURST_SECONDS + 5)]
    told = [(await client.ask(number)).throttle_ms for number, client in enumerate(clients)]
    assert sum(ms > 0 for ms in told) >= 3
    assert len(place.meters.accounts) == 1


async def test_a_stop_does_not_wait_for_those_who_are_held(place: Place) -> None:
    place.write("alice requests_per_second=1\n")
    place.quotas.refresh()
    client = await place.client()
    client.writer.write(b"".join(map(init, range(12))))
    await client.answers(2)
    async with asyncio.timeout(2):
        await place.listeners["alice"].stop()
        assert await client.reader.read() == b""
    assert place.reserve.claimed == 2


async def test_without_a_quota_nothing_is_counted(place: Place) -> None:
    place.write("bob requests_per_second=1\n")
    place.quotas.refresh()
    client = await place.client()
    client.writer.write(b"".join(map(init, range(5000))))
    assert not any(one.throttle_ms for one in await client.answers(5000))
    assert len(place.meters.accounts) == 0
