"""The control port of a node in Python: takes one JSON object a line and answers with one, in order.

The standard library alone: it runs where only the peer is installed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


async def serve_control(answer: Answer, port: int) -> asyncio.Server:
    """Listen on loopback; 0 for any free port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            try:
                reply = await answer(json.loads(line))
            except Exception as error:  # noqa: BLE001 - whatever the peer raises is a finding, and the caller prints it
                reply = {"error": f"{type(error).__name__}: {error}"}
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", port)
