"""An address of a server that stays while the server is killed: who comes meanwhile waits, as for one that is slow."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from tests.support.hanging_up import cut, hang_up

HOST: Final = "127.0.0.1"
RETRY_SECONDS: Final = 0.05
READ_BYTES: Final = 65_536


class Front:
    """Listens at `address`, host:port, and passes bytes on to `server` and back. Whatever end closes, both are closed.

    Whoever connects while nobody listens at `server`, or before it is set, is passed on once somebody does.
    """

    def __init__(self) -> None:
        self.address = ""
        self.server: str | None = None
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._closing = asyncio.Event()

    def run(self) -> None:
        """Serve in this thread until closed."""
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._run())

    def wait_until_it_listens(self) -> None:
        self._listening.wait()

    def close(self) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._closing.set)

    async def _run(self) -> None:
        listener = await asyncio.start_server(self._serve, HOST, 0)
        host, port = listener.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        self._listening.set()
        await self._closing.wait()
        await hang_up(listener)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        with cut(to_client), contextlib.suppress(asyncio.CancelledError):
            server, to_server = await self._connect()
            with cut(to_server):
                ways = [asyncio.ensure_future(_pass_on(*way)) for way in ((client, to_server), (server, to_client))]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            if self.server is not None:
                host, _, port = self.server.rpartition(":")
                with contextlib.suppress(OSError):
                    return await asyncio.open_connection(host, int(port))
            await asyncio.sleep(RETRY_SECONDS)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            writer.write(data)
            await writer.drain()


@contextlib.contextmanager
def serving(count: int) -> Iterator[list[Front]]:
    """Fronts whose servers are still to be set."""
    fronts = [Front() for _ in range(count)]
    threads = [threading.Thread(target=front.run, daemon=True) for front in fronts]
    try:
        for front, thread in zip(fronts, threads, strict=True):
            thread.start()
            front.wait_until_it_listens()
        yield fronts
    finally:
        for front, thread in zip(fronts, threads, strict=True):
            front.close()
            thread.join()
