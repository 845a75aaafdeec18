"""Changes of the quorum, one member at a time (dissertation, sections 4.1 and 4.2; KIP-853).

A member joins as a learner, which replicates and counts in no majority. Once it has caught up it is made a voter by a
second change. The majorities of two configurations that differ in one voter overlap, so a change takes effect as soon
as it is appended. Two rules make that safe across leaders: the change before must be committed, and so must an entry
of the leader's own term (Ongaro, "bug in single-server membership changes", raft-dev, July 2015).

What members that lost data need on top of this is in `elections.py`.
"""

from __future__ import annotations

from pidkeeper.controller.raft.elections import Elections
from pidkeeper.controller.raft.member import LEADER
from pidkeeper.controller.raft.messages import TimeoutNow
from pidkeeper.controller.raft.progress import Progress
from pidkeeper.controller.raft.quorum import majority
from pidkeeper.controller.raft.refusals import NotLeader, ProposalRefused
from pidkeeper.protocol.records import QuorumMember, VotersRecord, encode_batch


class MembershipChange(Elections):
    """Append configurations as leader; leave when one without us is committed."""

    __slots__ = ()

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        """Append the configuration `record`, which is in force from now on; its (term, index).

        Raises NotLeader; ValueError if it differs from the one in force in more than one member, or makes a voter of
        what is no learner; ProposalRefused if the change before or our term's first entry is not committed, if a new
        voter has not caught up, or if the new voters could not commit anything now.
        """
        if self.role is not LEADER:
            raise NotLeader(self.leader_id)
        if self.transferring is not None:
            raise ProposalRefused(f"leadership is being transferred to {self.transferring}: retry there")
        if self.log.commit < self._noop_index:
            raise ProposalRefused("the leader has not committed an entry of its own term yet")
        memberships = self.log.memberships
        if not memberships.committed:
            raise ProposalRefused(f"the change of the quorum at index {memberships.newest.index} is not committed yet")
        self._check_change(record)
        index = self._append(encode_batch([record]))
        self._adopt_memberships()
        self._broadcast_append()
        return self.term, index

    def _check_change(self, record: VotersRecord) -> None:
        old = {member.id: member for member in self.log.memberships.newest.record.members}
        new = {member.id: member for member in record.members}
        changed = [member_id for member_id in sorted(old | new) if old.get(member_id) != new.get(member_id)]
        if len(changed) != 1:
            raise ValueError(f"a change concerns one member, not {changed}")
        before, after = old.get(changed[0]), new.get(changed[0])
        if after is not None and after.voting and not (before is not None and before.voting):
            self._check_promotion(after, before)
        voters = {member.id for member in record.members if member.voting}
        if voters != self._voters:
            self._check_service(voters)

    def _check_promotion(self, after: QuorumMember, before: QuorumMember | None) -> None:
        if before is None:
            raise ValueError(f"member {after.id} must be a learner before it becomes a voter")
        progress = self.progress[after.id]
        if progress.recovery:
            raise ProposalRefused(f"learner {after.id} has not caught up yet")
        if not self._is_heard(progress):
            raise ProposalRefused(f"learner {after.id} does not answer")
        # What a removed member sent may still arrive after its id came back with an empty disk.
        added = self.log.memberships.newest.index
        if progress.counted < added:
            raise ProposalRefused(f"learner {after.id} does not hold the configuration at index {added} yet")
        lag, most = self.log.last_index - progress.counted, self.config.promotion_lag
        if lag > most:
            raise ProposalRefused(f"learner {after.id} is {lag} entries behind, {most} may be left")

    def _check_service(self, voters: set[int]) -> None:
        """A change that its own majority cannot commit now would stop everything, so it is not begun."""
        tracked = {voter: self.progress[voter] for voter in sorted(voters)}
        weak = [voter for voter, progress in tracked.items() if progress.recovery]
        if weak:
            raise ProposalRefused(f"members {weak} lost data and have not recovered yet")
        heard = [voter for voter, one in tracked.items() if voter == self.node_id or self._is_heard(one)]
        if len(heard) < majority(len(voters)):
            raise ProposalRefused(f"of the voters {sorted(voters)} only {heard} answer, which is no majority")

    def _is_heard(self, progress: Progress) -> bool:
        """Whether a member answers, and has said in our term that it does not recover from a loss."""
        return progress.counted > 0 and self._now - progress.heard < self.config.election_ticks

    def _follow_memberships(self) -> None:
        """Called after every input: the log may hold other configurations than before it."""
        if self._membership_version != self.log.memberships.version:
            self._adopt_memberships()
            if self.role is LEADER and self.node_id not in self._voters and self.log.memberships.committed:
                self._leave()

    def _leave(self) -> None:
        """The configuration without us is committed: name a successor and lead no more (section 4.2.2)."""
        fit = [voter for voter in sorted(self._voters) if not self.progress[voter].recovery]
        if fit:
            heir = max(fit, key=lambda voter: (self.progress[voter].match, self.progress[voter].heard))
            self._outbox.append(TimeoutNow(self.term, self.node_id, heir))
        self._become_follower(self.term, None)
