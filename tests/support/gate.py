"""A way to a server on loopback that can be shut: connections are cut then, and new ones end at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

CHUNK_BYTES: Final = 64 << 10


class Gate:
    """Passes bytes on to `target`, host:port, while it is `open`. `address`: where it listens."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.open = True
        self.address = ""
        self.turned_away = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Gate]:
        """Listen on a free port until the end of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await self.shut()

    async def shut(self) -> None:
        """Cut what is connected, and let nobody in."""
        self.open = False
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            if not self.open:
                self.turned_away += 1
                return
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            with contextlib.closing(far_writer):
                ways = [asyncio.ensure_future(_pass(*one)) for one in ((reader, far_writer), (far_reader, writer))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
