from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from pidkeeper.service.kafka.connection import Connection
from tests.support.kafka_calls import ALONE, AT_ONCE, LONG_AT_ONCE, MAX_LONG_BYTES, Transport, frame
from tests.support.waiting import until
from tests.unit.service.kafka.conftest import Served

LONG = 1_000_000
LONGEST = 4 + MAX_LONG_BYTES


async def test_the_longest_frame_is_gathered_and_begun_and_its_memory_given_back(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(frame(1, size=LONGEST) + frame(2) + frame(3, AT_ONCE))
    await until(lambda: list(served.calls.under_way) == [1, 2])
    assert served.listener.pool.used == LONGEST + 10
    served.calls.give(1)
    served.calls.give(2)
    assert await served.numbers(reader, 3) == [1, 2, 3]
    assert served.listener.pool.used == 0
    assert not any(served.listener.cut.values())


@pytest.mark.parametrize(
    "head",
    [struct.pack(">i", LONGEST), struct.pack(">ih", LONGEST, 0), struct.pack(">ih", 64 * 1024 + 1, AT_ONCE)],
    ids=["longer than any", "longer than its kind", "of another kind"],
)
@pytest.mark.parametrize("split", [0, 4, 5])
async def test_a_frame_is_refused_by_its_head(served: Served, head: bytes, split: int) -> None:
    reader, writer = await served.connect()
    writer.write(head[:split])
    await asyncio.sleep(0.01)
    writer.write(head[split:])
    assert await served.rest(reader) == b""
    assert (served.listener.malformed, served.listener.pool.used) == (1, 0)


async def test_a_short_frame_in_pieces_of_a_head_is_answered(served: Served) -> None:
    reader, writer = await served.connect()
    for byte in frame(5, AT_ONCE):
        writer.write(bytes([byte]))
        await asyncio.sleep(0.001)
    assert await served.numbers(reader, 1) == [5]


async def test_a_long_call_that_is_alone_gives_its_memory_back_wherever_it_stands(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(frame(1, ALONE, LONG) + frame(2) + frame(3, ALONE, LONG) + frame(4))
    for number in (1, 2, 3, 4):
        await until(lambda number=number: number in served.calls.under_way)  # type: ignore[misc]
        assert served.listener.pool.used <= LONG + 10
        served.calls.give(number)
    assert await served.numbers(reader, 4) == [1, 2, 3, 4]
    assert served.listener.pool.used == 0


async def test_a_long_request_that_is_answered_at_once_gives_its_memory_back(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(frame(1, LONG_AT_ONCE, LONG) + frame(2))
    assert await served.numbers(reader, 1) == [1]
    await until(lambda: 2 in served.calls.under_way)
    assert served.listener.pool.used == 10
    writer.write(frame(3, LONG_AT_ONCE, LONG))
    await until(lambda: 3 in served.calls.at_once)
    served.calls.give(2)
    assert await served.numbers(reader, 2) == [2, 3]
    assert served.listener.pool.used == 0


async def test_a_lost_connection_gives_back_what_a_request_holds_that_has_not_begun(served: Served) -> None:
    _, writer = await served.connect()
    writer.write(frame(1) + frame(2, ALONE, LONG))
    await until(lambda: served.listener.pool.used == LONG + 10)
    await until(lambda: all(connection._deferred for connection in served.listener.connections))
    writer.transport.abort()
    await until(lambda: served.listener.pool.used == 10)
    served.calls.give(1)
    await until(lambda: served.listener.pool.used == 0)
    assert served.calls.begun == [1]


async def test_a_lost_connection_gives_back_what_a_part_of_a_request_holds(served: Served) -> None:
    _, writer = await served.connect()
    writer.write(frame(1) + frame(2, size=LONG)[:-1])
    await until(lambda: served.listener.pool.used == LONG + 10)
    assert served.listener._request_bytes.used == 0, "it is counted twice"
    writer.transport.abort()
    await until(lambda: served.listener.pool.used == 10)
    served.calls.give(1)
    await until(lambda: served.listener.pool.used == 0)
    assert served.listener._request_bytes.used == 0


async def test_a_fair_rate_is_time_enough_and_a_slower_one_is_not(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, rate, size = 0.3, 500_000, 500_000
    await served.restart(monkeypatch, REQUEST_SECONDS=seconds, FAIR_BYTES_PER_SECOND=rate)
    served.listener.idle_timeout = 0.1
    fair, slow, stalled = [await served.connect() for _ in range(3)]
    slow[1].write(frame(3, size=size)[:70_000])
    stalled[1].write(frame(5, size=size)[:400_000])
    ends = [asyncio.create_task(served.rest(reader)) for reader, _ in (slow, stalled)]
    loop = asyncio.get_running_loop()
    for number in (1, 7):
        data, sent, begun = frame(number, size=size), 0, loop.time()
        while sent < size:
            # One and a half times the fair rate, and a tenth of it.
            more = int((loop.time() - begun) * rate * 1.5) + 10_000 - sent
            fair[1].write(data[sent : sent + more])
            slow[1].write(bytes(more // 15))
            sent += more
            await asyncio.sleep(0.01)
        assert loop.time() - begun > 2 * seconds
        await until(lambda number=number: number in served.calls.under_way)  # type: ignore[misc]
        served.calls.give(number)
        assert await served.numbers(fair[0], 1) == [number]
    async with asyncio.timeout(10):
        assert await asyncio.gather(*ends) == [b"", b""]
    assert served.listener.cut["head"] == 2
    assert served.listener.pool.used == 0


async def test_the_time_of_a_long_request_begins_with_its_memory(served: Served) -> None:
    connection, transport = Connection(served.listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(frame(1, AT_ONCE) + frame(2, size=LONG)[:5])
    begun = served.listener._requests._since[connection]
    await until(lambda: asyncio.get_running_loop().time() > begun)
    connection.data_received(frame(2, size=LONG)[5:10])
    assert served.listener._requests._since[connection] > begun
    connection.connection_lost(None)


async def test_a_long_frame_is_looked_at_at_its_head_and_when_it_is_whole(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pieces it comes in, whatever is answered meanwhile, and whether answers are read or not: looking at
    each of a thousand parts would copy gigabytes."""
    looked: list[int] = []
    answer = served.calls.respond

    def respond(data: bytes, caller: Any) -> tuple[Any, int]:
        looked.append(len(data))
        return answer(data, caller)

    monkeypatch.setattr(served.listener, "respond", respond)
    connection, transport = Connection(served.listener), Transport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    for number in range(5):
        connection.data_received(frame(number))
    await until(lambda: len(served.calls.under_way) == 5)
    looked.clear()
    data = frame(5, size=LONG) + frame(7)[:9]
    for at in range(0, LONG, 1000):
        connection.data_received(data[at : at + (1000 if at + 1000 < LONG else 1009)])
        if at % 200_000 == 0:
            served.calls.give(at // 200_000)
            connection.pause_writing()
            connection.resume_writing()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert looked == [1000, LONG, 9], "and by itself, so that nothing copies it again"
    await until(lambda: 5 in served.calls.under_way)
    served.calls.give(5)
    await until(lambda: len(transport.written) == 48)
    connection.connection_lost(None)
    assert served.listener.pool.used == 0
