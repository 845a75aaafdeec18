"""Streams of events: what a listener gets, how many may listen, and what becomes of one that does not read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pidkeeper.service import event_streams
from pidkeeper.service.app import App, Service
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.event_streams import EVENT_STREAM, MAX_BEHIND, EventStreams
from pidkeeper.service.openapi import Description
from pidkeeper.service.routes import TextRoute
from pidkeeper.service.server import HttpServer
from tests.support.waiting import until

LISTEN = b"GET /events HTTP/1.1\r\nHost: here\r\n\r\n"
ALIVE = b": alive\n\n"

Address = tuple[str, int]


@pytest.fixture
def streams() -> EventStreams:
    return EventStreams(limit=2, alive_seconds=0.05)


@pytest.fixture
def app(streams: EventStreams) -> App:
    route = TextRoute(
        path="/events",
        name="events",
        summary="Events.",
        handler=lambda *_: streams.open().response(),
        content_type=EVENT_STREAM,
        answers={200: "events"},
    )
    service = Service(
        description=Description("a service", "that tells"),
        readiness="Ready?",
        routes=(),
        operations=None,
        live=list,
        ready=list,
        collectors=(),
        texts=[route],
        drain=streams.end,
    )
    return App(service, Authenticator())


@pytest.fixture
async def server(app: App) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, max_connections=8)
    yield server
    await server.stop(0.0)


@pytest.fixture
async def address(server: HttpServer) -> Address:
    return await server.start("127.0.0.1", 0)


class Listener:
    """Reads one stream as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(5):
            return await self.reader.readuntil(end)

    async def rest(self) -> bytes:
        async with asyncio.timeout(5):
            return await self.reader.read()


Listen = Callable[[], Awaitable[tuple[Listener, bytes]]]


@pytest.fixture
async def listen(address: Address) -> AsyncIterator[Listen]:
    """Makes a listener, and gives it with the head of its answer."""
    made: list[Listener] = []

    async def one_more() -> tuple[Listener, bytes]:
        listener = Listener(*await asyncio.open_connection(*address))
        made.append(listener)
        listener.writer.write(LISTEN)
        return listener, await listener.until(b"\r\n\r\n")

    yield one_more
    for listener in made:
        listener.writer.close()


async def test_a_listener_is_told_each_event_and_in_between_that_the_stream_stands(
    streams: EventStreams, listen: Listen
) -> None:
    streams.tell("early", {"nobody": "listens"})
    listener, head = await listen()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"Content-Type: text/event-stream\r\n" in head
    await listener.until(ALIVE)
    await listener.until(ALIVE)
    streams.tell("leader", {"leader_id": 2})
    told = await listener.until(b'event: leader\ndata: {"leader_id":2}\n\n')
    assert b"early" not in told
    listener.writer.close()
    await until(lambda: len(streams) == 0)


async def test_one_listener_too_many_is_refused_until_another_has_left(streams: EventStreams, listen: Listen) -> None:
    first, _ = await listen()
    await listen()
    _, head = await listen()
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"Retry-After: 5\r\n" in head
    assert streams.refused == 1
    first.writer.close()
    await until(lambda: len(streams) == 1)
    _, head = await listen()
    assert head.startswith(b"HTTP/1.1 200 ")


async def test_a_listener_who_does_not_read_is_cut_and_the_others_hear_on(
    streams: EventStreams, address: Address, listen: Listen
) -> None:
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(deaf, address)
    await loop.sock_sendall(deaf, LISTEN)
    await until(lambda: len(streams) == 1)
    listener, _ = await listen()
    told = 0
    while streams.cut == 0:
        assert told < 100 * MAX_BEHIND, "whoever reads nothing is told for ever"
        streams.tell("large", "x" * 64_000)
        await listener.until(b'x"\n\n')
        told += 1
    assert told > MAX_BEHIND
    await until(lambda: len(streams) == 1)
    streams.tell("small", 1)
    await listener.until(b"event: small\ndata: 1\n\n")
    assert streams.cut == 1
    deaf.close()


async def test_a_stop_tells_what_waits_ends_every_stream_and_opens_no_other(
    streams: EventStreams, server: HttpServer, listen: Listen
) -> None:
    listener, _ = await listen()
    await listener.until(ALIVE)
    streams.tell("last", "words")
    server.begin_drain()
    assert b'event: last\ndata: "words"\n\n' in await listener.rest()
    assert len(streams) == 0
    _, head = await listen()
    assert head.startswith(b"HTTP/1.1 503 ")


async def test_a_stream_ends_after_its_time_so_that_its_caller_shows_its_name_again(
    streams: EventStreams, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "STREAM_SECONDS", 0.1)
    listener, _ = await listen()
    assert (await listener.rest()).endswith(b"\r\n0\r\n\r\n")
    assert len(streams) == 0
