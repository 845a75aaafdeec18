"""One quota of one principal: what it has used and not yet paid off, and how long that keeps it waiting. Pure.

As in Kafka, what a client sent is taken, and what exceeds the quota makes the client wait afterwards (KIP-13). Times
are integer nanoseconds of a monotonic clock and given by the caller, rates integer units a second, so the arithmetic
is exact: whoever asks only while it owes nothing gets in any span of t seconds at most
`rate * BURST_SECONDS + rate * t` units, and what its last request goes beyond that.
"""

from __future__ import annotations

from typing import Final

NANOSECONDS: Final = 1_000_000_000

BURST_SECONDS: Final = 1
"""What may be used at once, in seconds of the rate. Kafka averages over ten, so its clients may use ten at once, and
wait for as long."""

MAX_THROTTLE_SECONDS: Final = 11
"""The longest wait, and the most that is owed: eleven windows of a second are what Kafka looks back at
(`quota.window.num`, `quota.window.size.seconds`). A client waits for an answer for 30 s by default, so one that sends
before its time is up does not give up."""


class Bucket:
    """`idle_at`: when all is paid off, at the rate of the last charge; a new bucket is no different from then on."""

    __slots__ = ("_at_ns", "_level", "idle_at")

    def __init__(self) -> None:
        self._level = 0
        """Units in use times NANOSECONDS, as of `_at_ns`."""
        self._at_ns = 0
        self.idle_at = 0

    def charge(self, amount: int, rate: int, now_ns: int) -> None:
        """Use `amount` units. What would take more than MAX_THROTTLE_SECONDS to pay off is forgotten."""
        self._settle(rate, now_ns)
        most = (BURST_SECONDS + MAX_THROTTLE_SECONDS) * rate * NANOSECONDS
        self._level = min(self._level + amount * NANOSECONDS, most)
        self.idle_at = now_ns - -self._level // rate

    def wait_ns(self, rate: int, now_ns: int) -> int:
        """Nanoseconds until nothing is owed, at most MAX_THROTTLE_SECONDS."""
        self._settle(rate, now_ns)
        owed = self._level - BURST_SECONDS * rate * NANOSECONDS
        return min(-(-max(0, owed) // rate), MAX_THROTTLE_SECONDS * NANOSECONDS)

    def room(self, rate: int, now_ns: int) -> int:
        """Whole units that can be used before something is owed."""
        self._settle(rate, now_ns)
        return max(0, BURST_SECONDS * rate - -(-self._level // NANOSECONDS))

    def _settle(self, rate: int, now_ns: int) -> None:
        """Pay off. With a new rate, what was used before is paid off at that."""
        self._level = max(0, self._level - rate * max(0, now_ns - self._at_ns))
        self._at_ns = max(now_ns, self._at_ns)
