"""A listener of Kafka's protocol: sockets, limits and back-pressure around what answers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from pidkeeper.service.access import ANONYMOUS, Access, Principal
from pidkeeper.service.certified import end_of
from pidkeeper.service.complaints import Complaints
from pidkeeper.service.hung_up import has_hung_up
from pidkeeper.service.kafka.application import Application
from pidkeeper.service.kafka.connection import Connection
from pidkeeper.service.kafka.intake import Respond
from pidkeeper.service.kafka.mechanisms import Mechanisms
from pidkeeper.service.kafka.memory_pool import POOL_BYTES, MemoryPool
from pidkeeper.service.kafka.negotiation import Negotiation, PasswordCall
from pidkeeper.service.kafka.wire.primitives import WireError
from pidkeeper.service.listening import Listener
from pidkeeper.service.metrics import CUT_REASONS, EXPIRED
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
asks for the versions at once. A request of 64 KiB comes at 2 KiB/s in that time. A longer one goes on for as long as it
comes at FAIR_BYTES_PER_SECOND, on the average of each such time."""

FAIR_BYTES_PER_SECOND: Final = 64 * 1024
"""At which 8 MiB take 128 s. A producer whose request comes slower than that gives up by itself: Java's
`delivery.timeout.ms` is 120 s. Whoever is slow on purpose holds the memory of its request no longer."""

ANSWER_SECONDS: Final = 30.0
"""How long some bytes of answers may wait for a client to read."""

FREE_REQUEST_BYTES: Final = 8 * 1024
"""Bytes of unanswered requests that every connection may hold; those of clients without transactions take 300."""

FREE_ANSWER_BYTES: Final = 64 * 1024
"""Unread bytes of answers that every connection may hold. Above that, it is not read from: a client that sends and
never reads makes at most 64 + 193 KiB more of them."""

SHARED_BYTES: Final = 64 * 1024 * 1024
"""What all connections hold above that, once for requests and once for answers: 250 clients that do not read and sent a
chunk of 256 KiB each. Whoever has held more for longest is cut, since what came is in memory already. Long requests
and those of overlapping calls are in POOL_BYTES instead: their readers are paused. So 4096 connections hold at most
4096 x (8 + 64) KiB + 3 x 64 MiB = 480 MiB, a chunk, and one long request while it is copied."""

REFUSAL_SECONDS: Final = 0.1
"""How long whoever could not authenticate waits for the end, so that it does not come again at once: Kafka's
`connection.failed.authentication.delay.ms`."""

REVOKED: Final = "revoked"
"""Why a connection is cut whose client is not known any more by what it showed."""

_SWEEP_SECONDS: Final = 1.0
"""Between two looks for connections that take too long; less for a short idle timeout."""

_SWEEPS_PER_TIMEOUT: Final = 4
"""At least: an idle connection is closed between one timeout and 1.25 of it."""

_BACKLOG: Final = 1024
"""Connections that wait for accept: all clients of a dead agent come at once."""

_log = logging.getLogger(__name__)


class KafkaListener:
    """Listens on one address; counters are plain ints that the metrics read. `protection`: whether over TLS, and
    whether clients must have a name. `role`: what one that shows who it is must have. `sasl`: how it does, if not by a
    certificate; where it is offered, whoever has no certificate must take it. `anybody`: who a client is that shows
    nothing, and need not.

    `connections`, in the order in which they came. When there is one too many, one gives way as in Places, where
    whoever has asked since the last sweep is busy. `pool`: the memory of long requests and of calls that overlap.
    """

    respond: Respond
    _application: Application

    def __init__(
        self,
        role: Access,
        *,
        max_connections: int = MAX_CONNECTIONS,
        idle_timeout: float = IDLE_TIMEOUT_SECONDS,
        protection: Protection = UNPROTECTED,
        sasl: Mechanisms | None = None,
        anybody: Principal = ANONYMOUS,
    ) -> None:
        self.max_connections = max_connections
        self.idle_timeout = idle_timeout
        self._sweep_seconds = min(_SWEEP_SECONDS, idle_timeout / _SWEEPS_PER_TIMEOUT)
        # A dictionary stands for a set that keeps its order.
        self.connections: dict[Connection, None] = {}
        self._places: Places[Connection] = Places(max_connections)
        self._requests: Patience[Connection] = Patience(REQUEST_SECONDS)
        self._unread: Patience[Connection] = Patience(ANSWER_SECONDS)
        self._request_bytes: SharedBytes[Connection] = SharedBytes(free=FREE_REQUEST_BYTES, shared=SHARED_BYTES)
        self._answer_bytes: SharedBytes[Connection] = SharedBytes(free=FREE_ANSWER_BYTES, shared=SHARED_BYTES)
        self.pool: MemoryPool[Connection] = MemoryPool(POOL_BYTES)
        self._fair_bytes = FAIR_BYTES_PER_SECOND * REQUEST_SECONDS
        self.sweeps = 0
        self.accepted = 0
        self.refused = 0
        self.evicted = 0
        self.malformed = 0
        self.idle_closed = 0
        self.cut = Counter(dict.fromkeys((*CUT_REASONS, REVOKED), 0))
        self.authentications: Counter[tuple[str, str]] = Counter()
        self._calls: set[asyncio.Task[None]] = set()
        self._protection = protection
        self._role = role
        self._sasl = sasl
        self._anybody = anybody
        # A check takes milliseconds. More at a time would leave none of the machine to those who are let in.
        self._checkers = ThreadPoolExecutor(1, "password")
        self._complaints = Complaints()
        certificates = protection.required and sasl is None
        self._listener = Listener(
            lambda: Connection(self),
            context=protection.context(lambda each: each.members if certificates else each.listener),
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

    async def serve(self, application: Application) -> None:
        """Accept connections, and have them answered."""
        self.respond = application.respond
        self._application = application
        await self._listener.serve()
        self._sweeper = asyncio.create_task(self._sweep_for_ever())

    async def stop(self) -> None:
        """Accept no more and close every connection once its responses are sent. Calls under way get no answer."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self._listener.close()
        self._checkers.shutdown(wait=False, cancel_futures=True)
        for connection in tuple(self.connections):
            connection.send_answers()
            connection.transport.close()
        for call in self._calls:
            call.cancel()
        # One turn of the loop lets the transports flush what fits in the socket buffers and report their end.
        await asyncio.sleep(0)

    def admit(self, connection: Connection) -> bool:
        """Take a new connection, maybe in the place of another; whether it was taken."""
        certified = self._certified(connection)
        if self._sasl is None and self._protection.required and certified is None:
            self.handshakes_failed[f"no {self._role.value}"] += 1
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
        if self._sasl is None:
            connection.serve(certified or self._anybody)
        else:
            encrypted = connection.transport.get_extra_info("sslcontext") is not None
            served, features = self._application.served, self._application.features
            connection.negotiate(
                Negotiation(self._sasl, served, encrypted=encrypted, certified=certified, features=features)
            )
        return True

    def _certified(self, connection: Connection) -> Principal | None:
        """Who shows a certificate that has the role."""
        transport = connection.transport
        certificate = None if self._protection.tls is None else transport.get_extra_info("peercert")
        if not certificate:
            return None
        connection.end = end_of(certificate)
        principal = self._protection.name(certificate)
        if self._role in principal.roles:
            return principal
        self._complaints.about(_host(transport), f"{principal.name} is refused: it has not the role {self._role.value}")
        return None

    def caller(self, connection: Connection, principal: Principal) -> Any:
        """Who asks by a connection, as what answers is told."""
        transport = connection.transport
        hung_up = partial(has_hung_up, transport)
        return self._application.caller(principal, _host(transport), hung_up, connection.hold)

    def has_authenticated(self, mechanism: str) -> None:
        """A client has shown who it is."""
        self.authentications[mechanism, "success"] += 1

    def refuse(self, connection: Connection, mechanism: str, why: str) -> None:
        """End a connection whose client could not show who it is."""
        self.authentications[mechanism, "failure"] += 1
        self._complaints.about(_host(connection.transport), f"a client is refused, {why}")
        asyncio.get_running_loop().call_later(REFUSAL_SECONDS, connection.transport.close)

    def has_erred(self, connection: Connection, error: WireError, *, stranger: bool) -> None:
        """It is closed for what it sent. `stranger`: before anybody knew who it is."""
        self.malformed += 1
        host = _host(connection.transport)
        if stranger:
            self._complaints.about(host, f"a client is refused, {error}")
        else:
            _log.debug("closing a connection from %s: %s", host, error)

    def has_asked(self, connection: Connection) -> None:
        """It has sent a complete request, the first one since the last sweep."""
        self._places.set_busy(connection)

    def await_request(self, connection: Connection) -> None:
        """A part of a request is there, or nothing at all since the connect."""
        self._requests.wait(connection, asyncio.get_running_loop().time())

    def request_came(self, connection: Connection) -> None:
        """What was waited for came."""
        self._requests.end(connection)

    def holds_request(self, connection: Connection, count: int) -> None:
        """So many bytes of requests that are not answered yet are kept for it beyond what was granted; less than none
        counts as none."""
        self._cut_for_memory(self._request_bytes.hold(connection, count))

    def holds_answer(self, connection: Connection, count: int) -> None:
        """So many bytes of answers wait for it to read; 0 once it has."""
        self._cut_for_memory(self._answer_bytes.hold(connection, count))

    def allocate(self, connection: Connection, size: int, granted: Callable[[], None]) -> bool:
        """Take memory for one request; whether it is there. If not, `granted` is called in a later turn of the event
        loop, unless the connection is lost before that."""
        return self.pool.allocate(connection, size, granted)

    def release(self, size: int) -> None:
        """Give that back."""
        if granted := self.pool.release(size):
            _call_soon(granted)

    def forget(self, connection: Connection) -> None:
        """It has ended."""
        self.connections.pop(connection, None)
        self._places.leave(connection)
        for waiting in (self._requests, self._unread):
            waiting.end(connection)
        for held in (self._request_bytes, self._answer_bytes):
            held.drop(connection)
        _call_soon(self.pool.forget(connection))

    def _cut_for_memory(self, connections: list[Connection]) -> None:
        for connection in connections:
            self._cut_for("memory", connection)

    def _cut_for(self, reason: str, connection: Connection) -> None:
        self.cut[reason] += 1
        _cut(connection)

    def begin(self, call: Any, done: Callable[[bytes | None], None]) -> None:
        """Have `call` answered. `done` gets the answer, or None if there will be none."""
        try:
            if not isinstance(call, PasswordCall) and self._application.answer_soon(call, done):
                return
        except Exception as error:  # noqa: BLE001 - the edge of the process: whatever broke, the connection must end
            _report(call, error)
            asyncio.get_running_loop().call_soon(done, None)
            return
        task = asyncio.get_running_loop().create_task(self._call(call, done))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _call(self, call: Any, done: Callable[[bytes | None], None]) -> None:
        answer = None
        try:
            if isinstance(call, PasswordCall):
                loop = asyncio.get_running_loop()
                answer = call.answer(await loop.run_in_executor(self._checkers, call.matches))
            else:
                answer = await self._application.answer(call)
        except Exception as error:  # noqa: BLE001 - the edge of the process: whatever broke, the connection must end
            _report(call, error)
        finally:
            done(answer)

    async def _sweep_for_ever(self) -> None:
        waiting = {"head": self._requests, "answer": self._unread}
        while True:
            await asyncio.sleep(self._sweep_seconds)
            self._sweep()
            await cut_overdue(waiting, self._cut_late, asyncio.get_running_loop().time())

    def _cut_late(self, reason: str, connection: Connection) -> None:
        if reason == "head" and connection.goes_on(self._fair_bytes):
            self.await_request(connection)
        else:
            self._cut_for(reason, connection)

    def _sweep(self) -> None:
        now, patience = asyncio.get_running_loop().time(), self.idle_timeout / self._sweep_seconds
        self.sweeps += 1
        self._places.next_period()
        revoked = [one for one in self.connections if one.credential is not None and not self._stands(one.credential)]
        for connection in revoked:
            self._cut_for(REVOKED, connection)
        self._close_expired()
        for connection in self.connections:
            if connection.is_busy() or connection.gathers():
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

    def _close_expired(self) -> None:
        """Connections end with the certificate that they were made with, once the calls under way are answered."""
        now = self._protection.wall_clock()
        for connection in self.connections:
            if connection.end <= now and connection.finish():
                connection.end = math.inf
                self.cut[EXPIRED] += 1

    def _stands(self, credential: Hashable) -> bool:
        return self._sasl is not None and self._sasl.stands(credential)


def _report(call: Any, error: Exception) -> None:
    report = {"message": f"a call of a client failed: {type(call).__name__}", "exception": error}
    asyncio.get_running_loop().call_exception_handler(report)


def _host(transport: asyncio.Transport) -> str:
    host, *_ = transport.get_extra_info("peername") or ("an unknown host",)
    return str(host)


def _cut(connection: Connection) -> None:
    # A close would wait until a client that reads nothing has taken what was sent.
    connection.transport.abort()


def _call_soon(granted: Iterable[Callable[[], None]]) -> None:
    for each in granted:
        asyncio.get_running_loop().call_soon(each)
