"""A proxy before a ZooKeeper server that can lose the acknowledgement of a write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

SET_DATA: Final = (5).to_bytes(4, "big")
"""`OpCode.setData`; a request is length, xid, opcode (4 bytes each) and the rest."""


class CuttingProxy:
    """Passes bytes on. `cut_writes`: what follows a setData request from the server is dropped, with the connection.

    `writes`: how many setData requests were passed on.
    """

    def __init__(self, server: str) -> None:
        self._host, _, port = server.rpartition(":")
        self._port = int(port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut_writes = False
        self.writes = 0
        self.address = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[CuttingProxy]:
        """Serve on a free port, `address`, until the end of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(to_client):
            server, to_server = await asyncio.open_connection(self._host, self._port)
            with contextlib.closing(to_server):
                await self._pass_on(client, to_client, server, to_server)

    async def _pass_on(
        self,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        cut = asyncio.Event()
        ways = [self._requests(client, to_server, cut), self._replies(server, to_client, cut)]
        ends = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _requests(
        self, client: asyncio.StreamReader, to_server: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = await client.readexactly(4)
                request = await client.readexactly(int.from_bytes(length, "big"))
                if request[4:8] == SET_DATA:
                    self.writes += 1
                    if self.cut_writes:
                        cut.set()
                to_server.write(length + request)

    async def _replies(self, server: asyncio.StreamReader, to_client: asyncio.StreamWriter, cut: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while reply := await server.read(65_536):
                if cut.is_set():
                    return
                to_client.write(reply)
