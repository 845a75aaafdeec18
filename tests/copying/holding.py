"""A way to a broker on which requests of clients are held, as a slow network may."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator
from typing import Final

from tests.support.hanging_up import cut, hang_up

HOST: Final = "127.0.0.1"
MAX_FRAME_BYTES: Final = 16 << 20
"""Longer than any request of those who come here: one that is longer ends its connection."""

_BEFORE_CLIENT_ID: Final = struct.Struct(">hhih")
"""Key, version, correlation id, and the length of the client id: the same in all versions of the header."""


class Hold:
    """Requests `key` of a client, of which each is held with what comes behind it on its connection.

    A client that gives one up sends it again, by another connection.
    """

    def __init__(self, client_id: str, key: int, loop: asyncio.AbstractEventLoop) -> None:
        self._asked = key, client_id.encode()
        self._loop = loop
        self._has_come = threading.Event()
        self._let_go = asyncio.Event()

    @property
    def has_come(self) -> bool:
        """Whether there was such a request."""
        return self._has_come.is_set()

    def let_go(self) -> None:
        """Pass on what is held, and hold no more."""
        self._loop.call_soon_threadsafe(self._let_go.set)

    async def wait(self, request: bytes) -> None:
        """Return when `request` may go on: at once, if it is another one."""
        key, _, _, length = _BEFORE_CLIENT_ID.unpack_from(request)
        client_id = request[_BEFORE_CLIENT_ID.size :][: max(0, length)]
        if (key, client_id) == self._asked:
            self._has_come.set()
            await self._let_go.wait()


class Holding:
    """Passes requests on to `target`, host:port, which is set before anybody comes; `address`: where it listens.

    It serves in a thread of its own, and its methods are for one other.
    """

    def __init__(self) -> None:
        self.address = ""
        self.target = ""
        self._loop = asyncio.new_event_loop()
        self._holds: tuple[Hold, ...] = ()

    @contextlib.contextmanager
    def serving(self) -> Iterator[Holding]:
        """Listen on a free port until the end of the block."""
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, HOST, 0))
        self.address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=self._loop.run_forever, name="holding")
        thread.start()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.run_until_complete(hang_up(server))
            self._loop.close()

    def hold(self, client_id: str, key: int) -> Hold:
        """Hold requests `key` of a client."""
        hold = Hold(client_id, key, self._loop)
        self._holds += (hold,)
        return hold

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # It ends with the client, the broker, or the front.
        with cut(writer), contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(*self.target.split(":"))
            with cut(far_writer):
                ways = [self._requests(reader, far_writer), _answers(far_reader, writer)]
                tasks = [asyncio.ensure_future(way) for way in ways]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = await reader.readexactly(4)
                if (size := int.from_bytes(length, "big")) > MAX_FRAME_BYTES:
                    return
                request = await reader.readexactly(size)
                for hold in self._holds:
                    await hold.wait(request)
                writer.write(length + request)
                await writer.drain()


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
