"""The listening socket of a service: start, and a stop that lets the requests in progress finish."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pidkeeper.service.complaints import Complaints
from pidkeeper.service.connections import KEEPALIVE_SECONDS, MAX_CONNECTIONS, BoundedServer
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.listening import Listener
from pidkeeper.service.metrics import ServerCounters
from pidkeeper.service.problems import quoted
from pidkeeper.service.process import ServiceError
from pidkeeper.service.protection import UNPROTECTED, Protection

LISTEN_BACKLOG: Final = 1024
"""Connections that wait to be accepted: every agent of a large cluster reconnects at once after a failover."""

LINGER_SECONDS: Final = 2.0
"""How long the rest of a refused body is read and dropped, so that its sender sees the refusal."""

CLEANUP_SECONDS: Final = 1.0
"""How long a connection that outlived the drain may take to end once its handler is cancelled."""

MAX_PORT: Final = 65_535

logger = logging.getLogger(__name__)


class ListenError(ServiceError):
    """The address cannot be listened on; the message says which and why."""


class Servable(Protocol):
    """What a server needs of an app: App, or a part of one."""

    @property
    def counters(self) -> ServerCounters:
        """Those of the server that serves it."""

    @property
    def dispatch(self) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
        """Answers a request."""

    def begin_drain(self) -> None:
        """The server is about to stop."""

    async def keep_up(self) -> None:
        """Runs beside the server, and is cancelled at its end."""


class HttpServer:
    """Serves one app on one address, with at most `max_connections` open. Start it once, stop it once.

    `protection`: whether over TLS, and whom certificates name.
    """

    def __init__(
        self, app: Servable, *, max_connections: int = MAX_CONNECTIONS, protection: Protection = UNPROTECTED
    ) -> None:
        self._app = app
        self._max_connections = max_connections
        self._protection = protection
        self._complaints = Complaints()
        self._runner: web.ServerRunner | None = None
        self._listener: Listener | None = None
        self._beside: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen on `host`:`port` (port 0: any free one) and give the address in use. Raises ListenError."""
        assert self._runner is None, "the server was started already"
        if not 0 <= port <= MAX_PORT:
            raise ListenError(f"cannot listen on {host}:{port}: a port is a number from 0 to {MAX_PORT}")
        server = self._make_server()
        runner = web.ServerRunner(server, shutdown_timeout=CLEANUP_SECONDS)
        await runner.setup()
        context = self._protection.context(lambda contexts: contexts.listener)
        listener = Listener(
            server,
            context=context,
            plaintext=not self._protection.required,
            handshakes=self._protection.handshakes,
            complaints=self._complaints,
        )
        try:
            bound = await listener.bind(host, port, backlog=LISTEN_BACKLOG)
        except OSError as error:
            await runner.cleanup()
            raise ListenError(f"cannot listen on {host}:{port}: {_reason(error)}") from error
        self._app.counters.handshake_failures = listener.failures
        self._runner, self._listener = runner, listener
        self._beside = [asyncio.create_task(self._app.keep_up()), asyncio.create_task(server.sweep_for_ever())]
        await listener.serve()
        return bound

    def begin_drain(self) -> None:
        """Turn `/readyz` to 503 while everything is still served: the first step of a stop."""
        self._app.begin_drain()

    async def stop(self, drain_seconds: float) -> None:
        """Stop accepting, give the requests in progress `drain_seconds` to finish, close every connection."""
        self.begin_drain()
        if self._runner is None or self._listener is None:
            return
        listener, self._listener = self._listener, None
        await listener.close()
        # One turn of the loop, so that requests already received are in progress when idle connections are closed.
        await asyncio.sleep(0)
        server = self._runner.server
        assert server is not None, "a started runner has a server"
        server.pre_shutdown()
        await server.shutdown(drain_seconds)
        await self._runner.cleanup()
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)

    def _make_server(self) -> BoundedServer:
        # The parser hands out compressed bodies as they are: nothing here inflates a caller's bytes.
        return BoundedServer(
            self._app.dispatch,
            self._denied,
            self._app.counters,
            self._max_connections,
            self._protection,
            logger=_connection_logger(),
            access_log=None,
            auto_decompress=False,
            lingering_time=LINGER_SECONDS,
            keepalive_timeout=KEEPALIVE_SECONDS,
        )

    def _denied(self, host: str | None, request: HttpRequest, answer: HttpResponse) -> None:
        self._app.counters.requests_denied[answer.status] += 1
        refused = f"{request.method} {quoted(request.url.path)} is refused: {answer.denied}"
        self._complaints.about(host or "an unknown host", refused)


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop the process that holds it, or choose another port"
    return error.strerror or str(error)


def _connection_logger() -> logging.Logger:
    """A logger for faults of connections. Bytes that are no HTTP are the caller's fault: answered (400), not logged."""
    connection_logger = logger.getChild("connection")
    connection_logger.addFilter(_is_own_fault)
    return connection_logger


def _is_own_fault(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
