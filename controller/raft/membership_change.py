"""Changes of the quorum, one member at a time (dissertation, sections 4.1 and 4.2; KIP-853): what the leader checks.

A member joins as a learner, which replicates and counts in no majority. Once it has caught up it is made a voter by a
second change. The majorities of two configurations that differ in one voter overlap, so a change takes effect as soon
as it is appended. Two rules make that safe across leaders: the change before must be committed, and so must an entry
of the leader's own term (Ongaro, "bug in single-server membership changes", raft-dev, July 2015).

What members that lost data need on top of this is in `elections.py`.
"""

from __future__ import annotations

from pidkeeper.controller.raft.config import RaftConfig
from pidkeeper.controller.raft.leadership import Leadership
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.quorum import majority
from pidkeeper.controller.raft.refusals import ProposalRefused
from pidkeeper.protocol.records import QuorumMember, VotersRecord


class MembershipChange:
    """One check of one change, on the leader's state, which it only reads."""

    __slots__ = ("_config", "_leadership", "_log")

    def __init__(self, config: RaftConfig, log: RaftLog, leadership: Leadership) -> None:
        self._config = config
        self._log = log
        self._leadership = leadership

    def check(self, record: VotersRecord) -> None:
        """Raise what `RaftCore.change_members` raises if `record` may not follow the configuration in force now."""
        log, memberships = self._log, self._log.memberships
        self._leadership.refuse_while_transferring()
        # Else an earlier leader's change, of which we have not heard, may yet be committed, by a majority that shares
        # no member with one of ours.
        if log.commit < self._leadership.noop_index:
            raise ProposalRefused("the leader has not committed an entry of its own term yet")
        # Two changes at once would make majorities of configurations that need not overlap.
        if not memberships.committed:
            raise ProposalRefused(f"the change of the quorum at index {memberships.newest.index} is not committed yet")
        old = {member.id: member for member in memberships.newest.record.members}
        new = {member.id: member for member in record.members}
        changed = [member_id for member_id in sorted(old | new) if old.get(member_id) != new.get(member_id)]
        if len(changed) != 1:
            raise ValueError(f"a change concerns one member, not {changed}")
        before, after = old.get(changed[0]), new.get(changed[0])
        if after is not None and after.voting and not (before is not None and before.voting):
            self._check_promotion(after, before)
        voters = {member.id for member in record.members if member.voting}
        if voters != memberships.newest.voters:
            self._check_service(voters)

    def _check_promotion(self, after: QuorumMember, before: QuorumMember | None) -> None:
        # The unanimous rule asks learners too, and rests on every voter having been one (see `elections.py`).
        if before is None:
            raise ValueError(f"member {after.id} must be a learner before it becomes a voter")
        progress = self._leadership.progress[after.id]
        if progress.recovery:
            raise ProposalRefused(f"learner {after.id} has not caught up yet")
        if not self._leadership.is_heard(progress):
            raise ProposalRefused(f"learner {after.id} does not answer")
        # What a removed member sent may still arrive after its id came back with an empty disk.
        added = self._log.memberships.newest.index
        if progress.counted < added:
            raise ProposalRefused(f"learner {after.id} does not hold the configuration at index {added} yet")
        # Nothing might be committed until the new voter has caught up (dissertation, section 4.2.1).
        lag, most = self._log.last_index - progress.counted, self._config.promotion_lag
        if lag > most:
            raise ProposalRefused(f"learner {after.id} is {lag} entries behind, {most} may be left")

    def _check_service(self, voters: set[int]) -> None:
        """A change that its own majority cannot commit now would stop everything, so it is not begun."""
        leadership = self._leadership
        tracked = {voter: leadership.progress[voter] for voter in sorted(voters)}
        weak = [voter for voter, progress in tracked.items() if progress.recovery]
        if weak:
            raise ProposalRefused(f"members {weak} lost data and have not recovered yet")
        own = self._config.node_id
        heard = [voter for voter, one in tracked.items() if voter == own or leadership.is_heard(one)]
        if len(heard) < majority(len(voters)):
            raise ProposalRefused(f"of the voters {sorted(voters)} only {heard} answer, which is no majority")
