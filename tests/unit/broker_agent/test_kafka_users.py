"""The listener and users of SASL: how long a client has, who gives way, and what becomes of one that is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.application import AgentApplication
from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.sasl import Sasl
from pidkeeper.broker_agent.security.user_list import UserList
from pidkeeper.protocol.ids import ProducerIdBlock
from pidkeeper.service.access import Access
from pidkeeper.service.kafka import listener as listener_module
from pidkeeper.service.kafka.listener import KafkaListener
from pidkeeper.service.protection import Protection
from pidkeeper.service.tls import Tls, client_context
from pidkeeper.service.tls_files import TlsFiles
from tests.support.certificates import CertificateAuthority
from tests.support.sasl_users import api_versions, authenticate, handshake, plain
from tests.unit.broker_agent.test_kafka_listener import init, init_transaction

SECONDS = 5.0


class Clients:
    """Of one listener with TLS, which knows some users; `calls` are those that came as far as the controllers."""

    def __init__(self, listener: KafkaListener, port: int, authority: CertificateAuthority) -> None:
        self.listener = listener
        self.calls: list[TransactionalCall] = []
        self._port = port
        self._authority = authority

    async def connect(self, certificate: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        files = TlsFiles(ca_file=self._authority.path)
        if certificate is not None:
            files = self._authority.issue("client", uris=[certificate])
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=client_context(files))

    async def ask(self, call: TransactionalCall) -> bytes:
        self.calls.append(call)
        return b"\0\0\0\x04" + call.header.correlation_id.to_bytes(4, "big")


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SECONDS):
        length = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(length)


async def until(condition: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


@pytest.fixture
async def clients(users: UserList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clients]:
    monkeypatch.setattr(listener_module, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(listener_module, "REQUEST_SECONDS", 0.5)
    authority = CertificateAuthority(tmp_path)
    tls = Tls(authority.issue("agent", uris=["pidkeeper://c/broker/1"]))
    (tmp_path / "acls").write_text("allow alice transactional-id shop-*\n")
    listener = KafkaListener(
        Access.PRODUCER,
        max_connections=4,
        protection=Protection("required", tls, "c"),
        sasl=Sasl(users),
    )
    port = await listener.bind("127.0.0.1", 0)
    reserve = BlockReserve()
    reserve.offer(ProducerIdBlock(0, 1000))
    made = Clients(listener, port, authority)
    responder = KafkaResponder(reserve, Directory(Node(1, "127.0.0.1", port)), lambda: None)
    await listener.serve(AgentApplication(responder, made.ask, AclList(str(tmp_path / "acls"))))
    yield made
    await listener.stop()


async def test_all_in_one_packet_is_answered_in_order_and_then_served(clients: Clients) -> None:
    reader, writer = await clients.connect()
    writer.write(api_versions() + handshake("PLAIN") + authenticate(plain("alice", "pencil")) + init(9))
    numbers = [int.from_bytes((await answer(reader))[:4], "big") for _ in range(4)]
    assert numbers == [0, 1, 2, 9]
    assert clients.listener.authentications == {("PLAIN", "success"): 1}
    writer.close()


async def test_the_controllers_are_asked_with_what_the_user_may_use(clients: Clients) -> None:
    reader, writer = await clients.connect()
    writer.write(handshake("PLAIN") + authenticate(plain("alice", "pencil")) + init_transaction(3))
    for _ in range(3):
        await answer(reader)
    (call,) = clients.calls
    assert [call.caller.may_use(name) for name in ("shop-1", "bank-1")] == [True, False]
    writer.close()


async def test_whoever_is_refused_hears_it_and_is_closed(clients: Clients) -> None:
    reader, writer = await clients.connect()
    guesses = [authenticate(plain("alice", password)) for password in ("wrong", "pencil")]
    writer.write(handshake("PLAIN") + b"".join(guesses) + init(9))
    await answer(reader)
    assert b"user or password are wrong" in await answer(reader)
    async with asyncio.timeout(SECONDS):
        assert await reader.read() == b""
    assert clients.listener.authentications == {("PLAIN", "failure"): 1}
    assert clients.listener.cut["head"] == 0
    writer.close()


async def test_without_a_word_of_who_it_is_nothing_is_served(clients: Clients) -> None:
    reader, writer = await clients.connect()
    writer.write(init(9))
    async with asyncio.timeout(SECONDS):
        assert await reader.read() == b""
    assert clients.listener.malformed == 1
    writer.close()


async def test_a_certificate_needs_no_password(clients: Clients) -> None:
    reader, writer = await clients.connect("pidkeeper://c/producer/shop")
    writer.write(api_versions() + init(9))
    assert [int.from_bytes((await answer(reader))[:4], "big") for _ in range(2)] == [0, 9]
    viewer, other = await clients.connect("pidkeeper://c/viewer/grafana")
    other.write(init(9))
    async with asyncio.timeout(SECONDS):
        assert await viewer.read() == b""
    for one in (writer, other):
        one.close()


async def test_whoever_never_says_who_it_is_has_no_more_time_for_asking_about_versions(clients: Clients) -> None:
    reader, writer = await clients.connect()

    async def ask() -> None:
        for number in range(1000):
            writer.write(api_versions(number)[:-1])
            await asyncio.sleep(0.02)
            writer.write(api_versions(number)[-1:])
            await writer.drain()

    asking = asyncio.create_task(ask())
    # What it goes on to write to a connection that is closed may be answered by a reset.
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(SECONDS):
            while await reader.read(1000):
                pass
    assert clients.listener.cut["head"] == 1
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    writer.close()


async def test_whoever_is_known_keeps_the_place_against_a_crowd_of_strangers(clients: Clients) -> None:
    reader, writer = await clients.connect()
    writer.write(handshake("PLAIN") + authenticate(plain("alice", "pencil")))
    for _ in range(2):
        await answer(reader)
    strangers = []
    for number in range(12):
        stranger = await clients.connect()
        stranger[1].write(api_versions() + handshake("PLAIN"))
        strangers.append(stranger)
        if number % 3 == 0:
            writer.write(init(number))
            await answer(reader)
    await until(lambda: clients.listener.evicted >= 8)
    writer.write(init(99))
    assert int.from_bytes((await answer(reader))[:4], "big") == 99
    for _, one in [*strangers, (reader, writer)]:
        one.close()


async def test_a_user_who_is_gone_is_cut_off_and_others_are_not(
    clients: Clients, users: UserList, tmp_path: Path
) -> None:
    alice, bob = await clients.connect(), await clients.connect()
    for (reader, writer), message in ((alice, plain("alice", "pencil")), (bob, plain("bob", "brush"))):
        writer.write(handshake("PLAIN") + authenticate(message))
        for _ in range(2):
            await answer(reader)
    path = tmp_path / "users"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "alice" in line))
    users.refresh()
    await until(lambda: len(clients.listener.connections) == 1)
    assert clients.listener.cut["revoked"] == 1
    alice[1].write(init(5))
    assert int.from_bytes((await answer(alice[0]))[:4], "big") == 5
    for _, one in (alice, bob):
        one.close()
