"""A small application behind a listener of Kafka's protocol, whose calls a test answers by hand.

A frame is its length, the API key that says how it is answered, and a number that the answer repeats.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.wire.api_versions import no_features
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError

OVERLAPS: Final = 0
ALONE: Final = 1
AT_ONCE: Final = 2
MALFORMED: Final = 3
LONG_AT_ONCE: Final = 4
ANSWER_BYTES: Final = 8
MAX_LONG_BYTES: Final = 8 * 1024 * 1024
"""Longest frame of OVERLAPS, ALONE and LONG_AT_ONCE."""


def frame(number: int, key: int = OVERLAPS, size: int = 10) -> bytes:
    """A request of `size` bytes altogether."""
    return struct.pack(">ihi", size - 4, key, number) + bytes(size - 10)


def response(number: int) -> bytes:
    """The answer to that, of ANSWER_BYTES."""
    return struct.pack(">ii", 4, number)


class Transport:
    """One that takes everything, and reads nothing by itself."""

    def __init__(self) -> None:
        self.written = b""
        self.unread = 0
        self.reading = True

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        """Nobody is there."""

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, _: str) -> Any:
        return None


class Call(NamedTuple):
    """One that is under way. `size` of its frame."""

    number: int
    overlaps: bool
    size: int


class Calls:
    """An Application. `begun`: the numbers of all calls, in the order in which they came here."""

    served: Final[dict[int, Any]] = {}
    features: Final = staticmethod(no_features)

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.at_once: list[int] = []
        self.under_way: dict[int, asyncio.Future[bytes]] = {}
        self.held = 0
        self.most_held = 0

    def respond(self, data: bytes, _: Any) -> tuple[Any, int]:
        """The frame at the front."""
        if len(data) < 4:
            return b"", 0
        length = int.from_bytes(data[:4], "big")
        key = int.from_bytes(data[4:6], "big") if len(data) >= 6 else None
        if length > (MAX_LONG_BYTES if key in {None, OVERLAPS, ALONE, LONG_AT_ONCE} else MAX_FRAME_BYTES):
            raise WireError(f"a frame of {length} bytes with key {key}")
        if len(data) < 4 + length:
            return b"", 0
        if key == MALFORMED:
            raise WireError("malformed")
        number = int.from_bytes(data[6:10], "big")
        if key in {AT_ONCE, LONG_AT_ONCE}:
            self.at_once.append(number)
            return response(number), 4 + length
        return Call(number, key == OVERLAPS, 4 + length), 4 + length

    def caller(self, _: Principal, __: str, ___: Callable[[], bool], hold: Callable[[float], None]) -> None:
        """Nobody. `hold` is kept for whoever came last."""
        self.hold = hold

    def answer_soon(self, call: Call, done: Callable[[bytes | None], None]) -> bool:
        """Those of odd numbers are answered without a task."""
        self.begun.append(call.number)
        if call.number % 2 == 0:
            return False
        self._begin(call).add_done_callback(lambda answer: self._end(call, answer, done))
        return True

    async def answer(self, call: Call) -> bytes:
        """Once the test says so."""
        answer = self._begin(call)
        try:
            return await answer
        finally:
            self.held -= call.size

    def give(self, number: int, answer: bytes | None = None) -> None:
        """Answer a call that is under way."""
        self.under_way.pop(number).set_result(response(number) if answer is None else answer)

    def fail(self, number: int) -> None:
        """Break one."""
        self.under_way.pop(number).set_exception(AssertionError(f"call {number}"))

    def _begin(self, call: Call) -> asyncio.Future[bytes]:
        self.held += call.size
        self.most_held = max(self.most_held, self.held)
        answer = self.under_way[call.number] = asyncio.get_running_loop().create_future()
        return answer

    def _end(self, call: Call, answer: asyncio.Future[bytes], done: Callable[[bytes | None], None]) -> None:
        self.held -= call.size
        done(None if answer.exception() else answer.result())
