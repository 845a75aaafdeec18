"""Callers that take too long or hold too much are cut off; those that are merely slow, or merely idle, are not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from pidkeeper.service import connections
from pidkeeper.service.app import App
from pidkeeper.service.server import HttpServer
from tests.support.waiting import until
from tests.unit.service.conftest import Arithmetic
from tests.unit.service.test_server import ASKING, BODY, LIVE, UPLOADING, Connection, answers, ended

LARGE = 60_000
"""Bytes of a body that is above what every connection may hold."""


def upload(size: int) -> bytes:
    return UPLOADING.replace(b"Content-Length: 12", f"Content-Length: {size}".encode())


def named(size: int) -> bytes:
    """A body of so many bytes."""
    return b'{"name":"' + b"x" * (size - 11) + b'"}'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.02)


@pytest.fixture
async def address(app: App) -> AsyncIterator[tuple[str, int]]:
    server = HttpServer(app, max_connections=8)
    yield await server.start("127.0.0.1", 0)
    await server.stop(1.0)


async def begin_upload(address: tuple[str, int], size: int = len(BODY)) -> Connection:
    connection = await asyncio.open_connection(*address)
    connection[1].write(upload(size))
    assert (await connection[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    return connection


async def greeted(connection: Connection) -> bool:
    async with asyncio.timeout(5):
        return (await connection[0].readline()).startswith(b"HTTP/1.1 200 ")


async def wait_for_a_cut(app: App, address: tuple[str, int]) -> None:
    """Longer than any first head may take."""
    cut = app.counters.connections_cut["head"]
    _, writer = await asyncio.open_connection(*address)
    await until(lambda: app.counters.connections_cut["head"] > cut)
    writer.close()


async def test_a_first_head_that_trickles_is_cut(app: App, address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    for byte in LIVE:
        writer.write(bytes([byte]))
        await asyncio.sleep(0.02)
        if app.counters.connections_cut["head"]:
            break
    assert await ended((reader, writer))
    assert app.counters.connections == 0
    writer.close()


async def test_an_idle_caller_that_has_asked_is_not_cut_and_a_slow_upload_neither(
    app: App, address: tuple[str, int]
) -> None:
    idle = await asyncio.open_connection(*address)
    assert await answers(idle)
    slow = await begin_upload(address)
    slow[1].write(BODY[:5])
    await wait_for_a_cut(app, address)
    slow[1].write(BODY[5:])
    assert await greeted(slow)
    idle[1].write(LIVE)
    assert await idle[0].readuntil(b"ok\n")
    assert app.counters.connections_cut == {"head": 1, "answer": 0, "memory": 0, "expired": 0}
    for _, writer in (idle, slow):
        writer.close()


async def test_an_idle_caller_whose_first_head_was_known_is_not_cut(app: App, address: tuple[str, int]) -> None:
    first, second = await asyncio.open_connection(*address), await asyncio.open_connection(*address)
    await until(lambda: app.counters.connections == 2)
    for reader, writer in (first, second):
        writer.write(ASKING)
        await reader.readuntil(b'hello x"}')
    await wait_for_a_cut(app, address)
    assert await answers(first)
    assert await answers(second)
    for _, writer in (first, second):
        writer.close()


async def test_a_caller_that_does_not_read_is_cut_even_after_it_was_closed(
    app: App, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        await loop.sock_connect(deaf, address)
        request = upload(LARGE).replace(b"Expect: 100-continue\r\n", b"") + named(LARGE)
        sending = asyncio.create_task(loop.sock_sendall(deaf, request * 200))
        await until(lambda: app.counters.connections_cut["answer"] == 1)
        await until(lambda: app.counters.connections == 0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert app.counters.connections_cut["memory"] == 0


async def test_large_uploads_share_their_room_and_the_oldest_gives_way(
    app: App, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SHARED_BYTES", 2 * LARGE)
    server = HttpServer(app)
    address = await server.start("127.0.0.1", 0)
    small = await begin_upload(address)
    small[1].write(BODY[:-1])
    large = [await begin_upload(address, LARGE) for _ in range(3)]
    for _, writer in large[:2]:
        writer.write(named(LARGE)[:-1])
    large[2][1].write(named(LARGE)[:-1])
    assert await ended(large[0])
    for connection in large[1:]:
        connection[1].write(named(LARGE)[-1:])
        assert await greeted(connection)
    small[1].write(BODY[-1:])
    assert await greeted(small)
    assert app.counters.connections_cut["memory"] == 1
    for _, writer in (small, *large):
        writer.close()
    await server.stop(1.0)


async def test_what_was_answered_is_not_counted_any_more(
    app: App, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SHARED_BYTES", 2 * LARGE)
    server = HttpServer(app)
    one = await begin_upload(await server.start("127.0.0.1", 0), LARGE)
    for _ in range(5):
        one[1].write(named(LARGE))
        assert await greeted(one)
        await one[0].readuntil(b'"}')
        one[1].write(upload(LARGE))
        assert (await one[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    assert app.counters.connections_cut["memory"] == 0
    one[1].close()
    await server.stop(1.0)


async def test_a_good_client_keeps_its_connection_in_a_flood(
    app: App, arithmetic: Arithmetic, address: tuple[str, int]
) -> None:
    good = await asyncio.open_connection(*address)
    assert await answers(good)
    flood = [await asyncio.open_connection(*address) for _ in range(20)]
    flood += [await begin_upload(address) for _ in range(20)]
    good[1].write(LIVE)
    assert await good[0].readuntil(b"ok\n")
    await until(lambda: app.counters.connections <= 8)
    assert app.counters.connections_evicted + app.counters.connections_cut["head"] >= 33
    assert app.counters.connections_refused == 0
    for _, writer in (good, *flood):
        writer.close()
