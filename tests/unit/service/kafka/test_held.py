"""A connection that is held: it is not read from, what is under way goes on, and nobody else notices."""

from __future__ import annotations

import asyncio

import pytest

from pidkeeper.service.kafka.connection import Connection
from tests.support.kafka_calls import ALONE, AT_ONCE, OVERLAPS, frame
from tests.support.waiting import until
from tests.unit.service.kafka.conftest import Served

LONG = 60.0
SHORT = 0.15


def newest(served: Served) -> Connection:
    return list(served.listener.connections)[-1]


async def connected(served: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Connection]:
    """A client that is served."""
    reader, writer = await served.connect()
    writer.write(frame(1000, AT_ONCE))
    assert await served.numbers(reader, 1) == [1000]
    return reader, writer, newest(served)


@pytest.mark.parametrize("key", [AT_ONCE, ALONE, OVERLAPS])
async def test_nothing_is_begun_until_the_time_is_over_and_then_all_is(served: Served, key: int) -> None:
    reader, writer, connection = await connected(served)
    loop = asyncio.get_running_loop()
    connection.hold(SHORT)
    begin = loop.time()
    writer.write(frame(2, key) + frame(3, AT_ONCE))
    if key != AT_ONCE:
        await until(lambda: bool(served.calls.begun))
        assert loop.time() - begin > 0.9 * SHORT
        served.calls.give(2)
    assert await served.numbers(reader, 2) == [2, 3]
    assert loop.time() - begin > 0.9 * SHORT
    assert not connection.held and not connection.muted


async def test_a_longer_time_counts_and_a_shorter_one_does_not(served: Served) -> None:
    reader, writer, connection = await connected(served)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    connection.hold(0.05)
    connection.hold(SHORT)
    connection.hold(0.07)
    writer.write(frame(2, AT_ONCE))
    assert await served.numbers(reader, 1) == [2]
    assert loop.time() - begin > 0.9 * SHORT


async def test_what_is_under_way_is_answered_meanwhile(served: Served) -> None:
    reader, writer, connection = await connected(served)
    for number in range(2, 5):
        writer.write(frame(number, OVERLAPS))
    await until(lambda: len(served.calls.under_way) == 3)
    connection.hold(LONG)
    writer.write(frame(5, OVERLAPS))
    for number in (4, 3, 2):
        served.calls.give(number)
    assert await served.numbers(reader, 3) == [2, 3, 4]
    assert served.calls.begun == [2, 3, 4]
    assert connection.held and connection.muted and not connection.is_busy()


async def test_the_end_of_the_time_lets_nothing_overtake_a_call_that_is_alone(served: Served) -> None:
    reader, writer, connection = await connected(served)
    writer.write(frame(2, ALONE))
    await until(lambda: 2 in served.calls.under_way)
    connection.hold(0.05)
    writer.write(frame(3, AT_ONCE))
    await until(lambda: not connection.held)
    assert connection.muted and connection.is_busy()
    assert served.calls.at_once == [1000]
    served.calls.give(2)
    assert await served.numbers(reader, 2) == [2, 3]


async def test_a_call_that_is_answered_in_the_time_does_not_end_it(served: Served) -> None:
    reader, writer, connection = await connected(served)
    writer.write(frame(2, ALONE))
    await until(lambda: 2 in served.calls.under_way)
    connection.hold(LONG)
    writer.write(frame(3, AT_ONCE))
    served.calls.give(2)
    assert await served.numbers(reader, 1) == [2]
    await asyncio.sleep(0)
    assert connection.held and served.calls.at_once == [1000]


async def test_a_client_that_goes_on_sending_is_stopped_by_its_socket(served: Served) -> None:
    """What it sends is not even read, so it takes no memory here."""
    _, writer, connection = await connected(served)
    connection.hold(LONG)

    async def send_on() -> None:
        while True:
            writer.write(frame(2, AT_ONCE) * 10_000)
            await writer.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(send_on(), 0.5)
    assert len(connection._partial) == 0
    other, other_writer, _ = await connected(served)
    other_writer.write(frame(7, AT_ONCE))
    assert await served.numbers(other, 1) == [7]
    # A close would wait until all of it is sent.
    writer.transport.abort()


async def test_what_came_with_the_request_that_is_too_much_is_kept(served: Served) -> None:
    reader, writer, _ = await connected(served)
    connection = newest(served)
    respond = connection._respond

    def holding(data: bytes, caller: object) -> tuple[object, int]:
        connection.hold(SHORT)
        connection._respond = respond
        answer, _ = respond(data[: len(frame(2))], caller)
        return answer, len(frame(2))

    connection._respond = holding
    writer.write(frame(2, AT_ONCE) + frame(3, AT_ONCE) + frame(4, AT_ONCE)[:5])
    assert await served.numbers(reader, 1) == [2]
    assert served.calls.at_once == [1000, 2]
    writer.write(frame(4, AT_ONCE)[5:])
    assert await served.numbers(reader, 2) == [3, 4]


@pytest.mark.parametrize("abort", [False, True])
async def test_one_that_hangs_up_meanwhile_leaves_nothing(served: Served, abort: bool) -> None:
    _, writer, connection = await connected(served)
    connection.hold(LONG)
    if abort:
        writer.transport.abort()
        # Its reset is seen by whoever writes or reads; nobody reads. The end of the time does.
        connection._let_go()
    else:
        connection.transport.close()
    await until(lambda: not served.listener.connections)
    assert not connection.held, "its timer would keep it in memory"
    connection.hold(LONG)
    assert not connection.held


async def test_a_stop_does_not_wait(served: Served) -> None:
    reader, _, connection = await connected(served)
    connection.hold(LONG)
    async with asyncio.timeout(2):
        await served.listener.stop()
        assert await served.rest(reader) == b""
    assert not connection.held


async def test_it_gives_way_to_those_who_ask(served: Served) -> None:
    """Else a few requests would keep every place of a listener for the longest time that anybody is held."""
    served.listener._places._limit = 2
    reader, _, connection = await connected(served)
    connection.hold(LONG)
    await until(lambda: connection not in served.listener._places._busy)
    for _ in range(2):
        await connected(served)
    await until(lambda: connection not in served.listener.connections)
    assert await served.rest(reader) == b""
