"""The consensus core: events in, work out. No clock, socket, file, thread or chance inside.

The driver calls `tick` every 10 ms, `step` for every message, `propose` for every batch, and after each of them takes
`ready` until it is None. Raft: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (the paper);
Ongaro, "Consensus: Bridging Theory and Practice" (the dissertation).

Every fact has one owner. Only the owner writes it; the others read it, or call a method of the owner.

| part | exists | owns |
| --- | --- | --- |
| `HardStateKeeper` | always | term, vote, whether this member recovers, and the number of the recovery |
| `RaftLog` | always | entries, what is durable, committed and applied, the configurations, the own snapshot |
| `Outbox` | always | messages, the writes under way and what rests on them, requests for snapshot chunks |
| `ElectionTimer` | always | how long no leader was heard, and how long that may be |
| `TermJumps` | always | which peers brought terms far ahead of ours, and when |
| `DiskPace` | always | how long our oldest write has been under way, and whether our disk is slow |
| `SnapshotReceiver` | always | received chunks for the driver, the snapshot that is being installed |
| `Voter` | always | nothing: it answers those who ask for a vote |
| `ElectionTally` | always | counts of elections and lost leaders, for others to look at |
| `Following` | while a leader is followed | what this leader is known to share with us, what it sent of a snapshot |
| `Ballot` | while we campaign | the votes for us |
| `Leadership` | while we lead | a `Progress` each, `Commitment`, `DurabilityLag`, `LeadershipTransfer`, its clock |
| `RaftCore` | always | the role, and which of the last three parts exists: one at most |

So nothing that was learnt in one role, term or from one leader can be taken for what holds in another. The parts hold
references to those above them in the table and never to the core: a part that finds out that the role is to change
returns that, and the core changes it. Messages arrive in `step`, where their terms are compared with ours, and nowhere
else; behind it every message is of our term, but for pre-votes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pidkeeper.controller.raft.config import MISSED_HEARTBEATS, RaftConfig
from pidkeeper.controller.raft.disk_pace import DiskPace
from pidkeeper.controller.raft.election_tally import ElectionCause, ElectionOutcome, ElectionTally, LossCause
from pidkeeper.controller.raft.election_timer import ElectionTimer
from pidkeeper.controller.raft.elections import Ballot, Voter
from pidkeeper.controller.raft.following import Following
from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.leadership import Leadership
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.membership import Membership, Memberships, plain_record
from pidkeeper.controller.raft.membership_change import MembershipChange
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from pidkeeper.controller.raft.outbox import Outbox
from pidkeeper.controller.raft.progress import Progress
from pidkeeper.controller.raft.quorum import VoteResult
from pidkeeper.controller.raft.ready import ChunkRequest, Ready
from pidkeeper.controller.raft.refusals import NotLeader, ProposalRefused
from pidkeeper.controller.raft.rng import Rng
from pidkeeper.controller.raft.role import CANDIDATE, FOLLOWER, LEADER, PRE_CANDIDATE, Role
from pidkeeper.controller.raft.snapshot_receiver import SnapshotReceiver
from pidkeeper.controller.raft.term_jumps import MAX_TERM_JUMP, TermJumps
from pidkeeper.protocol.records import QuorumMember, VotersRecord, encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId

__all__ = [
    "ChunkRequest",
    "InvariantViolation",
    "NotLeader",
    "ProposalRefused",
    "RaftConfig",
    "RaftCore",
    "Ready",
    "Rng",
    "Role",
]

_NOBODY: Final[Mapping[int, Progress]] = MappingProxyType({})
"""What a member that does not lead knows of the others' progress."""


class RaftCore:
    """One member of a quorum. Not thread-safe; every call returns at once.

    Read-only for the driver: role, term, leader_id, commit, applied, last_index, first_index, snapshot, recovering,
    progress, term_at, serving, transferring, membership, members, contacts, memberships_version, disk, tally.
    """

    __slots__ = (
        "_ballot",
        "_following",
        "_hard",
        "_leader_change_data",
        "_names_voters",
        "_outbox",
        "_receiver",
        "_term_jumps",
        "_timer",
        "_voter",
        "config",
        "disk",
        "leadership",
        "log",
        "node_id",
        "role",
        "tally",
    )

    def __init__(
        self,
        config: RaftConfig,
        rng: Rng,
        *,
        hard_state: HardState,
        snapshot: SnapshotId,
        entries: Sequence[Entry],
        leader_change_data: bytes,
        configured: VotersRecord | None = None,
        voters: VotersRecord | None = None,
    ) -> None:
        """Start from what is durable.

        snapshot: SnapshotId(0, 0) if there is none. entries: contiguous; those at or below `snapshot.index` serve
        slow followers. leader_change_data: the payload of the empty entry of a new leader. configured:
        `config.voters` with their addresses, without any by default. voters: the configuration in the snapshot, if it
        holds one. Raises InvariantViolation if the parts contradict each other (a
        commit index past the log means that the log was lost), ValueError if the entries are not contiguous or leave
        a gap after the snapshot.
        """
        memberships = Memberships(configured or plain_record(config.voters), snapshot.index, voters)
        self.config = config
        self.node_id = config.node_id
        self._leader_change_data = leader_change_data
        self._names_voters = False
        self._hard = HardStateKeeper(config, rng, hard_state)
        self.log = RaftLog(snapshot, entries, memberships)
        if self.log.last_term > self.term:
            raise InvariantViolation("R1", f"term {self.term}, but the log holds an entry of term {self.log.last_term}")
        # A member that lost the tail of its log has also lost committed entries; they come back from the leader.
        self.log.commit_to(min(hard_state.commit, self.log.last_index) if self.recovering else hard_state.commit)
        self._outbox = Outbox(self._hard, self.log, hard_state.commit)
        self._timer = ElectionTimer(config, rng)
        self._term_jumps = TermJumps()
        self.disk = DiskPace(config.election_ticks)
        self.tally = ElectionTally()
        self._receiver = SnapshotReceiver()
        self._voter = Voter(config.node_id, self._hard, self.log, self._outbox)
        # FOLLOWER at the start. Changed by the `_become_` methods alone, together with the three parts below.
        self.role = FOLLOWER
        # Set only while a leader of our term is followed, so only as FOLLOWER; None as FOLLOWER if none is known.
        self._following: Following | None = None
        # Set exactly while PRE_CANDIDATE or CANDIDATE, and a new one for each of the two.
        self._ballot: Ballot | None = None
        # Set exactly while LEADER.
        self.leadership: Leadership | None = None

    # What the driver may read.

    @property
    def term(self) -> int:
        """The newest term that this member knows."""
        return self._hard.term

    @property
    def vote(self) -> int | None:
        """Whom this member voted for in its term."""
        return self._hard.vote

    @property
    def recovering(self) -> bool:
        """Whether this member has lost data and has not got it back yet."""
        return self._hard.recovering

    @property
    def leader_id(self) -> int | None:
        """Who leads our term, as far as is known."""
        if self._following is not None:
            return self._following.leader_id
        return None if self.leadership is None else self.node_id

    @property
    def commit(self) -> int:
        """The highest index known to be committed."""
        return self.log.commit

    @property
    def submitted_commit(self) -> int:
        """The commit index that was last handed out for writing: a restart knows of no higher one."""
        return self._outbox.submitted_commit

    @property
    def applied(self) -> int:
        """The highest index that the driver reported as applied."""
        return self.log.applied

    @property
    def last_index(self) -> int:
        """The end of the log, durable or not."""
        return self.log.last_index

    @property
    def first_index(self) -> int:
        """The lowest index whose entry is at hand."""
        return self.log.first_index

    @property
    def snapshot(self) -> SnapshotId:
        """The newest durable snapshot of this member."""
        return self.log.snapshot

    @property
    def installing(self) -> SnapshotId | None:
        """The received snapshot that the driver is putting in the log's place."""
        return self._receiver.installing

    @property
    def receiving(self) -> bool:
        """Whether a snapshot is being received or installed."""
        return self.installing is not None or (self._following is not None and self._following.receiving)

    @property
    def serving(self) -> bool:
        """Whether this is a leader that has applied the empty entry of its own term, so all that came before it."""
        return self.leadership is not None and self.log.applied >= self.leadership.noop_index

    @property
    def misses_leader(self) -> bool:
        """Whether this is a voter that knows no leader, or has not heard from it for MISSED_HEARTBEATS."""
        if self.leadership is not None or not self._may_campaign:
            return False
        return self._following is None or self._timer.elapsed > MISSED_HEARTBEATS * self.config.heartbeat_ticks

    @property
    def progress(self) -> Mapping[int, Progress]:
        """As leader: the progress of everybody, itself included, by id."""
        return _NOBODY if self.leadership is None else self.leadership.progress

    @property
    def transferring(self) -> int | None:
        """As leader: the member to which it hands over."""
        return None if self.leadership is None else self.leadership.transferring

    @property
    def membership(self) -> Membership:
        """The configuration in force."""
        return self.log.memberships.newest

    @property
    def voters(self) -> frozenset[int]:
        """By whom this member counts votes and acknowledgements: the voters of the configuration in force (R20)."""
        return self.membership.voters if self.leadership is None else self.leadership.voters

    @property
    def committed_voters(self) -> tuple[QuorumMember, ...]:
        """The voters of the newest configuration that is known to be committed, with their addresses alone."""
        memberships = self.log.memberships
        members = memberships.members_of(memberships.configurations[0])
        return tuple(QuorumMember(one.id, None, one.peer, one.http, True) for one in members if one.voting)

    @property
    def members(self) -> list[QuorumMember]:
        """The members of the configuration in force, by id, each where it is reached."""
        return self.log.memberships.members_of(self.membership)

    @property
    def memberships_version(self) -> int:
        """Changes whenever `membership` or `contacts` may have changed."""
        return self.log.memberships.version

    @property
    def terms_refused(self) -> Mapping[int, int]:
        """How many terms of each peer were too far ahead, or came too soon after another that was."""
        return self._term_jumps.refused

    def contacts(self) -> list[QuorumMember]:
        """Everybody to whom messages may go: the members in force, and those whose removal is not committed yet."""
        return self.log.memberships.contacts()

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None if it was compacted or does not exist."""
        return self.log.term(index)

    def silent_ticks(self, peer: int) -> int:
        """As leader: the ticks since `peer` was last heard. Raises NotLeader."""
        leadership = self._require_leadership()
        return leadership.now - leadership.progress[peer].heard

    # Events.

    def tick(self) -> None:
        """10 ms have passed."""
        self._term_jumps.tick()
        self.disk.tick(self._outbox.oldest_write)
        if self.leadership is not None:
            if not self.leadership.tick():
                self._become_follower(self.term, LossCause.NO_QUORUM)
        # Whose disk is slow leaves the others the time to stand first: it would hold up the quorum as its leader.
        elif self._timer.tick(self.config.election_ticks if self.disk.slow else 0):
            self._become_pre_candidate()

    def step(self, message: Message) -> None:
        """Take a message from a peer; one that is not for us is ignored.

        Its sender need not be a member as far as we know, for we may not have the entry yet that made it one. Only
        whoever counts votes and acknowledgements looks at the configuration (dissertation, section 4.1).
        """
        if message.to != self.node_id or message.sender == self.node_id:
            return
        if message.term == self._hard.term or self._settle_term(message):
            _HANDLERS[type(message)](self, message)
            if self.leadership is not None:
                self._follow_memberships(self.leadership)

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append `data`; its (term, index). It is committed when `Ready.committed` holds that index with that term.

        Raises NotLeader; ProposalRefused if a transfer is under way or the uncommitted bytes would pass their limit
        (an entry is always taken if nothing is uncommitted); ValueError if `data` is longer than MAX_ENTRY_BYTES.
        """
        if self.leadership is None:
            raise NotLeader(self.leader_id)
        return self._hard.term, self.leadership.propose(data)

    def change_members(self, record: VotersRecord) -> tuple[int, int]:
        """Append the configuration `record`, which is in force from now on; its (term, index).

        Raises NotLeader; ValueError if it differs from the one in force in more than one member, or makes a voter of
        what is no learner; ProposalRefused if the change before or our term's first entry is not committed, if a new
        voter has not caught up, or if the new voters could not commit anything now.
        """
        leadership = self._require_leadership()
        MembershipChange(self.config, self.log, leadership).check(record)
        return self._hard.term, leadership.append_configuration(encode_batch([record]))

    def transfer_leadership(self, target: int | None = None) -> None:
        """Hand over to `target`, or to the lowest id that keeps up (dissertation, section 3.10).

        Proposals are refused until it is done or an election timeout has passed. Raises NotLeader; ValueError if
        `target` is not another voter; ProposalRefused if `target`, or every other voter, is recovering.
        """
        self._require_leadership().transfer_to(target)

    def link_lost(self, peer: int) -> None:
        """The connection to `peer` broke, so what was sent may be lost; if it led, it may be dead."""
        if self.leadership is not None:
            self.leadership.link_lost(peer)
        elif self._following is not None and self._following.leader_id == peer:
            self.tally.lose(LossCause.DISCONNECTED)
            self._following = None
            voters = self.membership.voters
            if self.node_id in voters:
                # By id, which is the same order for everybody: so each has a turn of its own.
                turn = sorted(voters - {peer}).index(self.node_id)
                if self._timer.wait_for_turn(turn) and not self.disk.slow:
                    self._become_pre_candidate()

    def join(self, voters: VotersRecord) -> None:
        """Count by these voters, until the log or a snapshot holds others; before there is any of these.

        A blank member is told by those who were founded. Raises InvariantViolation if this one is not blank.
        """
        if self.term or self.log.last_index:
            raise InvariantViolation("R16", f"in term {self.term}, with a log to {self.log.last_index}")
        self.log.memberships.configure(voters)

    def name_voters(self) -> None:
        """From now on whoever leads sees that the log says who the voters are; called once all members can read it.

        A leader whose log does not say so writes down by whom it counts (KIP-853): with its first entry, so that nobody
        holds anything of its term without that; or at once, if it leads already. It is a change of nobody, so none of
        what makes changes wait is needed.
        """
        if self._names_voters:
            return
        self._names_voters = True
        if self.leadership is not None and not self.membership.index:
            self.leadership.append_configuration(encode_batch([self.membership.record]))

    def link_up(self, peer: int) -> None:
        """A connection to `peer` exists: as leader, probe it at once."""
        if self.leadership is not None:
            self.leadership.link_up(peer)

    def ready(self) -> Ready | None:
        """The next round of work, or None."""
        log, receiver = self.log, self._receiver
        may_write = not receiver.restarts_log
        # While a snapshot is installed, nothing is applied to the state machine that it will replace.
        committed = log.deliver() if log.delivered < log.commit and receiver.installing is None else []
        chunks = receiver.take_chunks() if receiver.chunks else []
        return self._outbox.take(committed, chunks, may_write)

    def written(self, token: int) -> None:
        """The write of the Ready with `token` is durable. Tokens come back in the order in which they were issued."""
        outbox = self._outbox
        write = outbox.written(token)
        # A candidate's own vote may be durable by now. It counts before anything that rests on the write leaves.
        if self._ballot is not None and self.role is CANDIDATE:
            self._conclude(self._ballot, self._ballot.count_own())
        outbox.release(write)
        if self.leadership is not None:
            self.leadership.written(write.hard)
            self._follow_memberships(self.leadership)

    def applied_to(self, index: int) -> None:
        """The state machine has applied every entry through `index`. Raises InvariantViolation if it cannot have."""
        self.log.applied_to(index)

    def tail(self, high: int, max_entries: int, max_bytes: int) -> int:
        """From which index on at most `max_entries` that take `max_bytes` lead up to `high`; see `RaftLog`."""
        return self.log.tail(high, max_entries, max_bytes)

    @property
    def needed_from(self) -> int:
        """The first entry that this leader still has to send to a member that it hears; past the log's end if none."""
        return self.last_index + 1 if self.leadership is None else self.leadership.needed_from

    def compact(self, snapshot: SnapshotId, keep_from: int) -> None:
        """The own snapshot `snapshot` is durable: drop entries below `keep_from`, which is at most one past it."""
        if snapshot.index > self.log.applied:
            raise InvariantViolation("R12", f"snapshot {snapshot} covers more than was applied, {self.log.applied}")
        if keep_from > snapshot.index + 1:
            raise InvariantViolation("R12", f"entries below {keep_from} are not all covered by snapshot {snapshot}")
        self.log.snapshot_taken(snapshot)
        self.log.compact(keep_from)

    def snapshot_installed(self, snapshot: SnapshotId, voters: VotersRecord | None = None) -> None:
        """The received `snapshot` is durable and the state machine restored from it; the log goes on behind it.

        voters: the configuration that it holds; None if it holds none, as while the configured one was in force.
        """
        self._receiver.finish(snapshot)
        if self.leadership is not None:
            raise InvariantViolation("R6", f"a leader cannot replace its log by snapshot {snapshot}")
        self.log.restore(snapshot, voters)
        # The configuration came with the snapshot, so we may learn by it that we are no voter.
        if not self._may_campaign and self.role is not FOLLOWER:
            self._become_follower(self.term)
        if self._following is not None:
            self._following.snapshot_installed(snapshot)

    def snapshot_failed(self, snapshot: SnapshotId) -> None:
        """The received `snapshot` is unusable: forget it; the leader will send it from the start."""
        self._receiver.abandon(snapshot)

    # Terms (paper, section 5.1).

    def _settle_term(self, message: Message) -> bool:
        """Compare a message's term, which is not ours, with ours; whether to go on with it."""
        if message.term < self.term:
            return self._answer_stale(message)
        kind, jump = type(message), message.term - self.term
        if not self._term_jumps.bears(message.sender, jump):
            if self._term_jumps.step(message.sender):
                self._become_follower(self.term + MAX_TERM_JUMP)
            return False
        # A pre-vote is of the term after the sender's, and so is an answer that agrees: neither has been entered.
        if kind is PreVote or (isinstance(message, PreVoteReply) and message.agrees):
            return True
        # Not even the term is taken over: else a removed member that does not know so would depose every leader.
        if isinstance(message, RequestVote) and not message.transfer and self._hears_leader():
            return False
        if not self._term_jumps.take(message.sender, jump):
            return False
        self._become_follower(message.term)
        if kind in _FROM_LEADER:
            self._follow(message.sender)
        return True

    def _answer_stale(self, message: Message) -> bool:
        """A peer that is behind learns our term, so that a deposed leader steps down and a candidate moves on."""
        kind = type(message)
        # `Voter` refuses it, and the refusal carries our term.
        if kind is PreVote:
            return True
        hard, peer = self._hard, message.sender
        if kind is RequestVote:
            self._outbox.send_when_durable(RequestVoteReply(hard.term, self.node_id, peer, False, hard.recovery))
        elif kind in _FROM_LEADER and kind is not TimeoutNow:
            reused = hard.id_may_be_reused(self.log.memberships)
            reply = AppendEntriesReply(hard.term, self.node_id, peer, True, 0, 0, 0, 0, hard.recovery, reused)
            self._outbox.send_when_durable(reply)
        return False

    # Changes of the role (paper, figure 4).

    def _become_follower(self, term: int, why: LossCause | None = None) -> None:
        """Enter `term`, or stay in it, and follow nobody as yet. why: by default because a newer term came."""
        if self.leadership is not None:
            self.tally.lose(why or self.leadership.end_by_newer_term)
        elif self._following is not None:
            self.tally.lose(LossCause.SUPERSEDED)
        self._end_election(ElectionOutcome.SUPERSEDED)
        # The vote stays while the term does: it was given in the term, whatever the role becomes.
        self._hard.advance_term(term)
        self.role = FOLLOWER
        self._ballot = self.leadership = self._following = None
        self._timer.draw()

    def _follow(self, leader: int) -> Following:
        """As follower that knows no leader in its term: `leader` leads it."""
        following = Following(leader, self.node_id, self._hard, self.log, self._outbox, self._receiver)
        self._following = following
        self._term_jumps.leaderless = False
        return following

    def _become_pre_candidate(self) -> None:
        """The election timeout has passed. Whoever cannot stand now, or may not, only forgets the leader."""
        if self._following is not None:
            self.tally.lose(LossCause.SILENT)
            self._following = None
        self._term_jumps.leaderless = True
        self._timer.draw()
        # Our own vote would wait behind the write that stalls, and the new term with it.
        if not self._may_campaign or self.disk.stalled:
            return
        self._end_election(ElectionOutcome.TIMED_OUT)
        self.tally.begin()
        self.role = PRE_CANDIDATE
        self._ballot = ballot = Ballot(self.node_id, self._hard, self.log, self._outbox)
        # A pre-vote binds us to nothing, so ours counts whether the hard state is durable or not.
        self._conclude(ballot, ballot.count(self.node_id, True, self._hard.recovery))
        if self.role is PRE_CANDIDATE:
            ballot.ask_pre_votes()

    def _become_candidate(self, transfer: bool) -> None:
        """Stand in the next term. Our own vote counts, and the requests leave, once it is durable."""
        if not self._may_campaign:
            raise InvariantViolation("R19", f"{self.node_id} is not among the voters {sorted(self.membership.voters)}")
        if transfer:
            if self._following is not None:
                self.tally.lose(LossCause.TRANSFER)
            self._end_election(ElectionOutcome.SUPERSEDED)
            self.tally.begin(ElectionCause.TRANSFER)
        self._hard.advance_term(self.term + 1)
        self._hard.vote_for(self.node_id)
        self.role = CANDIDATE
        self._following = None
        self._ballot = Ballot(self.node_id, self._hard, self.log, self._outbox)
        self._timer.draw()
        self._ballot.ask_votes(transfer)

    def _become_leader(self, ballot: Ballot) -> None:
        self._end_election(ElectionOutcome.WON)
        self.tally.won_by = ballot.granted
        self.role = LEADER
        self._ballot = None
        self._term_jumps.leaderless = False
        self.leadership = Leadership(self.config, self._hard, self.log, self._outbox, self._leader_change_data)
        unnamed = self._names_voters and not self.membership.index
        first = encode_batch([self.membership.record]) if unnamed else self._leader_change_data
        self.leadership.begin(first, ballot.recoveries)

    def _heed_leader(self, leader: int) -> Following:
        """`leader` has sent what only the leader of our term sends: follow it, and wait for a timeout from now on."""
        following = self._following
        if following is None or following.leader_id != leader:
            if self.leader_id is not None:
                raise InvariantViolation("R14", f"{leader} and {self.leader_id} both lead term {self.term}")
            # As pre-candidate or candidate, too: the election of this term is decided.
            self._become_follower(self.term)
            following = self._follow(leader)
        self._timer.restart()
        return following

    def _follow_memberships(self, leadership: Leadership) -> None:
        """Called after every input as leader: the log may hold other configurations than before it.

        A configuration is in force when it is appended, and the one before can only come back when a follower's log is
        cut. So a leader's change when it appends one, and when it learns that one is committed.
        """
        if leadership.memberships_version != self.log.memberships.version:
            leadership.adopt_memberships()
            if leadership.is_removed:
                leadership.name_successor()
                self._become_follower(self.term, LossCause.REMOVED)

    def _end_election(self, outcome: ElectionOutcome) -> None:
        """Count what comes of the election under way, if there is one; called before the role changes."""
        self.tally.end(ElectionOutcome.PRE_VOTE_FAILED if self.role is PRE_CANDIDATE else outcome)

    def _require_leadership(self) -> Leadership:
        if self.leadership is None:
            raise NotLeader(self.leader_id)
        return self.leadership

    @property
    def _may_campaign(self) -> bool:
        return self.log.memberships.may_campaign(self.node_id)

    def _hears_leader(self) -> bool:
        """Whether a leader was heard within the minimum election timeout (dissertation, section 4.2.3)."""
        return self.leadership is not None or (self._following is not None and self._timer.below_minimum)

    # Votes.

    def _conclude(self, ballot: Ballot, result: VoteResult) -> None:
        if result is VoteResult.LOST:
            self._end_election(ElectionOutcome.LOST)
            self._become_follower(self.term)
        elif result is VoteResult.WON and self.role is PRE_CANDIDATE:
            self._become_candidate(transfer=False)
        elif result is VoteResult.WON:
            self._become_leader(ballot)

    def _on_pre_vote(self, message: PreVote) -> None:
        self._voter.answer_pre_vote(message, hears_leader=self._hears_leader())

    def _on_pre_vote_reply(self, message: PreVoteReply) -> None:
        if self._ballot is not None and self.role is PRE_CANDIDATE:
            self._conclude(self._ballot, self._ballot.on_pre_vote_reply(message))

    def _on_vote_request(self, message: RequestVote) -> None:
        if self._voter.answer_vote_request(message, knows_leader=self.leader_id is not None):
            self._timer.draw()

    def _on_vote_reply(self, message: RequestVoteReply) -> None:
        if self._ballot is not None and self.role is CANDIDATE:
            self._conclude(self._ballot, self._ballot.on_vote_reply(message))

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        """The leader hands over. A member that is recovering would need every vote, so it stays.

        So does one whose own vote would wait behind a write that stalls.
        """
        # A leader named us, so we need not ask first whether we would win, nor wait until others miss the leader.
        fit = not self.recovering and self._may_campaign and not self.disk.stalled
        if self.role in {FOLLOWER, PRE_CANDIDATE} and fit:
            self._become_candidate(transfer=True)

    # Messages of a leader, and the answers to them.

    def _on_append(self, message: AppendEntries) -> None:
        self._heed_leader(message.sender).append(message)

    def _on_heartbeat(self, message: Heartbeat) -> None:
        self._heed_leader(message.sender).heartbeat(message)

    def _on_snapshot(self, message: InstallSnapshot) -> None:
        self._heed_leader(message.sender).take_snapshot(message)

    def _on_append_reply(self, message: AppendEntriesReply) -> None:
        if self.leadership is not None:
            self.leadership.on_append_reply(message)

    def _on_heartbeat_reply(self, message: HeartbeatReply) -> None:
        if self.leadership is not None:
            self.leadership.on_heartbeat_reply(message)

    def _on_snapshot_reply(self, message: InstallSnapshotReply) -> None:
        if self.leadership is not None:
            self.leadership.on_snapshot_reply(message)


_FROM_LEADER: Final = frozenset({AppendEntries, Heartbeat, InstallSnapshot, TimeoutNow})

_HANDLERS: Final[dict[type, Callable[[RaftCore, Any], None]]] = {
    PreVote: RaftCore._on_pre_vote,
    PreVoteReply: RaftCore._on_pre_vote_reply,
    RequestVote: RaftCore._on_vote_request,
    RequestVoteReply: RaftCore._on_vote_reply,
    AppendEntries: RaftCore._on_append,
    AppendEntriesReply: RaftCore._on_append_reply,
    Heartbeat: RaftCore._on_heartbeat,
    HeartbeatReply: RaftCore._on_heartbeat_reply,
    InstallSnapshot: RaftCore._on_snapshot,
    InstallSnapshotReply: RaftCore._on_snapshot_reply,
    TimeoutNow: RaftCore._on_timeout_now,
}
"""What is done with a message of our term."""
