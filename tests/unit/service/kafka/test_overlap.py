from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pidkeeper.service.kafka.calls_in_order import MAX_OVERLAPPING
from pidkeeper.service.kafka.connection import Connection
from tests.support.kafka_calls import ALONE, AT_ONCE, MALFORMED, OVERLAPS, Transport, frame, response
from tests.support.waiting import until
from tests.unit.service.kafka.conftest import Served

CHUNK = 256 * 1024
"""More than one read of the listener takes."""


class Sending(Transport):
    """`sent`: with each write. It sends nothing once it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.sent.append(data)


async def test_calls_that_overlap_are_under_way_together_and_answered_in_order(served: Served) -> None:
    reader, writer = await served.connect()
    for number in range(5):
        writer.write(frame(number))
    await until(lambda: len(served.calls.under_way) == 5)
    assert served.calls.begun == [0, 1, 2, 3, 4]
    for number in (4, 2, 3, 1):
        served.calls.give(number)
    writer.write(frame(5))
    await until(lambda: 5 in served.calls.under_way)
    assert not reader._buffer, "an answer overtook the first one"  # type: ignore[attr-defined]
    served.calls.give(0)
    assert await served.numbers(reader, 5) == [0, 1, 2, 3, 4]
    served.calls.give(5)
    assert await served.numbers(reader, 1) == [5]
    assert served.listener.pool.used == 0


async def test_answers_that_come_in_one_turn_are_sent_together(served: Served) -> None:
    connection, transport = Connection(served.listener), Sending()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(b"".join(frame(number) for number in (1, 3, 5, 7, 9)))
    for number in (1, 3, 5):
        served.calls.give(number)
    await until(lambda: bool(transport.sent))
    assert transport.sent == [response(1) + response(3) + response(5)]
    served.calls.give(7)
    served.calls.give(9)
    await until(lambda: not served.calls.under_way and len(transport.sent) > 1)
    assert transport.sent[1:] == [response(7) + response(9)]
    connection.connection_lost(None)


async def test_a_listener_that_stops_sends_what_was_answered_last(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, transport = Connection(served.listener), Sending()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.data_received(frame(1) + frame(3))
    close = served.listener._listener.close

    async def close_and_answer() -> None:
        await close()
        if not transport.closed:
            served.calls.give(1)
            await asyncio.sleep(0)

    monkeypatch.setattr(served.listener._listener, "close", close_and_answer)
    await served.listener.stop()
    assert transport.sent == [response(1)]
    connection.connection_lost(None)


async def test_as_many_as_the_bound_are_under_way_and_the_next_begins_with_each_answer(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"".join(frame(number) for number in range(3 * MAX_OVERLAPPING)))
    for first in range(2 * MAX_OVERLAPPING):
        await until(lambda first=first: first + MAX_OVERLAPPING - 1 in served.calls.under_way)  # type: ignore[misc]
        assert len(served.calls.under_way) == MAX_OVERLAPPING
        served.calls.give(first)
        assert await served.numbers(reader, 1) == [first]


async def test_an_answer_that_has_to_wait_keeps_its_place(served: Served) -> None:
    """Else a client could make any number of answers that wait behind its first call."""
    reader, writer = await served.connect()
    writer.write(b"".join(frame(number) for number in range(MAX_OVERLAPPING + 1)))
    await until(lambda: len(served.calls.under_way) == MAX_OVERLAPPING)
    for number in range(1, MAX_OVERLAPPING):
        served.calls.give(number)
    await until(lambda: not served.calls.held - 10)
    assert len(served.calls.begun) == MAX_OVERLAPPING
    served.calls.give(0)
    assert await served.numbers(reader, MAX_OVERLAPPING) == list(range(MAX_OVERLAPPING))
    await until(lambda: MAX_OVERLAPPING in served.calls.under_way)


async def test_calls_without_an_answer_are_holes_in_the_order(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"".join(frame(number) for number in range(6)) + frame(6, ALONE) + frame(7))
    await until(lambda: len(served.calls.under_way) == 6)
    for number in (5, 3, 1, 4):
        served.calls.give(number, b"" if number in {1, 3, 4} else None)
    served.calls.give(2)
    served.calls.give(0, b"")
    assert await served.numbers(reader, 2) == [2, 5]
    await until(lambda: list(served.calls.under_way) == [6])
    served.calls.give(6, b"")
    await until(lambda: list(served.calls.under_way) == [7])
    served.calls.give(7)
    assert await served.numbers(reader, 1) == [7]


async def test_what_does_not_overlap_begins_once_all_before_it_is_answered(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(frame(0) + frame(1) + frame(2, ALONE) + frame(3) + frame(4, AT_ONCE) + frame(5) + frame(6, AT_ONCE))
    await until(lambda: len(served.calls.under_way) == 2)
    assert served.calls.begun == [0, 1]
    served.calls.give(1)
    served.calls.give(0)
    assert await served.numbers(reader, 2) == [0, 1]
    await until(lambda: 2 in served.calls.under_way)
    assert served.calls.begun == [0, 1, 2]
    writer.write(frame(7, AT_ONCE))
    assert served.calls.at_once == [], "behind a call that is alone nothing is looked at"
    served.calls.give(2)
    assert await served.numbers(reader, 1) == [2]
    await until(lambda: served.calls.at_once == [4])
    assert served.calls.begun == [0, 1, 2, 3]
    served.calls.give(3)
    assert await served.numbers(reader, 2) == [3, 4]
    await until(lambda: 5 in served.calls.under_way)
    served.calls.give(5)
    assert await served.numbers(reader, 3) == [5, 6, 7]


async def test_a_call_that_fails_ends_the_connection_in_its_turn(served: Served) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    reader, writer = await served.connect()
    writer.write(b"".join(frame(number) for number in range(5)))
    await until(lambda: len(served.calls.under_way) == 5)
    served.calls.fail(2)
    served.calls.give(3)
    writer.write(frame(5))
    served.calls.give(1)
    await until(lambda: bool(reported))
    served.calls.give(0)
    assert await served.rest(reader) == response(0) + response(1)
    assert reported == ["call 2"]
    assert 5 not in served.calls.begun
    served.calls.give(4)
    await until(lambda: served.listener.pool.used == 0)


async def test_a_call_that_cannot_even_begin_ends_the_connection_in_its_turn(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    soon = served.calls.answer_soon

    def broken(call: Any, done: Any) -> bool:
        if call.number == 1:
            raise ZeroDivisionError("call 1")
        return soon(call, done)

    monkeypatch.setattr(served.calls, "answer_soon", broken)
    reader, writer = await served.connect()
    writer.write(frame(0) + frame(1))
    await until(lambda: bool(reported))
    served.calls.give(0)
    assert await served.rest(reader) == response(0)
    assert reported == ["call 1"]
    assert served.listener.pool.used == 0


async def test_a_malformed_frame_is_refused_after_the_answers_before_it(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(frame(0) + frame(1) + frame(2, MALFORMED) + frame(3))
    await until(lambda: len(served.calls.under_way) == 2)
    served.calls.give(1)
    served.calls.give(0)
    assert await served.rest(reader) == response(0) + response(1)
    assert (served.listener.malformed, served.calls.begun) == (1, [0, 1])


async def test_calls_of_a_lost_connection_go_on_and_hold_their_memory_until_they_end(served: Served) -> None:
    _, writer = await served.connect()
    writer.write(frame(0, size=50_000) + frame(1, size=50_000) + frame(2, ALONE))
    await until(lambda: len(served.calls.under_way) == 2)
    writer.transport.abort()
    await until(lambda: not served.listener.connections)
    assert served.listener.pool.used == 100_000
    assert not any(call.cancelled() for call in served.calls.under_way.values())
    served.calls.give(1)
    served.calls.give(0)
    await until(lambda: served.listener.pool.used == 0)
    assert served.calls.begun == [0, 1], "what had not begun does not"


async def test_a_connection_whose_certificate_ended_is_closed_between_two_of_many_calls(served: Served) -> None:
    """A producer always has some under way: waiting for a moment without any would be for ever."""
    reader, writer = await served.connect()
    writer.write(frame(0) + frame(1))
    await until(lambda: len(served.calls.under_way) == 2)
    (connection,) = served.listener.connections
    connection.end = 0.0
    await until(lambda: served.listener.cut["expired"] == 1)
    writer.write(frame(2))
    served.calls.give(0)
    served.calls.give(1)
    assert await served.rest(reader) == response(0) + response(1)
    assert served.calls.begun == [0, 1]


def chunks(stream: bytes, rng: random.Random) -> Iterator[bytes]:
    """The stream in pieces, most of them small."""
    position = 0
    while position < len(stream):
        size = rng.choice([1, 3, 9, 40, 300, CHUNK])
        yield stream[position : position + size]
        position += size


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_is_asked_and_whenever_it_ends_answers_are_in_order(served: Served, seed: int) -> None:
    """Any mix of the kinds, in any pieces, ended in any order, some without an answer."""
    rng = random.Random(seed)
    kinds = [rng.choice([OVERLAPS, OVERLAPS, OVERLAPS, ALONE, AT_ONCE]) for _ in range(60)]
    silent = {number for number, kind in enumerate(kinds) if kind != AT_ONCE and rng.random() < 0.2}
    sizes = [rng.choice([10, 10, 200, 66_000 if kind != AT_ONCE else 3_000]) for kind in kinds]
    stream = b"".join(frame(number, kind, sizes[number]) for number, kind in enumerate(kinds))
    reader, writer = await served.connect()
    for chunk in chunks(stream, rng):
        writer.write(chunk)
    ended: set[int] = set()
    asked = {number for number, kind in enumerate(kinds) if kind != AT_ONCE}
    while ended != asked:
        await until(lambda: bool(served.calls.under_way))
        under_way = list(served.calls.under_way)
        assert len(under_way) <= MAX_OVERLAPPING
        for number in under_way:
            if kinds[number] == ALONE:
                assert under_way == [number] and set(range(number)) & asked == ended
        number = rng.choice(under_way)
        served.calls.give(number, b"" if number in silent else None)
        ended.add(number)
        await asyncio.sleep(0)
    expected = [number for number in range(60) if number not in silent]
    assert await served.numbers(reader, len(expected)) == expected
    assert served.calls.begun == sorted(asked)
    await until(lambda: served.listener.pool.used == 0)
    assert served.listener._request_bytes.used == 0
