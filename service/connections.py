"""The connections of an HTTP server: how many there are, how long each may take, and how much memory they hold."""

from __future__ import annotations

import asyncio
import math
import resource
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pidkeeper.service.certified import end_of
from pidkeeper.service.connection import FREE_REQUEST_BYTES, Connection, Holder
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.http_handler import Handler, build_handler
from pidkeeper.service.known_head import KnownHeads
from pidkeeper.service.metrics import EXPIRED, ServerCounters
from pidkeeper.service.patience import Patience, cut_overdue
from pidkeeper.service.places import Places
from pidkeeper.service.protection import Protection
from pidkeeper.service.shared_bytes import SharedBytes

MAX_CONNECTIONS: Final = 8192
"""Open HTTP connections: two from each of the 4,000 brokers that the quotas of the controllers count with (a heartbeat
and a request for a block), and some for scrapers and operators."""

HEAD_SECONDS: Final = 10.0
"""How long the first head of a connection may take. Clients send it as they connect, in one packet."""

KEEPALIVE_SECONDS: Final = 75.0
"""How long a connection stays open after an answer, whatever it sends short of a whole head; agents heartbeat every
2 s, so only abandoned ones idle that long."""

ANSWER_SECONDS: Final = 30.0
"""How long some bytes of answers may wait for a caller to read: the largest answer, 200 KiB, at 7 KiB/s."""

FREE_ANSWER_BYTES: Final = 16 * 1024
"""Unread bytes of answers that every connection may hold; above that, its next request waits."""

SHARED_BYTES: Final = 64 * 1024 * 1024
"""What all connections hold above that, once for requests and once for answers: 1,000 bodies of 64 KiB, or 300 of the
largest answers. So 8192 connections hold at most 8192 x (8 + 16) KiB + 2 x 64 MiB = 320 MiB, and a chunk of 256 KiB."""

HEADS_SECONDS: Final = 60.0
"""Between two times that heads are forgotten, for a head may hold a token."""

SWEEP_SECONDS: Final = 1.0
"""Between two looks for connections that take too long."""

LOOKS_AT_ONCE: Final = 512
"""Connections that are looked at in a row: 0.3 ms of the event loop."""

Denied = Callable[[str | None, HttpRequest, HttpResponse], None]
"""Hears of a refusal to whoever may not ask: its host, what it asked, and the refusal."""


def fitting_connections(*wanted: int, reserved: int) -> list[int]:
    """As many of the `wanted` connections of each listener as the soft limit of open files leaves room for.

    `reserved`: files that are needed for everything else. They come first, but for a quarter of the limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= sum(wanted) + reserved:
        return list(wanted)
    room = max(soft - reserved, soft // 4)
    return [max(1, one * room // sum(wanted)) for one in wanted]


class BoundedServer(Holder):
    """Holds so many connections; who gives way for one more is as in Places. Each cut and refused one is counted.

    `dispatch` answers a request. Until its body is there as a whole its connection is as good as idle: one that never
    finishes asking keeps no probe and no broker out. `protection`: whom certificates name. A connection ends with the
    one that it was made with, once the requests under way are answered.
    """

    def __init__(
        self,
        dispatch: Callable[[HttpRequest], Awaitable[HttpResponse]],
        denied: Denied,
        counters: ServerCounters,
        limit: int,
        protection: Protection,
        **options: Any,
    ) -> None:
        super().__init__(self._watched(build_handler(self.answer, self._whole)), **options)
        self.known_heads = KnownHeads()
        self._options = options
        self._dispatch = dispatch
        self._denied = denied
        self._protection = protection
        self._counters = counters
        self._open: set[Connection] = set()
        self._places: Places[Connection] = Places(limit)
        self._heads: Patience[Connection] = Patience(HEAD_SECONDS)
        self._unread: Patience[Connection] = Patience(ANSWER_SECONDS)
        self._request_bytes: SharedBytes[Connection] = SharedBytes(free=FREE_REQUEST_BYTES, shared=SHARED_BYTES)
        self._answer_bytes: SharedBytes[Connection] = SharedBytes(free=FREE_ANSWER_BYTES, shared=SHARED_BYTES)

    def __call__(self) -> Connection:
        """The protocol of a new connection."""
        return Connection(self, loop=self._loop, **self._options)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take the connection, maybe in place of another, or close it."""
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        handler.line = transport
        certificate = transport.get_extra_info("peercert")
        handler.certified = self._protection.name(certificate) if certificate else None
        handler.end = end_of(certificate) if certificate else math.inf
        transport.set_write_buffer_limits(high=FREE_ANSWER_BYTES)
        self._open.add(handler)
        self._counters.connections = len(self._open)
        self._heads.wait(handler, self._loop.time())
        gone = self._places.take(handler)
        if gone is handler:
            self._counters.connections_refused += 1
            handler.force_close()
        elif gone is not None:
            self._counters.connections_evicted += 1
            _cut(gone)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Give the place to another."""
        super().connection_lost(handler, exc)
        assert isinstance(handler, Connection)
        self._open.discard(handler)
        self._counters.connections = len(self._open)
        self._places.leave(handler)
        self._heads.end(handler)
        self._unread.end(handler)
        self._request_bytes.drop(handler)
        self._answer_bytes.drop(handler)

    def request_grew(self, connection: Connection, count: int) -> None:
        """So many bytes of requests of `connection` may be in memory."""
        if connection.line.is_closing():
            return  # Its handler may still end after it did.
        for gone in self._request_bytes.hold(connection, count):
            self._cut_for("memory", gone)

    def answer_grew(self, connection: Connection, count: int) -> None:
        """So many bytes of answers wait for the other side of `connection` to read."""
        for gone in self._answer_bytes.hold(connection, count):
            self._cut_for("memory", gone)

    def answer_was_read(self, connection: Connection) -> None:
        """Hardly anything waits."""
        self._answer_bytes.drop(connection)

    async def answer(self, connection: Connection, request: HttpRequest) -> HttpResponse:
        """The answer to a request. Raises nothing but when it is cancelled."""
        answer = await self._dispatch(request)
        if answer.denied is not None:
            self._denied(connection.remote, request, answer)
        return answer

    async def answer_whole(self, connection: Connection, request: HttpRequest) -> HttpResponse:
        """The same for a request that aiohttp has not seen; its body is there."""
        self._heads.end(connection)
        self._places.set_busy(connection)
        try:
            return await self.answer(connection, request)
        finally:
            self._places.set_idle(connection)

    def ends(self, connection: Connection) -> bool:
        """Whether the certificate of `connection` has ended, and so ends it."""
        if connection.end == math.inf or connection.end > self._protection.wall_clock():
            return False
        self._expire(connection)
        return True

    async def sweep_for_ever(self) -> None:
        """Cut what takes too long, each SWEEP_SECONDS, until cancelled: a first head, or the reading of answers.

        And close what was made with a certificate that has ended.
        """
        waiting = {"head": self._heads, "answer": self._unread}
        forgotten = self._loop.time()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._places.next_period()
            now = self._loop.time()
            if now - forgotten >= HEADS_SECONDS:
                self.known_heads.forget()
                forgotten = now
            await self._look_at_all(now, self._protection.wall_clock())
            await cut_overdue(waiting, self._cut_for, now)

    async def _look_at_all(self, now: float, wall: float) -> None:
        for number, connection in enumerate(tuple(self._open), start=1):
            if number % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if connection not in self._open:
                continue
            if connection.end <= wall and connection.waits:
                self._expire(connection)
                connection.force_close()
            if connection.line.get_write_buffer_size():
                self._unread.wait(connection, now)
            else:
                self._unread.end(connection)

    def _expire(self, connection: Connection) -> None:
        connection.end = math.inf
        self._counters.connections_cut[EXPIRED] += 1

    def _cut_for(self, reason: str, connection: Connection) -> None:
        self._counters.connections_cut[reason] += 1
        _cut(connection)

    def _whole(self, request: web.BaseRequest) -> None:
        connection = request.protocol
        assert isinstance(connection, Connection)
        self._places.set_busy(connection)

    def _watched(self, handler: Handler) -> Handler:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            connection = request.protocol
            assert isinstance(connection, Connection)
            self._heads.end(connection)
            try:
                answer = await handler(request)
                if self.ends(connection):
                    answer.force_close()
                return answer
            finally:
                self._places.set_idle(connection)
                connection.answered(request)

        return handle


def _cut(connection: Connection) -> None:
    # A close would wait until a caller that reads nothing has taken what was sent.
    connection.line.abort()
