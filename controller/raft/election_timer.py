"""How long a member waits for a leader before it asks to succeed it (Raft paper, section 5.2)."""

from __future__ import annotations

from pidkeeper.controller.raft.config import RaftConfig
from pidkeeper.controller.raft.rng import Rng


class ElectionTimer:
    """Counts the ticks since the last sign of a leader. A leader's own timer stands still."""

    __slots__ = ("_elapsed", "_link_lost_ticks", "_minimum", "_rng", "_timeout")

    def __init__(self, config: RaftConfig, rng: Rng) -> None:
        self._rng = rng
        # `config.election_ticks`: no timeout is shorter, and for that long after a sign of the leader this member
        # helps nobody to depose it (dissertation, section 4.2.3).
        self._minimum = config.election_ticks
        self._link_lost_ticks = config.link_lost_ticks
        # Ticks since the last `draw` or `restart`.
        self._elapsed = 0
        # The value of `_elapsed` at which the timer fires. Drawn from [minimum, 2 x minimum), so that votes are seldom
        # split; shorter only after `wait_for_turn`. Valid until the next `draw`.
        self._timeout = 0
        self.draw()

    @property
    def elapsed(self) -> int:
        """Ticks since the last sign of a leader, or since whatever else began the wait for one."""
        return self._elapsed

    @property
    def below_minimum(self) -> bool:
        """Whether less than the minimum election timeout has passed."""
        return self._elapsed < self._minimum

    def draw(self) -> None:
        """Start again with a new timeout: a term, a vote, a campaign or another leader has begun."""
        self._elapsed = 0
        self._timeout = self._rng.randrange(self._minimum, 2 * self._minimum)

    def restart(self) -> None:
        """Start again with the same timeout: the leader gave a sign."""
        self._elapsed = 0

    def tick(self, extra: int) -> bool:
        """A tick has passed; whether the timer fires, which it does `extra` ticks after its time."""
        self._elapsed += 1
        return self._elapsed >= self._timeout + extra

    def wait_for_turn(self, turn: int) -> bool:
        """The leader is lost: fire at this member's `turn`, counted from 0; whether that is now.

        If all followers began at once, none would win, and the next try is an election timeout away.
        """
        delay = turn * self._link_lost_ticks + self._rng.randrange(0, 2)
        if delay:
            self._timeout = self._elapsed + delay
        return not delay
