"""The relay between an agent and a controller holds what it is told to hold, and passes all else on as it was."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.cuts.relay import HOST, Answer, Exchange, Relay
from tests.support.waiting import until

REQUEST = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Looks:
    """Writes down what it sees; `stops_at`: what it does not pass on."""

    def __init__(self, stops_at: str = "") -> None:
        self.stops_at = stops_at
        self.seen: list[str] = []
        self.answer: Answer | None = None

    def _see(self, name: str, exchange: Exchange) -> bool:
        assert exchange == Exchange(7, 2, "/v1/x", b"abc")
        self.seen.append(name)
        return name != self.stops_at

    async def asked(self, exchange: Exchange) -> bool:
        return self._see("asked", exchange)

    async def underway(self, exchange: Exchange) -> bool:
        return self._see("underway", exchange)

    async def answered(self, exchange: Exchange, answer: Answer) -> bool:
        self.answer = answer
        return self._see("answered", exchange)


class Controller:
    """Answers each request, or waits for ever where it is `slow`."""

    def __init__(self, *, slow: bool = False) -> None:
        self.slow = slow
        self.requests = 0
        self.left = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while await reader.read(len(REQUEST)):
                self.requests += 1
                if not self.slow:
                    writer.write(ANSWER)
        self.left += 1


@contextlib.asynccontextmanager
async def connected(
    looks: Looks, controller: Controller
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    server = await asyncio.start_server(controller.serve, HOST, 0)
    relay = Relay(7, 2, server.sockets[0].getsockname()[1], looks)
    async with relay.serving():
        reader, writer = await asyncio.open_connection(HOST, relay.port)
        with contextlib.closing(writer):
            yield reader, writer
    server.close()


async def test_requests_and_answers_pass_as_they_were_one_after_the_other() -> None:
    looks, controller = Looks(), Controller()
    async with connected(looks, controller) as (reader, writer):
        for _ in range(2):
            writer.write(REQUEST)
            assert await reader.readexactly(len(ANSWER)) == ANSWER
    assert looks.seen == ["asked", "underway", "answered"] * 2
    assert looks.answer == Answer(200, b"ok")


@pytest.mark.parametrize(("stops_at", "requests"), [("asked", 0), ("underway", 1), ("answered", 1)])
async def test_what_is_held_back_never_comes(stops_at: str, requests: int) -> None:
    looks, controller = Looks(stops_at), Controller()
    async with connected(looks, controller) as (reader, writer):
        writer.write(REQUEST)
        assert await reader.read() == b""
        assert looks.seen[-1] == stops_at
        await until(lambda: controller.left == 1)
    assert controller.requests == requests


async def test_a_controller_hears_at_once_that_the_agent_has_hung_up() -> None:
    controller = Controller(slow=True)
    async with connected(Looks(), controller) as (_, writer):
        writer.write(REQUEST)
        await until(lambda: controller.requests == 1)
        writer.close()
        await until(lambda: controller.left == 1)
