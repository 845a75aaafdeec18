"""A served member on loopback, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.server import HttpServer
from tests.support.memory_member import MemoryMember
from tests.support.sharing import sharing


class Clock:
    """A monotonic clock that stands still until told otherwise."""

    def __init__(self) -> None:
        self.now_ns = 10**9

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


class Answer:
    """Status, headers and body of one answer."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.content_type = response.content_type
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        import msgspec

        return msgspec.json.decode(self.body)


class Api:
    """A client of one served member."""

    def __init__(self, session: aiohttp.ClientSession, address: tuple[str, int], server: HttpServer) -> None:
        self._session = session
        self.address = address
        self.server = server

    async def call(self, method: str, path: str, **kwargs: Any) -> Answer:
        """One request; `json=` or `data=` with `headers=` as in aiohttp."""
        host, port = self.address
        async with self._session.request(method, f"http://{host}:{port}{path}", **kwargs) as response:
            return Answer(response, await response.read())

    async def raw(self, data: bytes, *, half_close: bool = False) -> bytes:
        """Send bytes on a connection of their own and read until the server closes it, 5 s at most."""
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data)
            if half_close:
                writer.write_eof()
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


Serve = Callable[..., Awaitable[Api]]


@pytest.fixture
def member() -> MemoryMember:
    return MemoryMember()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def serve(member: MemoryMember, clock: Clock) -> AsyncIterator[Serve]:
    servers: list[HttpServer] = []
    async with aiohttp.ClientSession() as session:

        async def start(
            *, limits: ApiLimits | None = None, token: str | None = None, operator_token: str | None = None
        ) -> Api:
            limits = limits or ApiLimits()
            app = build_app(member, limits=limits, shared=sharing(token, operator_token), clock_ns=clock)
            server = HttpServer(app)
            servers.append(server)
            return Api(session, await server.start("127.0.0.1", 0), server)

        yield start
        for server in servers:
            await server.stop(drain_seconds=1.0)


@pytest.fixture
async def api(serve: Serve) -> Api:
    return await serve()
