"""The Kafka listener: sockets, limits and back-pressure around the responder."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, cast

from pidkeeper.broker_agent.kafka.dispatch import TransactionalCall
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.wire.primitives import WireError
from pidkeeper.service.access import Access
from pidkeeper.service.complaints import Complaints
from pidkeeper.service.listening import Listener
from pidkeeper.service.metrics import CUT_REASONS
from pidkeeper.service.patience import Patience, cut_overdue
from pidkeeper.service.places import Places
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.shared_bytes import SharedBytes

MAX_CONNECTIONS: Final = 4096
"""Connections at a time; for one more, one that asks for nothing gives way."""

IDLE_TIMEOUT_SECONDS: Final = 600.0
"""Kafka's `connections.max.idle.ms`. Only a complete request counts as life: trickled bytes do not."""

REQUEST_SECONDS: Final = 30.0
"""How long a request may take to come in, from its first byte on; the first one from the connect on, for every client
asks for the versions at once. A request of 64 KiB comes at 2 KiB/s in that time."""

ANSWER_SECONDS: Final = 30.0
"""How long some bytes of answers may wait for a client to read."""

FREE_REQUEST_BYTES: Final = 8 * 1024
"""Bytes of unanswered requests that every connection may hold; those of clients without transactions take 300."""

FREE_ANSWER_BYTES: Final = 64 * 1024
"""Unread bytes of answers that every connection may hold. Above that, it is not read from: a client that sends and
never reads makes at most 64 + 193 KiB more of them."""

SHARED_BYTES: Final = 64 * 1024 * 1024
"""What all connections hold above that, once for requests and once for answers: 250 clients that do not read and sent a
chunk of 256 KiB each. So 4096 connections hold at most 4096 x (8 + 64) KiB + 2 x 64 MiB = 416 MiB, and a chunk."""

_SWEEP_SECONDS: Final = 1.0
"""Between two looks for connections that take too long; less for a short idle timeout."""

_SWEEPS_PER_TIMEOUT: Final = 4
"""At least: an idle connection is closed between one timeout and 1.25 of it."""

_BACKLOG: Final = 1024
"""Connections that wait for accept: all clients of a dead agent come at once."""

_log = logging.getLogger(__name__)


class KafkaListener:
    """Listens on one address; counters are plain ints that the metrics read. `protection`: whether over TLS, and
    whether clients must show a certificate.

    `connections`, in the order in which they came. When there is one too many, one gives way as in Places, where
    whoever has asked since the last sweep is busy.
    """

    respond: Callable[[bytes], tuple[bytes | TransactionalCall, int]]
    _ask: Callable[[TransactionalCall], Awaitable[bytes]]

    def __init__(
        self,
        *,
        max_connections: int = MAX_CONNECTIONS,
        idle_timeout: float = IDLE_TIMEOUT_SECONDS,
        protection: Protection = UNPROTECTED,
    ) -> None:
        self.max_connections = max_connections
        self.idle_timeout = idle_timeout
        self._sweep_seconds = min(_SWEEP_SECONDS, idle_timeout / _SWEEPS_PER_TIMEOUT)
        # A dictionary stands for a set that keeps its order.
        self.connections: dict[_Connection, None] = {}
        self._places: Places[_Connection] = Places(max_connections)
        self._requests: Patience[_Connection] = Patience(REQUEST_SECONDS)
        self._unread: Patience[_Connection] = Patience(ANSWER_SECONDS)
        self._request_bytes: SharedBytes[_Connection] = SharedBytes(free=FREE_REQUEST_BYTES, shared=SHARED_BYTES)
        self._answer_bytes: SharedBytes[_Connection] = SharedBytes(free=FREE_ANSWER_BYTES, shared=SHARED_BYTES)
        self.sweeps = 0
        self.accepted = 0
        self.refused = 0
        self.evicted = 0
        self.malformed = 0
        self.idle_closed = 0
        self.cut = Counter(dict.fromkeys(CUT_REASONS, 0))
        self._calls: set[asyncio.Task[None]] = set()
        self._protection = protection
        self._complaints = Complaints()
        self._listener = Listener(
            lambda: _Connection(self),
            context=protection.context(lambda each: each.members if protection.required else each.listener),
            plaintext=not protection.required,
            handshakes=protection.handshakes,
            complaints=self._complaints,
        )
        self.handshakes_failed: Final = self._listener.failures
        self._sweeper: asyncio.Task[None] | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address; returns the port, which differs from `port` where that is 0. Raises OSError."""
        _, bound = await self._listener.bind(host, port, backlog=_BACKLOG)
        return bound

    async def serve(self, responder: KafkaResponder, ask: Callable[[TransactionalCall], Awaitable[bytes]]) -> None:
        """Accept connections and answer them from `responder`; `ask` gives the answer to what takes the controllers."""
        self.respond = responder.respond
        self._ask = ask
        await self._listener.serve()
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    async def stop(self) -> None:
        """Accept no more and close every connection once its responses are sent. Calls under way get no answer."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._listener.close()
        for connection in tuple(self.connections):
            connection.transport.close()
        for call in self._calls:
            call.cancel()
        # One turn of the loop lets the transports flush what fits in the socket buffers and report their end.
        await asyncio.sleep(0)

    def admit(self, connection: _Connection) -> bool:
        """Take a new connection, maybe in the place of another; whether it was taken."""
        if self._protection.required and not self._is_producer(connection.transport):
            self.handshakes_failed["no producer"] += 1
            return False
        gone = self._places.take(connection)
        if gone is connection:
            self.refused += 1
            return False
        if gone is not None:
            self.evicted += 1
            # Its end is told only in a later turn of the event loop.
            self.forget(gone)
            _cut(gone)
        self.accepted += 1
        self.connections[connection] = None
        self.await_request(connection)
        return True

    def _is_producer(self, transport: asyncio.Transport) -> bool:
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return False
        principal = self._protection.name(certificate)
        if Access.PRODUCER in principal.roles:
            return True
        host, *_ = transport.get_extra_info("peername") or ("an unknown host",)
        self._complaints.about(str(host), f"{principal.name} is refused: it has not the role producer")
        return False

    def has_asked(self, connection: _Connection) -> None:
        """It has sent a complete request, the first one since the last sweep."""
        self._places.set_busy(connection)

    def await_request(self, connection: _Connection) -> None:
        """A part of a request is there, or nothing at all since the connect."""
        self._requests.wait(connection, asyncio.get_running_loop().time())

    def request_came(self, connection: _Connection) -> None:
        """What was waited for came."""
        self._requests.end(connection)

    def holds_request(self, connection: _Connection, count: int) -> None:
        """So many bytes of requests that are not answered yet are kept for it."""
        self._cut_for_memory(self._request_bytes.hold(connection, count))

    def holds_answer(self, connection: _Connection, count: int) -> None:
        """So many bytes of answers wait for it to read; 0 once it has."""
        self._cut_for_memory(self._answer_bytes.hold(connection, count))

    def forget(self, connection: _Connection) -> None:
        """It has ended."""
        self.connections.pop(connection, None)
        self._places.leave(connection)
        for waiting in (self._requests, self._unread):
            waiting.end(connection)
        for held in (self._request_bytes, self._answer_bytes):
            held.drop(connection)

    def _cut_for_memory(self, connections: list[_Connection]) -> None:
        for connection in connections:
            self._cut_for("memory", connection)

    def _cut_for(self, reason: str, connection: _Connection) -> None:
        self.cut[reason] += 1
        _cut(connection)

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

    async def _sweep_for_ever(self) -> None:
        waiting = {"head": self._requests, "answer": self._unread}
        while True:
            await asyncio.sleep(self._sweep_seconds)
            self._sweep()
            await cut_overdue(waiting, self._cut_for, asyncio.get_running_loop().time())

    def _sweep(self) -> None:
        now, patience = asyncio.get_running_loop().time(), self.idle_timeout / self._sweep_seconds
        self.sweeps += 1
        self._places.next_period()
        for connection in self.connections:
            if connection.muted:
                connection.last_sweep = self.sweeps
            elif connection.last_sweep == self.sweeps - 1 and connection.known:
                self._places.set_idle(connection)
            if connection.transport.get_write_buffer_size():
                self._unread.wait(connection, now)
            else:
                self._unread.end(connection)
            if self.sweeps - connection.last_sweep > patience and not connection.transport.is_closing():
                self.idle_closed += 1
                connection.transport.close()


def _cut(connection: _Connection) -> None:
    # A close would wait until a client that reads nothing has taken what was sent.
    connection.transport.abort()


class _Connection(asyncio.Protocol):
    """One client. `last_sweep` is the sweep before which it last sent a complete request; `known`: whether it ever did.

    `muted`: a call to the controllers is under way for it. Until that is answered nothing else is, as in Kafka, so that
    no answer overtakes another one.
    """

    __slots__ = (
        "_listener",
        "_partial",
        "_partial_wants",
        "_paused",
        "_respond",
        "known",
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
        self.known = False
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
        self._listener.holds_answer(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._paused = False
        self._listener.holds_answer(self, 0)
        self._go_on()

    def _mute(self, call: TransactionalCall, rest: bytes) -> None:
        self.muted = True
        self._keep(rest)
        self.transport.pause_reading()
        self._listener.begin(call, self._unmute)

    def _unmute(self, answer: bytes | None) -> None:
        self.muted = False
        if answer is None:
            self.transport.close()
        elif not self.transport.is_closing():
            self._renew()
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
            self._keep(data)
            if self.muted or len(self._partial) < self._partial_wants:
                return
            data = self._take_partial()
        self._answer(data)

    def _keep(self, data: bytes) -> None:
        self._partial += data
        self._listener.holds_request(self, len(self._partial))

    def _take_partial(self) -> bytes:
        data = bytes(self._partial)
        self._partial.clear()
        self._listener.holds_request(self, 0)
        self._listener.request_came(self)
        return data

    def _renew(self) -> None:
        """It has asked, or was answered: it is alive."""
        if not self.known:
            self.known = True
            self._listener.request_came(self)
            self._listener.has_asked(self)
        elif self.last_sweep != self._listener.sweeps:
            self._listener.has_asked(self)
        self.last_sweep = self._listener.sweeps

    def _answer(self, data: bytes) -> None:
        """Answer what is complete in `data` while responses can be sent, and keep the rest."""
        try:
            while True:
                responses, used = self._respond(data)
                if used:
                    self._renew()
                if isinstance(responses, TransactionalCall):
                    self._mute(responses, data[used:])
                    return
                if responses:
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
        self._keep(data)
        if not self._paused:
            self._listener.await_request(self)
