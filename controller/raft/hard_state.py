"""What a member may never forget: its term, its vote, and whether it has lost data (Raft paper, figure 2)."""

from __future__ import annotations

from typing import Final

from pidkeeper.controller.raft.config import RaftConfig
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import HardState
from pidkeeper.controller.raft.rng import Rng
from pidkeeper.protocol.log_position import MAX_NUMBER

MAX_RECOVERY: Final = 2**31
"""Recoveries are numbered at random below this, so two of one member differ but once in two thousand million."""


class HardStateKeeper:
    """The only place where term, vote and recovery change. `Outbox` sees to it that they are written."""

    __slots__ = ("_directory_id", "_learner", "_node_id", "recovering", "recovery", "term", "version", "vote")

    def __init__(self, config: RaftConfig, rng: Rng, durable: HardState) -> None:
        self._node_id = config.node_id
        # Whether this id may be a removed voter's, used again; says nothing about the configuration in force.
        self._learner = config.learner
        self._directory_id = config.directory_id
        # The newest term that this member knows. Never falls (R1). Durable before any message that carries it leaves,
        # but for those that a crash makes harmless (see `Outbox`).
        self.term = durable.term
        # The candidate that has this member's vote in `term`; None: nobody yet. Set once in a term (R2).
        self.vote = durable.vote
        # Whether this member has lost entries, votes or terms that it acknowledged, and its leader has not yet said
        # that it holds them again. Set by the storage alone, before a start; cleared by `end_recovery`.
        self.recovering = durable.recovering
        # The number of this recovery, 0 if there is none. Drawn anew at every start, as a member that lost its disk
        # cannot know the number that it had before. By the number the leader tells this recovery from an earlier one
        # of the same member, within a term too.
        self.recovery = rng.randrange(1, MAX_RECOVERY) if self.recovering else 0
        # Counts the changes of term, vote and `recovering` since the start. `Outbox` remembers which version is on its
        # way to the disk, and which is there.
        self.version = 0

    def advance_term(self, term: int) -> None:
        """Enter `term`, with no vote given in it. The present term is no news; a lower one violates R1."""
        if term < self.term:
            raise InvariantViolation("R1", f"term {self.term} cannot fall to {term}")
        if term >= MAX_NUMBER:  # a pre-vote asks about the term after ours, which must be a number as well
            raise InvariantViolation("R1", f"after term {self.term} comes {term}, and none is left after that")
        if term > self.term:
            self.term = term
            self.vote = None
            self.version += 1

    def vote_for(self, candidate: int) -> None:
        """Give the vote of this term to `candidate`; giving it again changes nothing."""
        if self.vote == candidate:
            return
        if self.vote is not None:
            raise InvariantViolation("R2", f"vote for {candidate} in term {self.term} after one for {self.vote}")
        self.vote = candidate
        self.version += 1

    def end_recovery(self) -> None:
        """This member holds again what it has ever acknowledged (`elections.py` says why)."""
        self.recovering = False
        self.recovery = 0
        self.version += 1

    def id_may_be_reused(self, memberships: Memberships) -> bool:
        """Whether others may know another member by this one's id, a voter whose removal they have not heard of.

        A learner with an empty disk may bear such an id. Until its own log says that it is a learner, or that its own
        directory votes, it must not be counted as that voter. While its removal is not known to be committed, it votes.
        memberships: by its own log.
        """
        if not (self.recovering and self._learner):
            return False
        own, directory = self._node_id, self._directory_id
        votes = any(one.names_voter(own, directory) for one in memberships.configurations)
        return not (votes or memberships.newest.is_learner(own))

    def value(self, commit: int) -> HardState:
        """What is to be written, with the commit index `commit`."""
        return HardState(self.term, self.vote, commit, self.recovering)
