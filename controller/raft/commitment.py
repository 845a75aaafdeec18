"""How far the leader's log is committed: two rules, for members with and without memory (paper, sections 5.3 and 5.4).

Majority rule: a majority of the voters has acknowledged the entry, none of them while it was recovering. Unanimous
rule: everybody holds the entry, whoever recovers included. `elections.py` says why these are safe.
"""

from __future__ import annotations

from collections.abc import Mapping

from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.progress import Progress
from pidkeeper.controller.raft.quorum import majority_index


class Commitment:
    """Counts acknowledgements and moves the commit index. Exists only while this member leads."""

    __slots__ = ("_counting", "_hard", "_log", "_unanimous", "uncommitted_bytes", "voters", "weak")

    def __init__(self, hard: HardStateKeeper, log: RaftLog) -> None:
        self._hard = hard
        self._log = log
        # The voters whose acknowledgements count: those of the configuration in force, the very object (R20). Set
        # with the two lists below by `count_by`, whenever the configurations change.
        self.voters: frozenset[int] = frozenset()
        # The progress of each of `voters`: a majority of their `counted` is committed. It holds ourselves only if we
        # are a voter: a leader that removes itself does not count itself (dissertation, section 4.2.2).
        self._counting: list[Progress] = []
        # The progress of everybody: what all have `agreed` to is committed.
        self._unanimous: list[Progress] = []
        # Whether somebody recovers, or our own hard state is not durable yet, so that the unanimous rule can commit
        # what the majority rule cannot. `Leadership` finds it out anew whenever one of the two may have changed.
        self.weak = False
        # The payload of the entries behind the commit index, in bytes. Bounds what `propose` takes.
        self.uncommitted_bytes = sum(len(entry.data) for entry in log.slice(log.commit + 1, log.last_index))

    def count_by(self, voters: frozenset[int], everybody: frozenset[int], progress: Mapping[int, Progress]) -> None:
        """Count by these members from now on."""
        self.voters = voters
        self._counting = [progress[voter] for voter in sorted(voters)]
        self._unanimous = [progress[member] for member in sorted(everybody)]

    def appended(self, size: int) -> None:
        """An entry of `size` bytes was appended."""
        self.uncommitted_bytes += size

    def set_weak(self, weak: bool) -> None:
        """See the field."""
        self.weak = weak

    def advance(self) -> bool:
        """Commit what may be committed by now; whether that is more than before.

        Entries of earlier terms are committed with one of ours only (figure 8), and what lies before the configuration
        in force with its entry only.
        """
        log = self._log
        newest = log.memberships.newest
        if newest.voters is not self.voters:
            raise InvariantViolation("R20", f"counting by {sorted(self.voters)}, which is not in force")
        index = majority_index([progress.counted for progress in self._counting])
        if self.weak:
            index = max(index, min([progress.agreed for progress in self._unanimous]))
        least = max(log.commit + 1, newest.index)
        if index >= least and log.term(index) == self._hard.term:
            self.commit_to(index)
            return True
        return False

    def commit_to(self, index: int) -> None:
        """Commit everything through `index`, which was counted."""
        log, term = self._log, self._hard.term
        if log.term(index) != term:
            raise InvariantViolation("R7", f"{index} is of term {log.term(index)}, ours is {term}")
        if index < log.memberships.newest.index:
            raise InvariantViolation("R20", f"{index} lies before {log.memberships.newest.index}, which counts it")
        for entry in log.slice(log.commit + 1, index):
            self.uncommitted_bytes -= len(entry.data)
        log.commit_to(index)
