"""When one connection of a Kafka client is read from, and what is kept of what came until it is answered."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.application import HEAD_BYTES
from pidkeeper.service.kafka.calls_in_order import CallsInOrder
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError

Respond = Callable[[bytes, Any], tuple[Any, int]]
"""The answers to what is complete at the front of some bytes, or the call that gives them, and how many bytes were
used. The second argument is whose bytes they are."""


class Host(Protocol):
    """What a connection takes from its listener, and tells it."""

    respond: Respond
    sweeps: int

    def admit(self, connection: Any) -> bool: ...
    def caller(self, connection: Any, principal: Principal) -> Any: ...
    def has_authenticated(self, mechanism: str) -> None: ...
    def refuse(self, connection: Any, mechanism: str, why: str) -> None: ...
    def has_erred(self, connection: Any, error: WireError, *, stranger: bool) -> None: ...
    def has_asked(self, connection: Any) -> None: ...
    def await_request(self, connection: Any) -> None: ...
    def request_came(self, connection: Any) -> None: ...
    def holds_request(self, connection: Any, count: int) -> None: ...
    def holds_answer(self, connection: Any, count: int) -> None: ...
    def forget(self, connection: Any) -> None: ...
    def begin(self, call: Any, done: Callable[[bytes | None], None]) -> None: ...
    def allocate(self, connection: Any, size: int, granted: Callable[[], None]) -> bool: ...
    def release(self, size: int) -> None: ...


class Intake(asyncio.Protocol):
    """The reading side. `muted`: calls are under way for it, it waits for memory, or it is held. `alone`: a call that
    does not overlap is under way.

    `_partial` holds what came and is not answered, `_partial_wants` how long it has to be before it is worth a look.
    `_granted` are the bytes that were granted to the long request which comes in, `_front` those of one that came and
    has not begun. `_calls` are those that overlap, and `_deferred` is what follows once they are answered, `_kept_back`
    how many bytes of an answer that is.
    """

    __slots__ = (
        "_calls",
        "_deferred",
        "_front",
        "_granted",
        "_held",
        "_held_until",
        "_kept_back",
        "_listener",
        "_partial",
        "_partial_wants",
        "_paused",
        "_seen",
        "_waits",
        "alone",
        "muted",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, listener: Host) -> None:
        self._listener = listener
        self._partial = bytearray()
        self._partial_wants = 0
        self._granted = 0
        self._front = 0
        self._seen = 0
        self._kept_back = 0
        self._held: asyncio.TimerHandle | None = None
        self._held_until = 0.0
        self._waits = False
        self._paused = False
        self._calls = CallsInOrder()
        self._deferred: Callable[[], None] | None = None
        self.alone = False
        self.muted = False

    @abstractmethod
    def _answer(self, data: bytes) -> None:
        """Answer what is complete in `data`, where no call is under way, and keep the rest."""

    @abstractmethod
    def _begin(self, data: bytes) -> None:
        """As `_answer`, behind calls that are under way."""

    @abstractmethod
    def _took(self) -> None:
        """What was kept may be whole, and is not waited for."""

    def _may_begin(self) -> bool:
        """Whether the next request may be looked at though calls are under way."""
        if not self._calls.under_way or self._waits or self._held is not None:
            return False
        return self._deferred is None and not self._calls.full()

    def is_busy(self) -> bool:
        """Whether it waits for the listener. One that is held does not: it gives way to those who ask."""
        return self.muted and (self._held is None or self.alone or self._waits or bool(self._calls.under_way))

    def _stays_muted(self) -> bool:
        """Whether anything is left for which it was muted."""
        return self.alone or self._waits or self._held is not None or bool(self._calls.under_way)

    @property
    def held(self) -> bool:
        """Whether it is not read from for a while."""
        return self._held is not None

    def hold(self, seconds: float) -> None:
        """Read nothing and begin nothing for so long, or for longer if it is held already (KIP-219)."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self.transport.is_closing() or (self._held is not None and until <= self._held_until):
            return
        if self._held is not None:
            self._held.cancel()
        self._held, self._held_until = loop.call_at(until, self._let_go), until
        self.muted = True
        self.transport.pause_reading()

    def _let_go(self) -> None:
        self._held = None
        self.muted = self._stays_muted()
        self._go_on()

    def gathers(self) -> bool:
        """Whether a long request comes in, which has its memory."""
        return self._granted > 0

    def goes_on(self, least: float) -> bool:
        """Whether a long request comes in, and has grown by so many bytes since that was asked last, or it began."""
        grown = len(self._partial) - self._seen
        self._seen = len(self._partial)
        return self._granted > 0 and grown >= least

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.forget(self)
        self._partial.clear()
        self._deferred = None
        if self._held is not None:
            self._held.cancel()
            self._held = None
        if self._granted:
            self._listener.release(self._granted)
            self._granted = 0
        self._release_front()

    def pause_writing(self) -> None:
        # A client that does not read its responses may not send more requests either.
        self._paused = True
        self.transport.pause_reading()
        self._listener.holds_answer(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._paused = False
        self._listener.holds_answer(self, 0)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        if self.muted:
            self._receive_muted(data)
        elif self._partial:
            self._keep(data)
            if len(self._partial) >= self._partial_wants:
                self._answer_kept()
        else:
            self._answer(data)

    def _receive_muted(self, data: bytes) -> None:
        if not self._may_begin():
            # Not before: most clients wait for their answer, and reading would be stopped and begun for each.
            self.transport.pause_reading()
            self._keep(data)
        elif self._partial:
            self._keep(data)
            if len(self._partial) >= self._partial_wants:
                self._answer_kept()
        else:
            self._begin(data)

    def _go_on(self) -> None:
        """Read again, and answer what is here already, unless something still has to be waited for."""
        if self._paused or self.transport.is_closing() or (self.muted and not self._may_begin()):
            return
        self.transport.resume_reading()
        if self._partial and len(self._partial) >= self._partial_wants:
            self._answer_kept()

    def _answer_kept(self) -> None:
        data = self._take_partial()
        if self.muted:
            self._begin(data)
        else:
            self._answer(data)
        if self._front and self._deferred is None:
            self._release_front()
        if self._partial and not self._partial_wants:
            self._go_on()

    def _take_partial(self) -> bytes:
        kept = self._partial
        if self._granted:
            # A long frame by itself: it is copied no more, and what keeps a part of it keeps nothing else.
            size, self._front = self._partial_wants, self._granted
            self._granted = 0
            data = bytes(memoryview(kept)[:size])
            self._partial = kept[size:]
        else:
            data = bytes(kept)
            kept.clear()
        self._partial_wants = 0
        self._listener.holds_request(self, len(self._partial))
        self._took()
        return data

    def _keep(self, data: bytes) -> None:
        self._partial += data
        # While a long request comes in there is less than was granted, and nothing is kept back.
        self._listener.holds_request(self, len(self._partial) - self._granted + self._kept_back)

    def _hold_back(self, data: bytes) -> None:
        """Keep what may not be looked at yet."""
        self._keep(data)
        self.transport.pause_reading()

    def _await_rest(self, data: bytes) -> None:
        """Keep the beginning of a request until it is whole. A long one goes on once it has its memory."""
        self._keep(data)
        if self._paused:
            return
        if len(data) < HEAD_BYTES:
            self._partial_wants = 4 if len(data) < 4 else min(HEAD_BYTES, 4 + int.from_bytes(data[:4], "big"))
        else:
            self._partial_wants = 4 + int.from_bytes(data[:4], "big")
        if self._partial_wants <= 4 + MAX_FRAME_BYTES:
            self._listener.await_request(self)
        elif self._listener.allocate(self, self._partial_wants, self._gather):
            self._gather_on()
        else:
            self._wait()

    def _gather(self) -> None:
        """A long request was granted its memory after a while."""
        self._waits = False
        if self.transport.is_closing():
            self._listener.release(self._partial_wants)
            return
        self.muted = self._stays_muted()
        self._gather_on()
        self._go_on()

    def _gather_on(self) -> None:
        self._granted = self._partial_wants
        self._seen = len(self._partial)
        # It counts there no more.
        self._keep(b"")
        self._listener.await_request(self)

    def _wait(self) -> None:
        """Read nothing and begin nothing until there is memory for what came last."""
        self.muted = self._waits = True
        self.transport.pause_reading()
        self._listener.request_came(self)

    def _release_front(self) -> None:
        if self._front:
            size, self._front = self._front, 0
            self._listener.release(size)
