"""Why this member stood for leader and what came of it, and why it lost its leaders: for metrics and the log alone."""

from __future__ import annotations

import enum
from collections import Counter
from typing import Final


class ElectionCause(enum.Enum):
    """Why an election began here: what became of the last leader since the election before."""

    STARTED = "started"
    """The first one of this process, and no leader was heard of yet."""
    LEADER_SILENT = "leader_silent"
    """The leader was not heard for an election timeout."""
    LEADER_DISCONNECTED = "leader_disconnected"
    """The connection from the leader broke."""
    TRANSFER = "transfer"
    """The leader asked this member to succeed it."""
    NO_LEADER = "no_leader"
    """An election before came to nothing, here or elsewhere, or this member has led itself."""


class ElectionOutcome(enum.Enum):
    """What came of an election that began here. Until a member stands, no other one notices anything of it."""

    WON = "won"
    LOST = "lost"
    """The voters refused."""
    TIMED_OUT = "timed_out"
    """Too few answered within an election timeout."""
    SUPERSEDED = "superseded"
    """Another leader, or a newer term, came first."""
    PRE_VOTE_FAILED = "pre_vote_failed"
    """Too few would have voted for this member, so it never stood."""


class LossCause(enum.Enum):
    """Why a member knows its leader no more. The first five are of the leader itself, the others of its followers."""

    NO_QUORUM = "no_quorum"
    """It heard no majority for an election timeout (check-quorum)."""
    HIGHER_TERM = "higher_term"
    """A newer term came, though it handed over to nobody."""
    TRANSFER = "transfer"
    """It handed over: also for the member that it handed over to."""
    STALLED_DISK = "stalled_disk"
    """It handed over because its disk stalled."""
    REMOVED = "removed"
    """Its removal from the quorum was committed."""
    SILENT = "silent"
    """It was not heard for an election timeout."""
    DISCONNECTED = "disconnected"
    """The connection from it broke."""
    SUPERSEDED = "superseded"
    """A newer term came while it was followed."""


_THEN: Final = {
    LossCause.SILENT: ElectionCause.LEADER_SILENT,
    LossCause.DISCONNECTED: ElectionCause.LEADER_DISCONNECTED,
}


class ElectionTally:
    """Counts, of the whole process: elections by cause and outcome, losses by cause. Nothing is decided by it.

    `won_by`: who voted for this member in the last election that it won.
    """

    __slots__ = ("_cause", "_next_cause", "begun", "elections", "last_election", "last_loss", "losses", "won_by")

    def __init__(self) -> None:
        self.begun = 0
        self.elections: Counter[tuple[ElectionCause, ElectionOutcome]] = Counter()
        self.losses: Counter[LossCause] = Counter()
        self.last_election: tuple[ElectionCause, ElectionOutcome] | None = None
        self.last_loss: LossCause | None = None
        self.won_by: tuple[int, ...] = ()
        # Of the election under way; None if there is none.
        self._cause: ElectionCause | None = None
        self._next_cause = ElectionCause.STARTED

    @property
    def under_way(self) -> bool:
        """Whether an election that began here is not over."""
        return self._cause is not None

    def begin(self, cause: ElectionCause | None = None) -> None:
        """An election begins, by default because of what became of the last leader."""
        self.begun += 1
        self._cause = cause or self._next_cause
        self._next_cause = ElectionCause.NO_LEADER

    def end(self, outcome: ElectionOutcome) -> None:
        """The election under way is over; nothing if there is none."""
        if self._cause is not None:
            self.last_election = self._cause, outcome
            self.elections[self.last_election] += 1
            self._cause = None

    def lose(self, cause: LossCause) -> None:
        """The leader that was known, maybe this member, is known no more."""
        self.losses[cause] += 1
        self.last_loss = cause
        self._next_cause = _THEN.get(cause, ElectionCause.NO_LEADER)
