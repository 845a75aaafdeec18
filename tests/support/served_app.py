"""An app served on loopback, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp

from pidkeeper.service.app import App
from pidkeeper.service.server import HttpServer


@contextlib.asynccontextmanager
async def served(app: App) -> AsyncIterator[aiohttp.ClientSession]:
    """A session whose paths are those of `app`."""
    server = HttpServer(app)
    host, port = await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            yield session
    finally:
        await server.stop(1.0)
