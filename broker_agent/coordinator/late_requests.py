"""Requests that may have waited here while their caller went elsewhere.

A client that gets no answer asks another agent, and works on with what that one says. Were its old request passed on
after all, the quorum would take it for a newer one: an InitProducerId fences the producer that sent it, and an EndTxn
ends a transaction that was begun since. Nothing in these requests tells old from new, so age is judged here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.service.pulse import Pulse

CALLER_HUNG_UP: Final = "CALLER_HUNG_UP"
AGENT_STOOD_STILL: Final = "AGENT_STOOD_STILL"

QUIET_SECONDS: Final = 10.0
"""From one line in the log to the next one: a machine in trouble stands still again and again."""

_log = logging.getLogger(__name__)


class LateRequestError(RequestError):
    """The request is not passed on. Whoever still waits comes again. `outcome`: as what it is counted."""

    def __init__(self, outcome: str, detail: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)
        self.outcome: Final = outcome


class LateRequests:
    """Refuses them. `clock`: seconds; it never goes back, and goes on while the machine is suspended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pulse = Pulse(clock)
        self._told = -math.inf
        self._left_out = 0

    def beat(self) -> None:
        """A timer of the event loop runs, as it does ten times a second."""
        seconds = self._pulse.beat()
        if not seconds:
            return
        now = self._clock()
        if now - self._told < QUIET_SECONDS:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        _log.warning(
            "this agent stood still for %.1f s%s: transactional requests from before are told to come again",
            seconds,
            more,
        )
        self._told, self._left_out = now, 0

    def refuse(self, caller: Caller) -> None:
        """Raise LateRequestError if a request of `caller` may be late."""
        if caller.has_hung_up():
            raise LateRequestError(CALLER_HUNG_UP, "the caller has closed its connection")
        if self._pulse.stood_still:
            raise LateRequestError(AGENT_STOOD_STILL, "this agent stood still, so this may be an old request")
