"""Whether a process stands still: stopped, swapped out, suspended with its machine, or kept busy by itself. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

STILL_SECONDS: Final = 1.0
"""Without a beat for so long, a process stood still. Far below what clients wait before they ask elsewhere (Java's and
kafka-python's `request.timeout.ms` 30 s, aiokafka's 40 s, librdkafka's 60 s), so whatever a client gave up on is older;
and ten beats, so that a collection of garbage or a busy machine is not taken for it."""

WARY_SECONDS: Final = 0.5
"""How long after that a request may be one that waited in a socket meanwhile. All ready sockets are read in the first
turns of the event loop, which take milliseconds."""


class Pulse:
    """Beats as often as a timer of the event loop runs. `clock`: seconds; it never goes back.

    Before the first beat nothing is said to stand still: nobody has promised another one.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = math.inf
        self._wary_until = -math.inf

    def beat(self) -> float:
        """Beat; for how many seconds it had stood still, 0.0 if it had not."""
        now = self._clock()
        since, self._last = now - self._last, now
        if since <= STILL_SECONDS:
            return 0.0
        self._wary_until = now + WARY_SECONDS
        return since

    @property
    def stood_still(self) -> bool:
        """Whether it did just now, so that what is read now may have waited for as long.

        Ready sockets may be read before the timer that is due, or after it where it stood still in between. So both
        count: that the last beat is long ago, and that it came late.
        """
        now = self._clock()
        return now - self._last > STILL_SECONDS or now < self._wary_until
