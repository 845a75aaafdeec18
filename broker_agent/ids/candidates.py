"""Producer IDs that go along with requests for transactional ids, and what may become of them. Pure: no clock, no I/O.

Whoever initialises a transactional id may need a new producer ID, and the quorum alone knows whether. So each request
carries one, the *candidate*. If it was certainly not taken, the next request may carry it; if nobody can tell, it is
never used again: a gap is legal, a repeat is not. From metadata version 6 on the quorum takes these IDs itself, and
no request carries one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from pidkeeper.broker_agent.ids.reserve import NO_ID

MAX_KEPT: Final = 64
"""IDs kept for the next requests: one for each that may be under way at a time. One more becomes a gap."""


class Candidates:
    """Hands out candidates, first those that came back. `claim` takes the next ID of the reserve, or NO_ID.

    Invariant, asserted where the state changes:
    A4  a candidate is under way in one request at most, and comes back from that one only.
    """

    __slots__ = ("_claim", "_discarded", "_kept", "_under_way", "lost", "taken")

    def __init__(self, claim: Callable[[], int]) -> None:
        self._claim = claim
        self._kept: deque[int] = deque()
        self._under_way: set[int] = set()
        self._discarded: set[int] = set()
        self.taken = 0
        self.lost = 0

    def __len__(self) -> int:
        """IDs kept for the next requests."""
        return len(self._kept)

    def take(self) -> int:
        """The candidate of one request, which ends with `settle`; NO_ID if there is none."""
        candidate = self._kept.popleft() if self._kept else self._claim()
        if candidate != NO_ID:
            assert candidate not in self._under_way, f"A4: candidate {candidate} is under way twice"
            self._under_way.add(candidate)
        return candidate

    def discard(self) -> None:
        """Use none of those that are here or under way again: the quorum is not the one that gave them."""
        self.lost += len(self._kept)
        self._kept.clear()
        self._discarded |= self._under_way

    def settle(self, candidate: int, *, given: int | None, certain: bool) -> None:
        """The request of `candidate` is over.

        given: the ID that the answer names, if it names one. certain: whether the answer is that of the first and only
        attempt, so that nothing of the request can still take effect.
        """
        if candidate == NO_ID:
            return
        assert candidate in self._under_way, f"A4: candidate {candidate} comes back, under way are {self._under_way}"
        self._under_way.discard(candidate)
        discarded = candidate in self._discarded
        self._discarded.discard(candidate)
        if given == candidate:
            self.taken += 1
        elif certain and not discarded and len(self._kept) < MAX_KEPT:
            self._kept.append(candidate)
        else:
            self.lost += 1
