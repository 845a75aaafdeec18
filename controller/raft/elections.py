"""Elections: pre-vote, votes, check-quorum, and what a member that lost data may still do.

Pre-vote (dissertation, section 9.6): a member first asks whether it would win. Nobody's term changes by asking, so a
member that was cut off cannot depose a leader when it comes back. A vote request leaves only when the candidate's own
vote and log are durable. So after a crash it never stands in the same term with a shorter log, and a leader's messages
never carry a term that it could forget.

Recovery. A member whose disk was replaced or whose log lost its tail has forgotten entries that it acknowledged, and
perhaps votes and terms too. Such a member is `recovering`, which is part of its hard state. Until it has recovered:

1. its vote and pre-vote count only if everybody granted;
2. its acknowledgements count towards a commit only if everybody holds the entry.

Everybody: the voters and learners of the configuration in force, and of those before it back to the last one that is
known to be committed. While no change is under way and nobody learns, that is the voters.

It has recovered when its leader says so: the leader, on hearing of the recovery for the first time, appends an empty
entry, the barrier. Once the barrier is committed under the two rules above and durable at the member, the leader
tells it, by the number that the member drew for this recovery. The member then makes the end of the recovery durable
(with a vote for that leader if it has none). A leader that is itself recovering has recovered when an entry of its
own term is committed. A freshly formatted member starts out recovering, so a blank cluster needs all its voters for
the first election and the first commit, and none that was wiped can help to elect an empty leader later.

Why this is safe as long as, by every configuration that any member counts by, fewer voters than a majority have lost
data and not yet recovered:

Elections. An acknowledged entry is on a majority M, or was when it was committed. A winner by rule 1 has either the
votes of a majority of members that forgot nothing, one of which is in M, holds the entry and would have refused a log
without it; or the votes of all, and is at least as up to date as every one of them, and somebody in M forgot nothing.

Terms. Let a member F have voted for, or followed, a candidate C of the term P before its loss, and let a stale leader L
of a term T < P reach it afterwards. Nothing commits at L by F's word (rule 2). Suppose that the barrier, which was
appended after the loss, is committed in T: a majority S of members that forgot nothing took it (or all voters did). C
stood for P before F's loss, so its log lacks the barrier. For P it needs a majority Q, and Q and S share a member that
is not F. That one took the barrier either after its vote in P, which it refuses, or before it, and then it refuses C.
So no such C is ever elected: what F has forgotten and what can still matter concerns terms up to T.

Entries. F's acknowledgements of terms up to T concern entries that either are in L's log before the barrier (leader
completeness, and all that L itself had sent) or were never committed. When F holds everything through the barrier, it
holds again whatever its old word helped to commit. An acknowledgement from before the loss that arrives late says
what was true when it was sent; it may count, and covers nothing after the barrier.

Changes of the quorum. M, S and Q above may be counted by two configurations that follow each other. Farther apart they
cannot be: a change is begun only when the one before is committed, and so is an entry of the leader's own term, so a
candidate that lacks both fails as any candidate that lacks a committed entry does. Two majorities of neighbours share
a member, which is all that the first half of each argument needs. The second half, where all agreed, needs that all
of one side cover the majority of the other, whichever of the two is the newer configuration. Suppose that everybody
were just the voters in force.

- {1, 2, 3} committed an entry by 1 and 2, and 2 lost its disk. 3 holds a removal of 1 which it appended as a leader
  before that, in vain. With its own vote and the weak one of 2 it would have all of {2, 3}. So the voters of the
  configuration before count in, as long as the newer one is not known to be committed. The same for rule 2: 1 may
  stand for P with the vote that 2 has forgotten, while all of {2, 3} hold the barrier of 3.
- {2, 3} made 1 a voter, 1 and 2 committed that and more, and 2 lost its disk. 3 knows of nothing, and would have all
  of {2, 3}. But nobody becomes a voter who was not a learner in the configuration before (R17), and 3 has that one,
  or its log ends even earlier and the argument goes on from there. So learners count in.

A learner that lost its disk recovers like a voter, and is not made a voter before. The same id may come back with an
empty disk, as a learner, once the removal of its former owner is committed. But its word does not stand for that
owner's with somebody who was away meanwhile and still takes it for a voter: 3 was down, the others made 4 a voter,
removed 1, took its empty successor in as a learner, and 2 lost its disk. Of {2, 3, 4} only one has lost anything; yet 3
would have all of {1, 2, 3}. So whoever recovers as a learner, by its file, grants nothing as a voter, and acknowledges
nothing as one, unless its own log tells of the learner that it is: then whoever lacks that entry is behind it.

A learner that has lost nothing agrees even with a candidate whose log ends before its own, if both take it for a
learner. Nothing was committed by its word: a leader counts by a configuration only what is not before it in the log
(R20), so whatever a new voter's acknowledgement helped to commit stands behind the entry that made it one. Otherwise a
learner that is ahead of all voters would hold up every election that needs everybody, and nobody could remove it.

An empty disk has forgotten who the voters are, too. Its member counts by the configured ones until a leader writes to
it. If those are out of date, and all of them lost their disks, they would elect a leader of a cluster that begins at
nothing; the operator's page says how not to get there.

Why not let a member recover as soon as it has committed an entry of its leader's term? Because it may have
acknowledged entries far beyond that one, and because the leader may be a stale one. Both would let two members elect
a leader that lacks acknowledged entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.member import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, RaftConfig, Rng
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import (
    Entry,
    HardState,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    SnapshotMeta,
    TimeoutNow,
)
from pidkeeper.controller.raft.quorum import VoteResult, vote_result
from pidkeeper.controller.raft.snapshot_transfer import SnapshotTransfer


class Elections(SnapshotTransfer):
    """Ask for votes, give them, count them."""

    __slots__ = ("_votes",)

    def __init__(
        self,
        config: RaftConfig,
        rng: Rng,
        hard_state: HardState,
        snapshot: SnapshotMeta,
        entries: Sequence[Entry],
        memberships: Memberships,
        leader_change_data: bytes,
    ) -> None:
        # Voter -> (granted, the number of its recovery).
        self._votes: dict[int, tuple[bool, int]] = {}
        super().__init__(config, rng, hard_state, snapshot, entries, memberships, leader_change_data)

    def _start_pre_vote(self) -> None:
        """The election timeout has passed. A learner, or a member that was removed, only forgets the leader."""
        self.leader_id = None
        self._reset_timer()
        if not self.log.memberships.may_campaign(self.node_id):
            return
        self.role = PRE_CANDIDATE
        self._votes = {}
        self._count_vote(self.node_id, True, self._recovery)
        if self.role is PRE_CANDIDATE:
            last, last_term = self.log.last_index, self.log.last_term
            for peer in self._peers:
                self._outbox.append(PreVote(self.term + 1, self.node_id, peer, last, last_term))

    def _campaign(self, transfer: bool) -> None:
        """Stand in the next term. Our own vote counts, and the requests leave, once it is durable."""
        if not self.log.memberships.may_campaign(self.node_id):
            raise InvariantViolation("R19", f"{self.node_id} is not among the voters {sorted(self._voters)}")
        self._set_term(self.term + 1)
        self._set_vote(self.node_id)
        self.role = CANDIDATE
        self.leader_id = None
        self._reset_timer()
        self._votes = {}
        last, last_term = self.log.last_index, self.log.last_term
        for peer in self._peers:
            self._parked.append(RequestVote(self.term, self.node_id, peer, last, last_term, transfer))

    def _count_own_vote(self) -> None:
        """Called whenever a write is durable."""
        if self.role is CANDIDATE and self._hard_durable and self.node_id not in self._votes:
            self._count_vote(self.node_id, True, self._recovery)

    def _count_vote(self, voter: int, granted: bool, recovery: int) -> None:
        if voter in self._votes:
            raise InvariantViolation("R10", f"a second vote of {voter} in term {self.term}")
        if voter not in self._everybody:
            return
        self._votes[voter] = (granted, recovery)
        cast = [vote for voter, vote in self._votes.items() if voter in self._voters]
        others = [yes for voter, (yes, _) in self._votes.items() if voter not in self._voters]
        result = vote_result(
            len(self._voters),
            grants=sum(1 for yes, number in cast if yes and not number),
            weak_grants=sum(1 for yes, number in cast if yes and number),
            rejections=sum(1 for yes, _ in cast if not yes),
            others=len(self._everybody - self._voters),
            other_grants=others.count(True),
            other_rejections=others.count(False),
        )
        if result is VoteResult.LOST:
            self._become_follower(self.term, None)
        elif result is VoteResult.WON and self.role is PRE_CANDIDATE:
            self._campaign(transfer=False)
        elif result is VoteResult.WON:
            self._become_leader()

    def _become_leader(self) -> None:
        self.role = LEADER
        self.leader_id = self.node_id
        self._heartbeat_elapsed = 0
        self.transferring = None
        log = self.log
        self.progress = {}
        self._track_members()
        self.progress[self.node_id].match = log.stable
        self._uncommitted_bytes = sum(len(entry.data) for entry in log.slice(log.commit + 1, log.last_index))
        self._noop_index = self._append(self._leader_change_data)
        for voter, (_, recovery) in self._votes.items():
            if voter != self.node_id and recovery:
                # It lost its data before it voted, so before the no-op, which can be its barrier.
                self.progress[voter].recovery = recovery
                self.progress[voter].barrier = self._noop_index
        self._settle()
        self._broadcast_append()

    def _on_pre_vote(self, message: PreVote) -> None:
        free = message.term > self.term and not self._hears_leader()
        granted, consents = self._word(message, free=free)
        term = message.term if granted or consents else self.term
        reply = PreVoteReply(term, self.node_id, message.sender, granted, self.recovering, consents)
        self._send_when_durable(reply)

    def _on_pre_vote_reply(self, message: PreVoteReply) -> None:
        asked = message.term == self.term + 1 if message.agrees else message.term == self.term
        if self.role is PRE_CANDIDATE and asked and message.sender not in self._votes:
            self._count_vote(message.sender, self._taken(message), int(message.recovering))

    def _on_vote_request(self, message: RequestVote) -> None:
        """Grant by the rules of the paper's section 5.4.1; once per term, and not while a leader is known in it."""
        free = self.vote == message.sender or (self.vote is None and self.leader_id is None)
        granted, consents = self._word(message, free=free)
        if granted or consents:
            self._set_vote(message.sender)
            self._reset_timer()
        reply = RequestVoteReply(self.term, self.node_id, message.sender, granted, self._recovery, consents)
        self._send_when_durable(reply)

    def _on_vote_reply(self, message: RequestVoteReply) -> None:
        if self.role is CANDIDATE and self.node_id in self._votes and message.sender not in self._votes:
            self._count_vote(message.sender, self._taken(message), message.recovery)

    def _word(self, message: PreVote | RequestVote, *, free: bool) -> tuple[bool, bool]:
        """What we say to a candidate, as a voter and as a learner. `free`: nothing but our log can be against it."""
        word = free and self.log.is_up_to_date(message.last_log_index, message.last_log_term)
        if self.recovering:
            return word and not self._learns, word
        return word, word if self.log.memberships.may_campaign(self.node_id) else free

    def _taken(self, message: PreVoteReply | RequestVoteReply) -> bool:
        """Its word as what we take it for."""
        return message.granted if self.log.memberships.may_campaign(message.sender) else message.consents

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        """The leader hands over. A member that is recovering would need every vote, so it stays."""
        fit = not self.recovering and self.log.memberships.may_campaign(self.node_id)
        if self.role in {FOLLOWER, PRE_CANDIDATE} and fit:
            self._campaign(transfer=True)

    def _check_quorum(self) -> None:
        """Step down unless a majority was heard within an election timeout (dissertation, section 6.2)."""
        limit = self._now - self.config.election_ticks
        heard = 0
        for voter in self._voters:
            if voter == self.node_id or self.progress[voter].heard >= limit:
                heard += 1
        if heard < self.majority:
            self._become_follower(self.term, None)
