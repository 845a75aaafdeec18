"""A small listener of its own for probes and metrics, which no crowd on the other listeners can fill."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.app import App
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.server import HttpServer, ListenError

PROBE_CONNECTIONS: Final = 64
"""Open connections to it: three probes, two scrapers, and tens of operators."""

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def probes_served(
    app: App, listen: HostPort | None, protection: Protection = UNPROTECTED
) -> AsyncIterator[HostPort | None]:
    """Serve the probes and metrics of `app` on `listen` meanwhile; None: nowhere but among its other calls.

    Gives the address in use. Raises ListenError that names the setting.
    """
    if listen is None:
        yield None
        return
    server = HttpServer(app.probes, max_connections=PROBE_CONNECTIONS, protection=protection)
    try:
        host, port = await server.start(listen.host, listen.port)
    except ListenError as error:
        raise ListenError(f"probe_listen: {error}") from None
    logger.info("probes and metrics on %s", HostPort(host, port))
    try:
        yield HostPort(host, port)
    finally:
        await server.stop(0.0)
