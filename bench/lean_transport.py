"""The transport of simulated agents over HTTP: what a real one sends, for a fraction of its time.

A thousand real agents have machines of their own. In two processes beside the controllers, the client of aiohttp would
take more of the machine than the controllers do, and answers would count as late that only had to wait to be read.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self, cast

from bench.cluster import host_port
from bench.http_load import content_length

MAX_ANSWER_BYTES: Final = 512 * 1024
"""As the product's transport takes."""


class Connection(asyncio.Protocol):
    """One connection, with one request in flight. `answer`: what it waits for."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None

    @property
    def usable(self) -> bool:
        """Whether a request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(ConnectionError(f"the connection ended: {exc}"))

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.done():
            self.abort()  # nobody asked
            return
        data = self._partial + data
        body_at = data.find(b"\r\n\r\n") + 4
        try:
            end = body_at + content_length(data[:body_at]) if body_at >= 4 else len(data) + 1
        except ValueError as error:
            self._fail(error)
            return
        if len(data) < end and len(data) <= MAX_ANSWER_BYTES:
            self._partial = data
            return
        self._partial = b""
        if len(data) == end:
            self.answer.set_result((int(data[9:12]), data[body_at:]))
        else:
            self._fail(ValueError(f"{len(data)} bytes are not one answer"))

    def send(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; status and body of its answer. It fails with OSError or ValueError."""
        assert self._transport is not None, "it is not connected"
        self.answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self.answer

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class LeanTransport:
    """As the product's transports, without TLS and tokens. Use as an asynchronous context manager."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Connection]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """One request and its answer. Raises TimeoutError, OSError, ValueError."""
        host, port = host_port(base_url)
        content = body or b""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        async with asyncio.timeout(timeout_seconds):
            connection = self._take(base_url)
            if connection is None:
                connection = (await asyncio.get_running_loop().create_connection(Connection, host, port))[1]
            try:
                answer = await connection.send(head.encode() + content)
            except BaseException:
                connection.abort()
                raise
        self._idle.setdefault(base_url, []).append(connection)
        return answer

    def _take(self, base_url: str) -> Connection | None:
        """A connection that nobody uses now."""
        idle = self._idle.get(base_url, [])
        while idle:
            if (connection := idle.pop()).usable:
                return connection
        return None
