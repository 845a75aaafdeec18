"""One connection of a Kafka client: who it is, what it has asked, and in which order it is answered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, cast

from pidkeeper.service.access import Principal
from pidkeeper.service.kafka.calls_in_order import OverlappingCall
from pidkeeper.service.kafka.intake import Host, Intake, Respond
from pidkeeper.service.kafka.negotiation import Negotiation
from pidkeeper.service.kafka.wire.primitives import WireError


class Connection(Intake):
    """One client. `last_sweep` is the sweep before which it last sent a complete request; `known`: whether it ever did.

    A call that does not overlap is alone: until it is answered nothing else is, as in Kafka, so that no answer
    overtakes another one. Behind calls that overlap others of their kind begin; `_deferred` is what anything else
    waits with until those are answered. `_leaving` are answers that leave in the next turn of the event loop at the
    latest. `credential`: by what it is known who it is, if that is by SASL. `end`: of the
    client's certificate, in seconds since the epoch.
    """

    __slots__ = (
        "_caller",
        "_leaving",
        "_negotiation",
        "_respond",
        "credential",
        "end",
        "known",
        "last_sweep",
    )

    def __init__(self, listener: Host) -> None:
        super().__init__(listener)
        self._respond: Respond = listener.respond
        self._caller: Any = None
        self._negotiation: Negotiation | None = None
        self._leaving: list[bytes] = []
        self.credential: Hashable = None
        self.end = math.inf
        self.known = False
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

    def finish(self) -> bool:
        """Close it once what is under way is answered. False if it has to be asked for that again: a call that does
        not overlap is under way."""
        if self.alone:
            return False
        if not self._calls.under_way:
            self.transport.close()
        else:
            # Calls that overlap follow each other without a pause. So nothing else may begin.
            self._deferred = self.transport.close
        return True

    def _took(self) -> None:
        if self._negotiation is None:
            self._listener.request_came(self)

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

    def _answer(self, data: bytes) -> None:
        """Answer what is complete in `data` while responses can be sent, and keep the rest."""
        try:
            while True:
                responses, used = self._respond(data, self._caller)
                if used:
                    self._renew()
                if not isinstance(responses, bytes):
                    self._mute(responses, data, used)
                    return
                if responses:
                    self.transport.write(responses)
                if self._negotiation is not None and self._settle():
                    data = data[used:]
                    continue
                if used == len(data):
                    return
                if self.muted:
                    self._leave(data[used:])
                    return
                data = data[used:]
                if used == 0 or self._paused:
                    break
        except WireError as error:
            self._refuse(error)
            return
        self._await_rest(data)

    def _leave(self, data: bytes) -> None:
        """It is held or refused by what was answered. Who is refused is answered no more."""
        if self.held:
            self._hold_back(data)

    def _refuse(self, error: WireError) -> None:
        self._listener.has_erred(self, error, stranger=self._negotiation is not None)
        self.transport.close()

    def _mute(self, call: Any, data: bytes, used: int) -> None:
        self.muted = True
        if getattr(call, "overlaps", False):
            self._overlap(call, used)
            if used != len(data):
                self._begin(data[used:])
            return
        self.alone = True
        if used != len(data):
            self._hold_back(data[used:])
        self._listener.begin(call, self._with_front(self._unmute) if self._front else self._unmute)

    def _unmute(self, answer: bytes | None) -> None:
        self.alone = False
        self.muted = self._stays_muted()
        if answer is None:
            self.transport.close()
        elif not self.transport.is_closing():
            self._renew()
            self.transport.write(answer)
            self._settle()
            self._go_on()

    def _begin(self, data: bytes) -> None:
        """Begin what is complete in `data` while overlapping calls are under way, and keep the rest."""
        try:
            while data and self._may_begin() and not self._paused:
                response, used = self._respond(data, self._caller)
                if not used:
                    self._await_rest(data)
                    return
                self._renew()
                data = data[used:]
                if getattr(response, "overlaps", False):
                    self._overlap(response, used)
                else:
                    self._defer(response)
        except WireError as error:
            self._deferred = partial(self._refuse, error)
            return
        if data:
            self._hold_back(data)

    def _defer(self, response: Any) -> None:
        if isinstance(response, bytes):
            self._kept_back = len(response)
            self._keep(b"")
            self._deferred = partial(self._give, response)
        else:
            self._deferred = partial(self._mute, response, b"", 0)

    def _give(self, response: bytes) -> None:
        self._kept_back = 0
        self._keep(b"")
        self._release_front()
        self.muted = self._stays_muted()
        self.transport.write(response)
        self._go_on()

    def _overlap(self, call: Any, size: int) -> None:
        """Begin a call of `size` bytes, which has them until it is answered."""
        place = self._calls.begin()
        if self._front == size:
            self._front = 0
        elif not self._listener.allocate(self, size, partial(self._begin_late, call, place, size)):
            self._wait()
            return
        self._listener.begin(call, partial(self._answered, place, size))

    def _begin_late(self, call: Any, place: OverlappingCall, size: int) -> None:
        """It was granted its memory after a while."""
        self._waits = False
        if self.transport.is_closing():
            self._listener.release(size)
            return
        self._listener.begin(call, partial(self._answered, place, size))
        self._go_on()

    def _answered(self, place: OverlappingCall, size: int, answer: bytes | None) -> None:
        """One of the overlapping calls has ended."""
        leaving, failed = self._calls.end(place, answer)
        self._listener.release(size)
        if self.transport.is_closing():
            return
        if leaving:
            self._renew()
            if not self._leaving and self._calls.under_way:
                asyncio.get_running_loop().call_soon(self.send_answers)
            self._leaving += leaving
        if failed:
            self.send_answers()
            self.transport.close()
        elif self._calls.under_way:
            self._go_on()
        else:
            self.send_answers()
            self._drained()

    def send_answers(self) -> None:
        """Write the answers that have come. Not one by one: those of calls that waited for the same thing come in one
        turn of the event loop, and a client that is woken once sends its next requests together."""
        if not self._leaving or self.transport.is_closing():
            return
        answers, self._leaving = b"".join(self._leaving), []
        self.transport.write(answers)
        if self._paused:
            self._listener.holds_answer(self, self.transport.get_write_buffer_size())

    def _drained(self) -> None:
        """All that overlapped is answered. What had to wait for that comes next."""
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            deferred()
        else:
            self.muted = self._stays_muted()
            self._go_on()

    def _with_front(self, done: Callable[[bytes | None], None]) -> Callable[[bytes | None], None]:
        """As `done`, after which the long request that came last has given its memory back."""
        size, self._front = self._front, 0

        def release(answer: bytes | None) -> None:
            self._listener.release(size)
            done(answer)

        return release
