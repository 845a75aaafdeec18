"""How many connections one server holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pidkeeper.service.metrics import ServerCounters

MAX_CONNECTIONS: Final = 8192
"""Open HTTP connections: two from each of the 4,000 brokers that the quotas of the controllers count with (a heartbeat
and a request for a block), and some for scrapers and operators. With a body of 64 KiB on each they hold 512 MiB."""


class BoundedServer(web.Server):
    """Closes a connection above the limit at once, unread, and counts it."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        counters: ServerCounters,
        limit: int,
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self._counters = counters
        self._limit = limit

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take the connection, or close it."""
        super().connection_made(handler, transport)
        self._counters.connections += 1
        if self._counters.connections > self._limit:
            self._counters.connections_refused += 1
            handler.force_close()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Give the place to another."""
        super().connection_lost(handler, exc)
        self._counters.connections -= 1
