"""A listening socket, and what stands between it and the protocol of its connections: TLS, as far as it is spoken."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

from pidkeeper.service.complaints import Complaints

HANDSHAKE_SECONDS: Final = 10.0
"""How long a caller may take until its connection is one of TLS; it takes two round trips."""

MAX_HANDSHAKES: Final = 512
"""Callers that have not come so far. For one more the oldest is closed: it has had a turn of the event loop, and time
for two round trips unless as many come within them."""

ACCEPTS_AT_ONCE: Final = 8
"""Connections that are accepted in one turn of the event loop: those that give way are closed in the next ones."""

ACCEPT_PAUSE_SECONDS: Final = 0.5
"""After an accept that failed: the process has no file left."""

_TLS_RECORD: Final = b"\x16"
"""The first byte of a TLS handshake (RFC 8446, section 5.1). No request of ours starts so: where it is not a letter it
is of a length, of 352 MiB and more."""

_REASONS: Final = {
    "HTTP_REQUEST": "plaintext",
    "WRONG_VERSION_NUMBER": "plaintext",
    "UNSUPPORTED_PROTOCOL": "version",
    "NO_SHARED_CIPHER": "version",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "rejected by the caller",
    "SSLV3_ALERT_BAD_CERTIFICATE": "rejected by the caller",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "rejected by the caller",
}

logger = logging.getLogger(__name__)


class Listener:
    """Listens on one address, and gives each connection to a protocol that `protocol` makes.

    `context`: that of the next handshake; None where no TLS is spoken. `plaintext`: whether a connection may also begin
    without it; the first byte tells. `handshakes`: how many may be under way. `failures`: handshakes that came to
    nothing, by reason.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.Protocol],
        *,
        context: Callable[[], ssl.SSLContext] | None = None,
        plaintext: bool = True,
        handshakes: int = MAX_HANDSHAKES,
        complaints: Complaints | None = None,
    ) -> None:
        self.failures: Counter[str] = Counter()
        self._protocol = protocol
        self._context = context
        self._plaintext = plaintext
        self._most = handshakes
        self._complaints = complaints or Complaints()
        self._backlog = 0
        self._server: asyncio.Server | None = None
        self._listening: list[socket.socket] = []
        self._strangers: OrderedDict[asyncio.Task[bool], None] = OrderedDict()

    async def bind(self, host: str, port: int, *, backlog: int) -> tuple[str, int]:
        """Take the address; returns it, with the port that port 0 became. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._backlog = backlog
        self._server = await loop.create_server(self._protocol, host, port, backlog=backlog, start_serving=False)
        bound = self._server.sockets[0].getsockname()
        return str(bound[0]), int(bound[1])

    async def serve(self) -> None:
        """Accept connections from now on."""
        assert self._server is not None, "bind comes before serve"
        if self._context is None:
            await self._server.start_serving()
            return
        for listening in self._server.sockets:
            own = socket.socket(fileno=socket.dup(listening.fileno()))
            own.setblocking(False)
            own.listen(self._backlog)
            self._listening.append(own)
            self._resume(own)

    async def close(self) -> None:
        """Accept no more. What was accepted has been given to its protocol, or closed, when this returns."""
        loop = asyncio.get_running_loop()
        listening, self._listening = self._listening, []
        for own in listening:
            loop.remove_reader(own.fileno())
            own.close()
        for task in self._strangers:
            task.cancel()
        if self._strangers:
            await asyncio.wait(list(self._strangers))
        if self._server is not None:
            await close_server(self._server)

    def _resume(self, own: socket.socket) -> None:
        if own in self._listening:
            asyncio.get_running_loop().add_reader(own.fileno(), self._accept, own)

    def _accept(self, own: socket.socket) -> None:
        """Some that wait. Here and now, for what a task has accepted is lost if the task is cancelled."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = own.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                logger.warning("no connection can be accepted: %s", error.strerror)
                loop.remove_reader(own.fileno())
                loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume, own)
                return
            connection.setblocking(False)
            self._welcome(connection, str(address[0]))

    def _welcome(self, connection: socket.socket, host: str) -> None:
        if len(self._strangers) >= self._most:
            self._strangers.popitem(last=False)[0].cancel()
            self.failures["crowded"] += 1
        task = asyncio.create_task(self._hand_over(connection, host))
        self._strangers[task] = None

        def done(task: asyncio.Task[bool]) -> None:
            self._strangers.pop(task, None)
            # A task that is cancelled may never have begun. What else it raises is for the event loop to tell.
            given = False
            try:
                given = not task.cancelled() and task.result()
            finally:
                if not given:
                    connection.close()

        task.add_done_callback(done)

    async def _hand_over(self, connection: socket.socket, host: str) -> bool:
        """To the protocol, once TLS is spoken where it is to be; whether it has come so far."""
        assert self._context is not None, "without TLS the event loop accepts by itself"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                encrypted = not self._plaintext or await _begins_with_tls(connection)
                context = self._context() if encrypted else None
                await loop.connect_accepted_socket(self._protocol, connection, ssl=context)
                return True
        except TimeoutError:
            self.failures["timeout"] += 1
        except ssl.SSLError as error:
            self.failures[reason_of(error)] += 1
            self._complaints.about(host, f"no TLS with a caller: {_text_of(error)}")
        except OSError:
            self.failures["disconnect"] += 1
        return False


def reason_of(error: ssl.SSLError) -> str:
    """Why a handshake failed, in few words of a bounded number."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    return _REASONS.get(error.reason or "", "other")


def _text_of(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused, {error.verify_message}"
    if reason_of(error) == "plaintext":
        return "it speaks without TLS"
    return (error.reason or str(error)).lower().replace("_", " ")


async def _begins_with_tls(connection: socket.socket) -> bool:
    """Whether the first byte is that of a TLS handshake; it stays to be read. Raises ConnectionError at the end."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def has_come() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection.fileno(), has_come)
    try:
        await readable
    finally:
        loop.remove_reader(connection.fileno())
    first = connection.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionResetError("closed before it began")
    return first == _TLS_RECORD


async def close_server(server: asyncio.Server) -> None:
    """Accept no more. What was accepted has been given to its protocol when this returns.

    Closing alone would lose a connection that was accepted in the turn of the event loop before: Python drops it
    without closing it, and the peer waits until it is collected (seen with 3.11).
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()
