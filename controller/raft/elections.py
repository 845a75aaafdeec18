"""Elections: who may stand, how votes are given and counted, and what the vote of a member that lost data is worth.

Pre-vote (dissertation, section 9.6): a member first asks whether it would win. Nobody's term changes by asking, so a
member that was cut off cannot depose a leader when it comes back. A vote request leaves only when the candidate's own
vote and log are durable. So after a crash it never stands in the same term with a shorter log, and a leader's messages
never carry a term that it could forget.

Recovery. A member whose disk was replaced or whose log lost its tail has forgotten entries that it acknowledged, and
perhaps votes and terms too. Such a member is `recovering`, which is part of its hard state. Until it has recovered, its
votes and acknowledgements are *weak*:

1. its vote and pre-vote count only if everybody granted;
2. its acknowledgements count towards a commit only if everybody holds the entry.

Everybody: the voters and learners of the configuration in force, and of those before it back to the last one that is
known to be committed. While no change is under way and nobody learns, that is the voters.

It has recovered when its leader says so. When the leader hears of the recovery for the first time, it appends an empty
entry, the barrier. Once the barrier is committed under the two rules above and durable at the member, the leader
tells it, by the number that the member drew for this recovery. The member then makes the end of the recovery durable
(with a vote for that leader if it has none). A leader that is itself recovering has recovered when an entry of its
own term is committed. A freshly formatted member starts out recovering, so a blank cluster needs all its voters for
the first election and the first commit, and none that was wiped can help to elect an empty leader later.

Why this is safe as long as, by every configuration from the oldest that any member counts by to the newest, fewer
voters than a majority have lost data and not yet recovered:

Elections. An acknowledged entry is on a majority M, or was when it was committed. A winner by rule 1 has either the
votes of a majority of members that forgot nothing, one of which is in M, holds the entry and would have refused a log
without it; or the votes of all, and is at least as up to date as every one of them, and somebody in M forgot nothing.

Terms. Let a member F have voted for, or followed, a candidate C of the term P before its loss, and let a stale leader L
of a term T < P reach it afterwards. The acknowledgements of F commit nothing at L by themselves (rule 2). Suppose that
the barrier, which was appended after the loss, is committed in T: a majority S of members that forgot nothing took it
(or all voters did). C stood for P before F's loss, so its log lacks the barrier. For P it needs a majority Q, and Q and
S share a member that is not F. That one took the barrier either after its vote in P, which is impossible, as it would
have refused the barrier then; or before its vote, and then it refuses C. So no such C is ever elected: what F has
forgotten and what can still matter concerns terms up to T.

Entries. F's acknowledgements of terms up to T concern entries that either are in L's log before the barrier (leader
completeness, and all that L itself had sent) or were never committed. When F holds everything through the barrier, it
holds again whatever its acknowledgements before the loss helped to commit. An acknowledgement from before the loss
that arrives late says what was true when it was sent. It may count, and covers nothing after the barrier.

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

Ids that are used again. A learner that lost its disk recovers like a voter, and is not made a voter before. Once the
removal of a voter is committed, its id may come back with an empty disk, as a learner. A member that was away meanwhile
still takes that learner for the voter. Suppose that 3 was down, and the others made 4 a voter, removed 1, and took in a
learner with an empty disk under the id 1. Then 2 lost its disk. Of the voters {2, 3, 4} only one has lost anything; yet
3, which still counts by {1, 2, 3}, would have the votes of all three. So a member that recovers and joined as a learner
grants nothing as a voter, and acknowledges nothing as one, unless its own log says that it is a learner, or by any
configuration that counts that its directory votes. If its log says so, then whoever takes it for the earlier voter
lacks that entry, is behind it, and is refused for that.

Learners that are ahead. A learner agrees even with a candidate whose log ends before its own, if both take it for a
learner. None of its acknowledgements has committed anything: a leader counts by a configuration only what is not before
it in the log (R20), so whatever a new voter's acknowledgement helped to commit stands behind the entry that made it
one. Otherwise a learner that is ahead of all voters would hold up every election that needs everybody; it cannot stand
itself, and nobody could remove it. That holds for a learner that recovers as well. It may have lost the entry that made
it a voter, and the candidate may lack that one, too. But then others have committed what the candidate lacks, by a
configuration of which this member is one voter that has lost data. One of them forgot nothing, is asked as well, and
refuses.

If the candidate takes it for a voter, by an entry that the learner lacks, it votes by its log up to the configuration
that says that it learns: what follows there was committed without it, or not at all, and then the others refuse. It
cannot leave that part out, too. It may have been a voter before, and been removed in what the candidate has not heard
of. Removed voters of whom each one knows nothing but that it learns would, with one that was away, outvote those who
removed them. A candidate that holds as much as that configuration's entry holds the removals before it: they were
committed before the learner was taken in (R15).

Blank clusters. An empty disk has forgotten who the voters are, too. Its member counts by those that a founded member
tells it, or that its file names if that one does not know it as a voter, until a leader writes to it: the log names the
voters from the first entry of a term on. If the file is out of date, and all whom it names lost their disks, they would
elect a leader of a cluster that begins at nothing; the operator's page says how not to get there.

Why not let a member recover as soon as it has committed an entry of its leader's term? Because it may have
acknowledged entries far beyond that one, and because the leader may be a stale one. Both would let two members elect
a leader that lacks acknowledged entries.
"""

from __future__ import annotations

from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import PreVote, PreVoteReply, RequestVote, RequestVoteReply
from pidkeeper.controller.raft.outbox import Outbox
from pidkeeper.controller.raft.quorum import VoteResult, vote_result


class Ballot:
    """Asks for votes and counts them, in one election or one round of pre-votes. Exists only while we campaign."""

    __slots__ = ("_hard", "_log", "_node_id", "_outbox", "_votes")

    def __init__(self, node_id: int, hard: HardStateKeeper, log: RaftLog, outbox: Outbox) -> None:
        self._node_id = node_id
        self._hard = hard
        self._log = log
        self._outbox = outbox
        # Voter -> (granted, the number of its recovery or, in a pre-vote, 1 if it recovers; 0 if it does not). Each
        # voter is counted once (R10), and only members by our log. In an election our own vote comes first, once it
        # is durable: nobody leads by a vote that it could forget.
        self._votes: dict[int, tuple[bool, int]] = {}

    @property
    def recoveries(self) -> dict[int, int]:
        """The numbers of the recoveries that those who voted are in, by voter."""
        return {voter: recovery for voter, (_, recovery) in self._votes.items() if recovery}

    @property
    def granted(self) -> tuple[int, ...]:
        """Who voted for us."""
        return tuple(sorted(voter for voter, (yes, _) in self._votes.items() if yes))

    def ask_pre_votes(self) -> None:
        """Ask everybody whether we would win the next term."""
        log, hard, term = self._log, self._hard, self._hard.term + 1
        for peer in log.memberships.peers_of(self._node_id):
            self._outbox.send(PreVote(term, self._node_id, peer, log.last_index, log.last_term, hard.recovery))

    def ask_votes(self, transfer: bool) -> None:
        """Ask everybody for a vote in this term, once our own vote and log are durable."""
        log, term = self._log, self._hard.term
        for peer in log.memberships.peers_of(self._node_id):
            request = RequestVote(term, self._node_id, peer, log.last_index, log.last_term, transfer)
            self._outbox.send_when_durable(request, log.last_index)

    def count_own(self) -> VoteResult:
        """Count our own vote, if it is durable and not counted yet; how the ballot stands."""
        if self._node_id in self._votes or not self._outbox.hard_state_durable:
            return VoteResult.PENDING
        return self.count(self._node_id, True, self._hard.recovery)

    def on_pre_vote_reply(self, message: PreVoteReply) -> VoteResult:
        """Count an answer to this round of pre-votes; how the ballot stands."""
        asked = self._hard.term + 1 if message.agrees else self._hard.term
        # One who lost its disk may have led the term since. What its earlier life was told is no word for this one.
        ours = message.asked_in is None or message.asked_in == self._hard.recovery
        if message.term != asked or message.sender in self._votes or not ours:
            return VoteResult.PENDING
        return self.count(message.sender, self._grants(message), int(message.recovering))

    def on_vote_reply(self, message: RequestVoteReply) -> VoteResult:
        """Count a vote in this term; how the ballot stands."""
        if self._node_id not in self._votes or message.sender in self._votes:
            return VoteResult.PENDING
        return self.count(message.sender, self._grants(message), message.recovery)

    def count(self, voter: int, granted: bool, recovery: int) -> VoteResult:
        """Count one vote by the configurations in our log (R20); how the ballot stands."""
        if voter in self._votes:
            raise InvariantViolation("R10", f"a second vote of {voter} in term {self._hard.term}")
        memberships = self._log.memberships
        everybody, voters = memberships.everybody, memberships.newest.voters
        if voter not in everybody:
            return VoteResult.PENDING
        self._votes[voter] = (granted, recovery)
        # By the configuration in our log, as a vote is counted by whoever asked for it (dissertation, section 4.1).
        cast = [vote for voter, vote in self._votes.items() if voter in voters]
        others = [yes for voter, (yes, _) in self._votes.items() if voter not in voters]
        return vote_result(
            len(voters),
            grants=sum(1 for yes, number in cast if yes and not number),
            weak_grants=sum(1 for yes, number in cast if yes and number),
            rejections=sum(1 for yes, _ in cast if not yes),
            others=len(everybody - voters),
            other_grants=others.count(True),
            other_rejections=others.count(False),
        )

    def _grants(self, reply: PreVoteReply | RequestVoteReply) -> bool:
        """Whether the sender is for us: as a voter if our log takes it for one, else as a learner."""
        return reply.granted if self._log.memberships.may_campaign(reply.sender) else reply.consents


class Voter:
    """Answers those who ask for our vote (paper, sections 5.2 and 5.4.1). Has no state but what it is given."""

    __slots__ = ("_hard", "_log", "_node_id", "_outbox")

    def __init__(self, node_id: int, hard: HardStateKeeper, log: RaftLog, outbox: Outbox) -> None:
        self._node_id = node_id
        self._hard = hard
        self._log = log
        self._outbox = outbox

    def answer_pre_vote(self, message: PreVote, *, hears_leader: bool) -> None:
        """Say whether we would vote for the sender. That binds us to nothing, so two may be told yes."""
        hard = self._hard
        # Whoever hears its leader keeps it: a member that was cut off is no reason for an election (section 4.2.3).
        free = message.term > hard.term and not hears_leader
        granted, consents = self._agrees(message, free=free)
        # An answer of the term that was asked about cannot be taken for one to an earlier question; and a refusal tells
        # a candidate that is behind our term.
        term = message.term if granted or consents else hard.term
        asker, asked_in = message.sender, message.recovery
        reply = PreVoteReply(term, self._node_id, asker, granted, hard.recovering, consents, asked_in)
        self._outbox.send_when_durable(reply)

    def answer_vote_request(self, message: RequestVote, *, knows_leader: bool) -> bool:
        """Vote for the sender, once per term and not while a leader is known in it; whether we did."""
        hard = self._hard
        # A known leader has won this term already, also if we have forgotten our vote.
        free = hard.vote == message.sender or (hard.vote is None and not knows_leader)
        granted, consents = self._agrees(message, free=free)
        if granted or consents:
            hard.vote_for(message.sender)
        reply = RequestVoteReply(hard.term, self._node_id, message.sender, granted, hard.recovery, consents)
        self._outbox.send_when_durable(reply)
        return granted or consents

    def _agrees(self, message: PreVote | RequestVote, *, free: bool) -> tuple[bool, bool]:
        """Whether we are for a candidate as a voter, and as a learner. `free`: only our log can be against it."""
        log, hard = self._log, self._hard
        newest, votes = log.memberships.newest, log.memberships.may_campaign(self._node_id)
        # What a learner holds since it became one has committed nothing, whatever the candidate takes it for by now.
        since = max(newest.index, log.first_index - 1)
        through = since if newest.is_learner(self._node_id) and not votes else None
        yes = free and log.is_up_to_date(message.last_log_index, message.last_log_term, through)
        # Whoever takes us for a learner loses nothing with entries that are ours alone, even if we recover.
        return yes and not hard.id_may_be_reused(log.memberships), yes if votes else free
