"""Server-sent events: who listens, how many may, and how far behind one may fall."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.exchange import HttpResponse
from pidkeeper.service.problems import SERVER_NAME

EVENT_STREAM: Final = "text/event-stream"

MAX_STREAMS: Final = 64
"""Streams at a time, each on a connection of its own: tens of people, of the 8192 connections that there are."""

MAX_BEHIND: Final = 64
"""Events that wait for one caller to read: six seconds, where there are ten in one."""

ALIVE_SECONDS: Final = 2.0
"""Between two signs of life, for a caller who hears nothing else and has to know that the stream still stands."""

STREAM_SECONDS: Final = 600.0
"""After this a stream ends, and its caller comes again: whose token was revoked meanwhile hears no more."""

FULL_RETRY_MS: Final = 5000
"""Wait asked of one caller too many."""

HEADERS: Final = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Server": SERVER_NAME,
}

_ALIVE: Final = b": alive\n\n"


class EventStreams:
    """All streams of a server. `cut`, `refused`: how many callers read too slowly, or were too many."""

    def __init__(self, *, limit: int = MAX_STREAMS, alive_seconds: float = ALIVE_SECONDS) -> None:
        self.cut = 0
        self.refused = 0
        self.alive_seconds: Final = alive_seconds
        self._limit = limit
        self._streams: set[EventStream] = set()
        self._over = False

    def __len__(self) -> int:
        return len(self._streams)

    def open(self) -> EventStream:
        """One more. Raises RequestError if there are too many, or if the server stops."""
        if self._over:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this server is shutting down; ask another one")
        if len(self._streams) >= self._limit:
            self.refused += 1
            detail = f"{self._limit} streams of events are open already, which is the limit; close one, or ask later"
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, detail, throttle_time_ms=FULL_RETRY_MS)
        stream = EventStream(self)
        self._streams.add(stream)
        return stream

    def tell(self, event: str, value: object) -> None:
        """Tell everybody who listens. It is encoded once."""
        if not self._streams:
            return
        part = b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(value))
        for stream in tuple(self._streams):
            stream.tell(part)

    def end(self) -> None:
        """The server stops: end every stream, and open no other."""
        self._over = True
        for stream in self._streams:
            stream.end()

    def forget(self, stream: EventStream) -> None:
        """It is closed."""
        self._streams.discard(stream)


class EventStream:
    """What is told to one caller. It reads `parts` once, and closes it."""

    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._over = False
        self._cut: Callable[[], None] = lambda: None

    def response(self) -> HttpResponse:
        """The answer that this stream is the rest of."""
        return HttpResponse(200, HEADERS, b"", told=self)

    def tell(self, part: bytes) -> None:
        """Have the caller told, or cut it off if too much waits for it already."""
        if len(self._waiting) >= MAX_BEHIND:
            self._streams.cut += 1
            self.close()
            self._cut()
            return
        self._waiting.append(part)
        self._news.set()

    def end(self) -> None:
        """End it once what waits is read."""
        self._over = True
        self._news.set()

    def close(self) -> None:
        """Nobody listens any more."""
        self._waiting.clear()
        self.end()
        self._streams.forget(self)

    async def parts(self, cut: Callable[[], None]) -> AsyncIterator[bytes]:
        """What is told, and signs of life between."""
        self._cut = cut
        clock = asyncio.get_running_loop().time
        ends = clock() + STREAM_SECONDS
        yield _ALIVE
        while self._waiting or (not self._over and clock() < ends):
            try:
                async with asyncio.timeout(self._streams.alive_seconds):
                    await self._news.wait()
            except TimeoutError:
                yield _ALIVE
            self._news.clear()
            if self._waiting:
                part = b"".join(self._waiting)
                self._waiting.clear()
                yield part
