"""How far one message may take a member ahead of its term.

Terms rise by one with each election, and pre-votes keep elections rare. So a term that lies far ahead is met by a
member that was away, or whose disk is blank, once; and after that by nobody. A faulty peer that knows the cluster key
could else end the cluster with one message of the highest term, behind which there is none left to elect a leader in.

What is too far to be borne is not lost for ever. A faulty peer may have taken some members there jump by jump, while
the others did not hear it, and neither part need have a majority. So a member without a leader goes there in steps.
"""

from __future__ import annotations

from typing import Final

MAX_TERM_JUMP: Final = 2**32
"""At an election every 10 ms these are 16 months of elections without a pause, which nobody can have missed."""

SMALL_TERM_JUMP: Final = 2**16
"""A jump that is nothing special. At 100,000 of them a second, the terms last for 40 years."""

JUMP_TICKS: Final = 100
"""Between two jumps by the same peer that are more than small. At this rate the terms last for 60 years."""


class TermJumps:
    """Judges the terms that peers bring. `refused`: by peer, how many were not taken over.

    `leaderless`: an election timeout has passed since this member led, or knew a leader.
    """

    __slots__ = ("_now", "_taken", "leaderless", "refused")

    def __init__(self) -> None:
        self._now = 0
        # Peer -> the tick of its last jump that was more than small. Peers are bounded by the links.
        self._taken: dict[int, int] = {}
        self.refused: dict[int, int] = {}
        self.leaderless = False

    def tick(self) -> None:
        """10 ms have passed."""
        self._now += 1

    def bears(self, peer: int, jump: int) -> bool:
        """Whether a message that lies `jump` terms ahead may be answered at all; if not, that is counted."""
        return jump <= MAX_TERM_JUMP or self._refuse(peer)

    def take(self, peer: int, jump: int) -> bool:
        """Whether its term may be taken over now; if not, that is counted."""
        if jump <= SMALL_TERM_JUMP:
            return True
        return self._go(peer) or self._refuse(peer)

    def step(self, peer: int) -> bool:
        """Whether to go MAX_TERM_JUMP towards the term of a message that was not borne."""
        return self.leaderless and self._go(peer)

    def _go(self, peer: int) -> bool:
        last = self._taken.get(peer)
        if last is not None and self._now - last < JUMP_TICKS:
            return False
        self._taken[peer] = self._now
        return True

    def _refuse(self, peer: int) -> bool:
        self.refused[peer] = self.refused.get(peer, 0) + 1
        return False
