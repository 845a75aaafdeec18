from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pidkeeper.service.kafka.connection import Connection
from pidkeeper.service.kafka.listener import FREE_REQUEST_BYTES
from tests.support.kafka_calls import ALONE, AT_ONCE, LONG_AT_ONCE, Transport, frame, response
from tests.support.waiting import until
from tests.unit.service.kafka.conftest import Served

LONG = 1_000_000


async def test_who_finds_no_memory_waits_and_nobody_is_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.restart(monkeypatch, POOL_BYTES=2 * LONG)
    clients = [await served.connect() for _ in range(6)]
    for number, (_, writer) in enumerate(clients):
        for turn in range(3):
            writer.write(frame(10 * number + turn, size=LONG))
    for _ in range(18):
        await until(lambda: bool(served.calls.under_way))
        assert served.calls.held <= 2 * LONG
        served.calls.give(next(iter(served.calls.under_way)))
    for number, (reader, _) in enumerate(clients):
        assert await served.numbers(reader, 3) == [10 * number + turn for turn in range(3)]
    assert served.calls.most_held == 2 * LONG, "two at a time"
    assert (sum(served.listener.cut.values()), served.listener.pool.used) == (0, 0)


async def test_parts_of_requests_do_not_wait_for_each_other(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were memory granted as bytes come, three that have come to two thirds would hold all of it for ever."""
    await served.restart(monkeypatch, POOL_BYTES=2 * LONG)
    clients = [await served.connect() for _ in range(3)]
    for number, (_, writer) in enumerate(clients):
        writer.write(frame(number, size=LONG)[: 2 * LONG // 3])
    await until(lambda: served.listener.pool.used == 2 * LONG)
    for number, (_, writer) in enumerate(clients):
        writer.write(frame(number, size=LONG)[2 * LONG // 3 :])
    for _ in clients:
        await until(lambda: bool(served.calls.under_way))
        served.calls.give(next(iter(served.calls.under_way)))
    for number, (reader, _) in enumerate(clients):
        assert await served.numbers(reader, 1) == [number]


async def test_small_overlapping_calls_share_the_same_pool(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.restart(monkeypatch, POOL_BYTES=2500)
    reader, writer = await served.connect()
    other_reader, other = await served.connect()
    writer.write(b"".join(frame(number, size=1000) for number in range(5)))
    await until(lambda: len(served.calls.under_way) == 2)
    other.write(frame(10, size=100) + frame(11, ALONE))
    for number in range(5):
        await until(lambda number=number: number in served.calls.under_way)  # type: ignore[misc]
        assert served.listener.pool.used <= 2500
        served.calls.give(number)
    await until(lambda: 10 in served.calls.under_way)
    served.calls.give(10)
    await until(lambda: 11 in served.calls.under_way)
    served.calls.give(11)
    assert await served.numbers(reader, 5) == list(range(5))
    assert await served.numbers(other_reader, 2) == [10, 11]
    assert served.listener.pool.used == 0


async def test_who_hangs_up_while_it_waits_keeps_nobody_waiting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.restart(monkeypatch, POOL_BYTES=LONG)
    holder, gone, last = [await served.connect() for _ in range(3)]
    holder[1].write(frame(1, size=LONG))
    await until(lambda: 1 in served.calls.under_way)
    gone[1].write(frame(2, size=LONG))
    await until(lambda: served.listener.pool.waiting == 1)
    last[1].write(frame(3, size=LONG))
    await until(lambda: served.listener.pool.waiting == 2)
    for connection in tuple(served.listener.connections)[1:2]:
        connection.transport.abort()
    await until(lambda: served.listener.pool.waiting == 1)
    served.calls.give(1)
    await until(lambda: 3 in served.calls.under_way)
    served.calls.give(3)
    assert await served.numbers(last[0], 1) == [3]
    assert 2 not in served.calls.begun
    assert served.listener.pool.used == 0


@pytest.mark.parametrize("lost_first", [True, False])
async def test_memory_that_comes_too_late_is_given_back(
    served: Served, monkeypatch: pytest.MonkeyPatch, lost_first: bool
) -> None:
    """It is granted in one turn of the event loop, and told of in a later one: the connection may end between."""
    await served.restart(monkeypatch, POOL_BYTES=LONG)
    pool = served.listener.pool
    assert pool.allocate(Connection(served.listener), LONG, print)
    gathering, starting = [await served.connect() for _ in range(2)]
    gathering[1].write(frame(2, size=LONG - 10))
    starting[1].write(frame(3))
    await until(lambda: pool.waiting == 2)
    connections = tuple(served.listener.connections)
    told = pool.release(LONG)
    assert (len(told), pool.used) == (2, LONG)
    for connection in connections:
        connection.transport.abort()
    if lost_first:
        await until(lambda: not served.listener.connections)
    for tell in told:
        tell()
    await until(lambda: not served.listener.connections)
    assert (pool.used, served.calls.begun) == (0, [])


@pytest.fixture
async def waiting(served: Served, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Connection, Transport]]:
    """A connection with a call under way. If its next request is long, that finds no memory: LONG of it are held."""
    await served.restart(monkeypatch, POOL_BYTES=LONG + 20)
    assert served.listener.pool.allocate(Connection(served.listener), LONG, print)
    connection, transport = Connection(served.listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(frame(1))
    yield connection, transport
    connection.connection_lost(None)


async def test_what_waits_for_memory_goes_on_waiting_when_the_calls_before_it_are_answered(
    served: Served, waiting: tuple[Connection, Transport]
) -> None:
    connection, transport = waiting
    connection.data_received(frame(3, size=LONG)[:100])
    assert not transport.reading
    served.calls.give(1)
    await until(lambda: transport.written == response(1))
    assert (transport.reading, connection.muted) == (False, True)
    connection.data_received(frame(3, size=LONG)[100:])
    assert (transport.reading, served.calls.begun) == (False, [1])
    served.listener.release(LONG)
    await until(lambda: 3 in served.calls.under_way)
    assert served.listener.pool.used == LONG
    served.calls.give(3)
    await until(lambda: transport.written == response(1) + response(3))
    assert (transport.reading, connection.muted, served.listener.pool.used) == (True, False, 0)


async def test_what_has_waited_for_memory_overtakes_nothing(
    served: Served, waiting: tuple[Connection, Transport]
) -> None:
    connection, transport = waiting
    connection.data_received(frame(3, LONG_AT_ONCE, LONG)[:100])
    assert not transport.reading
    served.listener.release(LONG)
    await until(lambda: transport.reading)
    connection.data_received(frame(3, LONG_AT_ONCE, LONG)[100:] + frame(4, AT_ONCE))
    assert (transport.written, connection.muted) == (b"", True)
    served.calls.give(1)
    await until(lambda: transport.written == response(1) + response(3) + response(4))
    assert (connection.muted, served.listener.pool.used) == (False, 0)


async def test_who_has_waited_to_begin_is_read_from_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.restart(monkeypatch, POOL_BYTES=LONG)
    assert served.listener.pool.allocate(Connection(served.listener), LONG, print)
    _, writer = await served.connect()
    writer.write(frame(1))
    await until(lambda: served.listener.pool.waiting == 1)
    writer.write(frame(3))
    served.listener.release(LONG)
    await until(lambda: 3 in served.calls.under_way)
    assert 1 in served.calls.under_way


async def test_nothing_is_granted_to_a_client_that_does_not_read(served: Served) -> None:
    connection, transport = Connection(served.listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.pause_writing()
    connection.data_received(frame(2, AT_ONCE) + frame(3, size=LONG)[:100])
    assert served.listener.pool.used == 0
    connection.resume_writing()
    assert served.listener.pool.used == LONG
    connection.connection_lost(None)


async def test_waiting_for_memory_takes_none_of_the_time_of_a_request(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await served.restart(monkeypatch, REQUEST_SECONDS=0.1, POOL_BYTES=LONG)
    served.listener.idle_timeout = 0.1
    holder, waiter = [await served.connect() for _ in range(2)]
    holder[1].write(frame(1, size=LONG))
    await until(lambda: 1 in served.calls.under_way)
    waiter[1].write(frame(2, size=LONG))
    sweeps = served.listener.sweeps
    await until(lambda: served.listener.sweeps > sweeps + 15)
    served.calls.give(1)
    await until(lambda: 2 in served.calls.under_way)
    served.calls.give(2)
    assert await served.numbers(waiter[0], 1) == [2]
    assert sum(served.listener.cut.values()) == 0


async def test_an_answer_that_has_to_wait_counts_until_it_is_given(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, kept = served.calls.respond, bytes(20_000)

    def respond(data: bytes, caller: Any) -> tuple[Any, int]:
        given, used = answer(data, caller)
        return (kept, used) if isinstance(given, bytes) and used else (given, used)

    monkeypatch.setattr(served.listener, "respond", respond)
    reader, writer = await served.connect()
    writer.write(frame(1) + frame(2, AT_ONCE))
    await until(lambda: 1 in served.calls.under_way)
    assert served.listener._request_bytes.used == len(kept) - FREE_REQUEST_BYTES
    served.calls.give(1)
    async with asyncio.timeout(10):
        assert await reader.readexactly(8 + len(kept)) == response(1) + kept
    assert served.listener._request_bytes.used == 0


async def test_a_client_that_does_not_read_begins_nothing_more(served: Served) -> None:
    connection, transport = Connection(served.listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(frame(1) + frame(3))
    connection.pause_writing()
    transport.unread = 70_000
    connection.data_received(frame(5))
    connection.data_received(frame(7) + frame(9, size=LONG)[:100])
    served.calls.give(1)
    await until(lambda: transport.written == response(1))
    assert served.calls.begun == [1, 3]
    assert served.listener._answer_bytes.used == 70_000 - 64 * 1024
    served.calls.give(3)
    await until(lambda: transport.written == response(1) + response(3))
    assert (served.calls.begun, served.listener.pool.used) == ([1, 3], 0)
    connection.resume_writing()
    await until(lambda: served.calls.begun == [1, 3, 5, 7])
    assert served.listener.pool.used == LONG + 20
    connection.connection_lost(None)
    assert served.listener.pool.used == 20
