"""One connection of a Kafka client: who it is, what it has asked, and when it is read from."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from typing import Any, Protocol, cast

from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.negotiation import Negotiation
from pidkeeper.service.kafka.wire.primitives import WireError

Respond = Callable[[bytes, Any], tuple[Any, int]]
"""The answers to what is complete at the front of some bytes, or the call that gives them, and how many bytes were
used. The second argument is whose bytes they are."""


class Host(Protocol):
    """What a connection takes from its listener, and tells it."""

    respond: Respond
    sweeps: int

    def admit(self, connection: Connection) -> bool: ...
    def caller(self, connection: Connection, principal: Principal) -> Any: ...
    def has_authenticated(self, mechanism: str) -> None: ...
    def refuse(self, connection: Connection, mechanism: str, why: str) -> None: ...
    def has_erred(self, connection: Connection, error: WireError, *, stranger: bool) -> None: ...
    def has_asked(self, connection: Connection) -> None: ...
    def await_request(self, connection: Connection) -> None: ...
    def request_came(self, connection: Connection) -> None: ...
    def holds_request(self, connection: Connection, count: int) -> None: ...
    def holds_answer(self, connection: Connection, count: int) -> None: ...
    def forget(self, connection: Connection) -> None: ...
    def begin(self, call: Any, done: Callable[[bytes | None], None]) -> None: ...


class Connection(asyncio.Protocol):
    """One client. `last_sweep` is the sweep before which it last sent a complete request; `known`: whether it ever did.

    `muted`: a call is under way for it. Until that is answered nothing else is, as in Kafka, so that
    no answer overtakes another one. `credential`: by what it is known who it is, if that is by SASL. `end`: of the
    client's certificate, in seconds since the epoch.
    """

    __slots__ = (
        "_caller",
        "_listener",
        "_negotiation",
        "_partial",
        "_partial_wants",
        "_paused",
        "_respond",
        "credential",
        "end",
        "known",
        "last_sweep",
        "muted",
        "transport",
    )

    transport: asyncio.Transport

    def __init__(self, listener: Host) -> None:
        self._listener = listener
        self._respond: Respond = listener.respond
        self._caller: Any = None
        self._negotiation: Negotiation | None = None
        self.credential: Hashable = None
        self.end = math.inf
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

    def negotiate(self, negotiation: Negotiation) -> None:
        """Serve it only once it is known who it is."""
        self._negotiation = negotiation
        self._respond = lambda data, _: negotiation.respond(data)

    def serve(self, principal: Principal) -> None:
        """Serve it from now on, as somebody."""
        self._negotiation = None
        self._respond = self._listener.respond
        self._caller = self._listener.caller(self, principal)

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

    def _mute(self, call: Any, rest: bytes) -> None:
        self.muted = True
        if rest:
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
            self._settle()
            self._go_on()

    def _go_on(self) -> None:
        """Read again, and answer what is here already, unless something still has to be waited for."""
        if self._paused or self.muted or self.transport.is_closing():
            return
        self.transport.resume_reading()
        if self._partial:
            self._answer(self._take_partial())

    def data_received(self, data: bytes) -> None:
        if self.muted:
            # Not before: most clients wait for their answer, and reading would be stopped and begun for each.
            self.transport.pause_reading()
            self._keep(data)
            return
        if self._partial:
            self._keep(data)
            if len(self._partial) < self._partial_wants:
                return
            data = self._take_partial()
        self._answer(data)

    def _settle(self) -> bool:
        """Serve it if it has become known who it is, and end it if that failed; whether it is served now."""
        negotiation = self._negotiation
        if negotiation is None:
            return False
        if negotiation.principal is not None:
            self.serve(negotiation.principal)
            self.credential = negotiation.credential
            if self.credential is not None:
                self._listener.has_authenticated(negotiation.mechanism)
            self._renew()
            return True
        if negotiation.refused is not None:
            self.muted = True
            self.transport.pause_reading()
            self._listener.refuse(self, negotiation.mechanism, negotiation.refused)
        return False

    def _keep(self, data: bytes) -> None:
        self._partial += data
        self._listener.holds_request(self, len(self._partial))

    def _take_partial(self) -> bytes:
        data = bytes(self._partial)
        self._partial.clear()
        self._listener.holds_request(self, 0)
        if self._negotiation is None:
            self._listener.request_came(self)
        return data

    def _renew(self) -> None:
        """It has asked, or was answered: it is alive. Who has not authenticated gets no more time than at first."""
        if self._negotiation is not None:
            return
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
                responses, used = self._respond(data, self._caller)
                if used:
                    self._renew()
                if not isinstance(responses, bytes):
                    self._mute(responses, data[used:])
                    return
                if responses:
                    self.transport.write(responses)
                if self._negotiation is not None and self._settle():
                    data = data[used:]
                    continue
                if used == len(data) or self.muted:
                    return
                data = data[used:]
                if used == 0 or self._paused:
                    break
        except WireError as error:
            self._listener.has_erred(self, error, stranger=self._negotiation is not None)
            self.transport.close()
            return
        self._partial_wants = 4 if len(data) < 4 else 4 + int.from_bytes(data[:4], "big")
        self._keep(data)
        if not self._paused:
            self._listener.await_request(self)
