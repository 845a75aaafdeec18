"""What an agent and a controller say to each other over HTTP, with somebody between who sees each request and answer.

A request is held while somebody looks at it, and so is an answer: whoever is killed meanwhile is killed just there.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

HOST: Final = "127.0.0.1"
MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a start line and headers: sixteen times what agents and controllers send."""
MAX_BODY_BYTES: Final = 16 << 20
"""An answer of a controller has half a MiB, a request less than the largest entry of 8 MiB."""
WATCH_SECONDS: Final = 0.02
"""How soon a controller hears that an agent has hung up while it works: it submits nothing of one that has."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Exchange(NamedTuple):
    """A request of an agent to a controller, each by its id."""

    agent: int
    controller: int
    path: str
    body: bytes


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


class Looks(Protocol):
    """Who stands between. Each says whether to pass on what it was shown; if not, both connections end."""

    async def asked(self, exchange: Exchange) -> bool:
        """The request has come from the agent."""

    async def underway(self, exchange: Exchange) -> bool:
        """It is with the controller, as far as the kernel took it."""

    async def answered(self, exchange: Exchange, answer: Answer) -> bool:
        """The answer has come from the controller."""


class Relay:
    """Between one agent and one controller, which listens on `upstream`. It serves on `port` once it has begun."""

    def __init__(self, agent: int, controller: int, upstream: int, looks: Looks) -> None:
        self.agent = agent
        self.controller = controller
        self.upstream = upstream
        self._looks = looks
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve until the end of the block."""
        server = await asyncio.start_server(self._serve, HOST, 0, limit=MAX_HEAD_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, agent: asyncio.StreamReader, to_agent: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with (
            contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError),
            contextlib.closing(to_agent),
        ):
            controller, to_controller = await asyncio.open_connection(HOST, self.upstream, limit=MAX_HEAD_BYTES)
            with contextlib.closing(to_controller):
                while await self._exchange(agent, to_agent, controller, to_controller):
                    pass

    async def _exchange(
        self,
        agent: asyncio.StreamReader,
        to_agent: asyncio.StreamWriter,
        controller: asyncio.StreamReader,
        to_controller: asyncio.StreamWriter,
    ) -> bool:
        """Pass a request on, and its answer back; whether there may be another one."""
        head, body = await _message(agent)
        exchange = Exchange(self.agent, self.controller, head.split(b" ", 2)[1].decode(), body)
        if not await self._looks.asked(exchange):
            return False
        to_controller.write(head + body)
        await to_controller.drain()
        if not await self._looks.underway(exchange):
            return False
        head, body = await _unless_ended(agent, controller)
        if not await self._looks.answered(exchange, Answer(int(head.split(b" ", 2)[1]), body)):
            return False
        to_agent.write(head + body)
        await to_agent.drain()
        return True


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Start line with headers, and body. Raises IncompleteReadError at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = _LENGTH.search(head)
    length = 0 if found is None else int(found[1])
    assert length <= MAX_BODY_BYTES, f"a body of {length} bytes"
    assert b"transfer-encoding" not in head.lower(), "both sides tell the length of what they send"
    return head, await reader.readexactly(length)


async def _unless_ended(agent: asyncio.StreamReader, controller: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The answer. Raises IncompleteReadError if either side hangs up before."""
    coming = asyncio.ensure_future(_message(controller))
    try:
        while not coming.done():
            await asyncio.wait([coming], timeout=WATCH_SECONDS)
            if agent.at_eof():
                raise asyncio.IncompleteReadError(b"", None)
        return coming.result()
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
