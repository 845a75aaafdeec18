"""A cheap client of InitProducerId: claims as fast as answers come, or at a given pace, and keeps every ID.

It speaks version 4 without a transactional id, and does nothing but that. Requests and answers
have a fixed size, so a chunk of answers is unpacked in one call.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

CLIENT_ID: Final = b"pidkeeper-load"
CORRELATION_ID: Final = 0x70696421

MAX_IN_FLIGHT: Final = 512
"""Requests sent and unanswered on one connection; 512 of them are 27 KiB, which a socket buffer takes at once."""

ANSWER_BYTES: Final = 26

_LENGTH: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(f">hhih{len(CLIENT_ID)}sBBiqhB")
_CHECKED_HEAD: Final = struct.pack(">iiB", ANSWER_BYTES - 4, CORRELATION_ID, 0)
_ANSWERS: Final = [struct.Struct(">" + "13xhq3x" * count) for count in range(MAX_IN_FLIGHT + 1)]


def request_frame() -> bytes:
    """One InitProducerId v4 request (header v2), length field included: no transactional id, no former producer id."""
    payload = _REQUEST.pack(22, 4, CORRELATION_ID, len(CLIENT_ID), CLIENT_ID, 0, 0, 60_000, -1, -1, 0)
    return _LENGTH.pack(len(payload)) + payload


_FRAME: Final = request_frame()
_FRAMES: Final = _FRAME * MAX_IN_FLIGHT


class ClaimTally:
    """What one or more connections got. `errors` counts by Kafka's code; `longest_gap` is in seconds.

    A gap is the time between two answers with an ID, on whichever of the connections; the time before the first one
    does not count.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.ids: array[int] = array("q")
        self.errors: Counter[int] = Counter()
        self.longest_gap = 0.0
        self.lost_connections = 0
        self._last_success: float | None = None

    @property
    def claims(self) -> int:
        """IDs received."""
        return len(self.ids)

    def take(self, answers: tuple[int, ...]) -> None:
        """Take error codes and ids in turn."""
        codes, ids = answers[::2], answers[1::2]
        if any(codes):
            self.errors.update(code for code in codes if code)
            ids = tuple(claimed for code, claimed in zip(codes, ids, strict=True) if not code)
            if not ids:
                return
        self.ids.extend(ids)
        now = self.clock()
        if self._last_success is not None and now - self._last_success > self.longest_gap:
            self.longest_gap = now - self._last_success
        self._last_success = now


class ClaimConnection(asyncio.Protocol):
    """One connection. With `repeat` each answer is followed by a new request: a closed loop of what `send` began.

    `closed` is done when the connection has ended. An answer that is not one of InitProducerId v4 ends it, with
    `failure` set.
    """

    _transport: asyncio.Transport

    def __init__(self, tally: ClaimTally, *, repeat: bool = False) -> None:
        self.tally = tally
        self.repeat = repeat
        self.outstanding = 0
        self.failure: str | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._partial = b""

    def send(self, count: int) -> int:
        """Send up to `count` requests, as many as MAX_IN_FLIGHT leaves room for; returns how many were sent."""
        count = min(count, MAX_IN_FLIGHT - self.outstanding)
        if count <= 0 or self._transport.is_closing():
            return 0
        self.outstanding += count
        self._transport.write(_FRAMES[: count * len(_FRAME)])
        return count

    def close(self) -> None:
        """End the connection; requests that are unanswered stay so."""
        # Over TLS a close waits for the other side, which may stand still.
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.tally.lost_connections += exc is not None or self.outstanding > 0
        if not self.closed.done():
            self.closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._partial:
            data = self._partial + data
        count, rest = divmod(len(data), ANSWER_BYTES)
        if count == 0:
            self._partial = data
            return
        self._partial = data[-rest:] if rest else b""
        last = (count - 1) * ANSWER_BYTES
        # All frames are of one size, so a stray one moves all after it: the last one tells.
        if count > self.outstanding or not (data.startswith(_CHECKED_HEAD) and data.startswith(_CHECKED_HEAD, last)):
            self.failure = f"not answers of InitProducerId v4: {data[:ANSWER_BYTES].hex()}"
            self._transport.abort()
            return
        self.outstanding -= count
        self.tally.take(_ANSWERS[count].unpack_from(data))
        if self.repeat:
            self.send(count)


async def connect(
    address: str, tally: ClaimTally, *, repeat: bool = False, context: ssl.SSLContext | None = None
) -> ClaimConnection:
    """Connect to `host:port`; with a `context` over TLS. Raises OSError."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: ClaimConnection(tally, repeat=repeat), host, int(port), ssl=context
    )
    return connection
