"""How many connections one server holds, and who gives way when there are more."""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pidkeeper.service.metrics import ServerCounters

MAX_CONNECTIONS: Final = 8192
"""Open HTTP connections: two from each of the 4,000 brokers that the quotas of the controllers count with (a heartbeat
and a request for a block), and some for scrapers and operators. With a body of 64 KiB on each they hold 512 MiB."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def fitting_connections(*wanted: int, reserved: int) -> list[int]:
    """As many of the `wanted` connections of each listener as the soft limit of open files leaves room for.

    `reserved`: files that are needed for everything else. They come first, but for a quarter of the limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= sum(wanted) + reserved:
        return list(wanted)
    room = max(soft - reserved, soft // 4)
    return [max(1, one * room // sum(wanted)) for one in wanted]


class BoundedServer(web.Server):
    """Holds so many connections. For one more, the one that has been idle for longest gives way.

    So a flood of connections that ask for nothing, or never finish asking, keeps no probe and no broker out. Where all
    are busy, the new one is closed at once, unread. Both are counted.
    """

    def __init__(self, handler: Handler, counters: ServerCounters, limit: int, **options: Any) -> None:
        super().__init__(self._busy_in(handler), **options)
        self._counters = counters
        self._limit = limit
        # Without a request in progress; the one that has been so for longest comes first.
        self._idle: OrderedDict[RequestHandler, None] = OrderedDict()

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take the connection, maybe in place of another, or close it."""
        super().connection_made(handler, transport)
        self._counters.connections += 1
        if self._counters.connections > self._limit:
            self._make_room(handler)
        else:
            self._idle[handler] = None

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Give the place to another."""
        super().connection_lost(handler, exc)
        self._counters.connections -= 1
        self._idle.pop(handler, None)

    def _make_room(self, handler: RequestHandler) -> None:
        if not self._idle:
            self._counters.connections_refused += 1
            handler.force_close()
            return
        longest, _ = self._idle.popitem(last=False)
        self._counters.connections_evicted += 1
        if longest.transport is not None:
            # A close would wait until a caller that reads nothing has taken what was sent.
            longest.transport.abort()
        self._idle[handler] = None

    def _busy_in(self, handler: Handler) -> Handler:
        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            protocol = request.protocol
            self._idle.pop(protocol, None)
            try:
                return await handler(request)
            finally:
                if protocol.transport is not None:
                    self._idle[protocol] = None

        return handle
