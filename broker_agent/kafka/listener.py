"""The Kafka listener: sockets, limits and back-pressure around the responder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.wire.primitives import WireError
from pidkeeper.service.listening import close_server

MAX_CONNECTIONS: Final = 4096
"""Connections at a time; for one more, one that asks for nothing gives way. One that sends and never reads
holds one chunk of requests (256 KiB in uvloop) and unsent responses (the 64 KiB at which writing pauses, and at most 64
+ 193 KiB more): 0.6 MiB, so 2.4 GiB should all of them do that. A well-behaved one holds next to nothing."""

IDLE_TIMEOUT_SECONDS: Final = 600.0
"""Kafka's `connections.max.idle.ms`. Only a complete request counts as life: trickled bytes do not."""

_SWEEPS_PER_TIMEOUT: Final = 4
"""An idle connection is closed between one timeout and 1.25 of it."""

_BACKLOG: Final = 1024
"""Connections that wait for accept: all clients of a dead agent come at once."""

_log = logging.getLogger(__name__)


class KafkaListener:
    """Listens on one address; counters are plain ints that the metrics read.

    `connections`, in the order in which they came. When there is one too many, the first of those gives way that never
    sent a complete request, else the one whose last is longest ago; where all are busy, the new one is closed.
    """

    respond: Callable[[bytes], tuple[bytes | TransactionalCall, int]]
    _ask: Callable[[TransactionalCall], Awaitable[bytes]]

    def __init__(
        self,
        *,
        max_connections: int = MAX_CONNECTIONS,
        idle_timeout: float = IDLE_TIMEOUT_SECONDS,
    ) -> None:
        self.max_connections = max_connections
        self.idle_timeout = idle_timeout
        # Dictionaries stand for sets that keep their order.
        self.connections: dict[_Connection, None] = {}
        self._strangers: dict[_Connection, None] = {}
        self.sweeps = 0
        self.accepted = 0
        self.refused = 0
        self.evicted = 0
        self.malformed = 0
        self.idle_closed = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address; returns the port, which differs from `port` where that is 0. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self), host, port, backlog=_BACKLOG, start_serving=False
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def serve(self, responder: KafkaResponder, ask: Callable[[TransactionalCall], Awaitable[bytes]]) -> None:
        """Accept connections and answer them from `responder`; `ask` gives the answer to what takes the controllers."""
        assert self._server is not None, "bind comes before serve"
        self.respond = responder.respond
        self._ask = ask
        await self._server.start_serving()
        self._timer = asyncio.get_running_loop().call_later(self.idle_timeout / _SWEEPS_PER_TIMEOUT, self._sweep)

    async def stop(self) -> None:
        """Accept no more and close every connection once its responses are sent. Calls under way get no answer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            await close_server(self._server)
        for connection in tuple(self.connections):
            connection.transport.close()
        for call in self._calls:
            call.cancel()
        # One turn of the loop lets the transports flush what fits in the socket buffers and report their end.
        await asyncio.sleep(0)

    def admit(self, connection: _Connection) -> bool:
        """Take a new connection, maybe in the place of another; whether it was taken."""
        if len(self.connections) >= self.max_connections and not self._make_room():
            self.refused += 1
            return False
        self.accepted += 1
        self.connections[connection] = self._strangers[connection] = None
        return True

    def introduce(self, connection: _Connection) -> None:
        """It has sent its first complete request."""
        self._strangers.pop(connection, None)

    def forget(self, connection: _Connection) -> None:
        """It has ended."""
        self.connections.pop(connection, None)
        self._strangers.pop(connection, None)

    def _make_room(self) -> bool:
        longest = next(iter(self._strangers), None)
        if longest is None:
            idle = (one for one in self.connections if not one.muted and one.last_sweep < self.sweeps)
            longest = min(idle, key=lambda one: one.last_sweep, default=None)
        if longest is None:
            return False
        self.evicted += 1
        self.forget(longest)
        # A close would wait until a client that reads nothing has taken what was sent.
        longest.transport.abort()
        return True

    def begin(self, call: TransactionalCall, done: Callable[[bytes | None], None]) -> None:
        """Put `call` to the controllers. `done` gets the answer, or None if there will be none."""
        task = asyncio.get_running_loop().create_task(self._call(call, done))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, call: TransactionalCall, done: Callable[[bytes | None], None]) -> None:
        answer = None
        try:
            answer = await self._ask(call)
        except Exception as error:  # noqa: BLE001 - the edge of the process: whatever broke, the connection must end
            report = {"message": f"API key {call.header.api_key} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
        finally:
            done(answer)

    def _sweep(self) -> None:
        self.sweeps += 1
        for connection in tuple(self.connections):
            if connection.muted:
                connection.last_sweep = self.sweeps
            if self.sweeps - connection.last_sweep > _SWEEPS_PER_TIMEOUT:
                self.idle_closed += 1
                connection.transport.close()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.idle_timeout / _SWEEPS_PER_TIMEOUT, self._sweep)


class _Connection(asyncio.Protocol):
    """One client. `last_sweep` is the sweep before which it last sent a complete request.

    `muted`: a call to the controllers is under way for it. Until that is answered nothing else is, as in Kafka, so that
    no answer overtakes another one.
    """

    __slots__ = (
        "_known",
        "_listener",
        "_partial",
        "_partial_wants",
        "_paused",
        "_respond",
        "last_sweep",
        "muted",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._respond = listener.respond
        self._partial = bytearray()
        self._partial_wants = 0
        self._paused = False
        self._known = False
        self.muted = False
        self.last_sweep = listener.sweeps

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods of asyncio.Transport without being one.
        self.transport = transport = cast("asyncio.Transport", transport)
        if not self._listener.admit(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.forget(self)

    def pause_writing(self) -> None:
        # A client that does not read its responses may not send more requests either.
        self._paused = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def _mute(self, call: TransactionalCall, rest: bytes) -> None:
        self.muted = True
        self._partial += rest
        self.transport.pause_reading()
        self._listener.begin(call, self._unmute)

    def _unmute(self, answer: bytes | None) -> None:
        self.muted = False
        if answer is None:
            self.transport.close()
        elif not self.transport.is_closing():
            self.last_sweep = self._listener.sweeps
            self.transport.write(answer)
            self._go_on()

    def _go_on(self) -> None:
        """Read again, and answer what is here already, unless something still has to be waited for."""
        if self._paused or self.muted or self.transport.is_closing():
            return
        self.transport.resume_reading()
        if self._partial:
            self._answer(self._take_partial())

    def data_received(self, data: bytes) -> None:
        if self._partial or self.muted:
            self._partial += data
            if self.muted or len(self._partial) < self._partial_wants:
                return
            data = self._take_partial()
        self._answer(data)

    def _take_partial(self) -> bytes:
        data = bytes(self._partial)
        self._partial.clear()
        return data

    def _answer(self, data: bytes) -> None:
        """Answer what is complete in `data` while responses can be sent, and keep the rest."""
        try:
            while True:
                responses, used = self._respond(data)
                if used and not self._known:
                    self._known = True
                    self._listener.introduce(self)
                if isinstance(responses, TransactionalCall):
                    self.last_sweep = self._listener.sweeps
                    self._mute(responses, data[used:])
                    return
                if responses:
                    self.last_sweep = self._listener.sweeps
                    self.transport.write(responses)
                if used == len(data):
                    return
                data = data[used:]
                if used == 0 or self._paused:
                    break
        except WireError as error:
            self._listener.malformed += 1
            _log.debug("closing %s: %s", self.transport.get_extra_info("peername"), error)
            self.transport.close()
            return
        self._partial_wants = 4 if len(data) < 4 else 4 + int.from_bytes(data[:4], "big")
        self._partial += data
