"""The consensus core: events in, work out. No clock, socket, file, thread or chance inside.

The driver calls `tick` every 10 ms, `step` for every message, `propose` for every batch, and after each of them takes
`ready` until it is None. Raft: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (the paper);
Ongaro, "Consensus: Bridging Theory and Practice" (the dissertation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.member import LEADER, RaftConfig, Rng, Role, Write
from pidkeeper.controller.raft.membership import Membership, Memberships, plain_record
from pidkeeper.controller.raft.membership_change import MembershipChange
from pidkeeper.controller.raft.messages import (
    MAX_ENTRY_BYTES,
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
    SnapshotMeta,
    TimeoutNow,
)
from pidkeeper.controller.raft.progress import SNAPSHOT
from pidkeeper.controller.raft.ready import ChunkRequest, Ready
from pidkeeper.controller.raft.refusals import NotLeader, ProposalRefused
from pidkeeper.protocol.records import QuorumMember, VotersRecord

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


class RaftCore(MembershipChange):
    """One member of a quorum. Not thread-safe; every call returns at once.

    Read-only for the driver: role, term, leader_id, commit, applied, last_index, first_index, snapshot, recovering,
    progress, term_at, serving, transferring, membership, contacts, memberships_version.
    """

    __slots__ = ()

    def __init__(
        self,
        config: RaftConfig,
        rng: Rng,
        *,
        hard_state: HardState,
        snapshot: SnapshotMeta,
        entries: Sequence[Entry],
        leader_change_data: bytes,
        configured: VotersRecord | None = None,
        voters: VotersRecord | None = None,
    ) -> None:
        """Start from what is durable.

        snapshot: SnapshotMeta(0, 0) if there is none. entries: contiguous; those at or below `snapshot.index` serve
        slow followers. leader_change_data: the payload of the empty entry of a new leader. configured: the members of
        a blank cluster with their addresses, those of `config.voters` without any by default. voters: the
        configuration in the snapshot, if it holds one. Raises InvariantViolation if the parts contradict each other (a
        commit index past the log means that the log was lost), ValueError if the entries are not contiguous or leave
        a gap after the snapshot.
        """
        memberships = Memberships(configured or plain_record(config.voters), snapshot.index, voters)
        super().__init__(config, rng, hard_state, snapshot, entries, memberships, leader_change_data)

    @property
    def commit(self) -> int:
        """The highest index known to be committed."""
        return self.log.commit

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
    def serving(self) -> bool:
        """Whether this is a leader that has applied the empty entry of its own term, so all that came before it."""
        return self.role is LEADER and self.log.applied >= self._noop_index

    @property
    def membership(self) -> Membership:
        """The configuration in force."""
        return self.log.memberships.newest

    @property
    def memberships_version(self) -> int:
        """Changes whenever `membership` or `contacts` may have changed."""
        return self.log.memberships.version

    def contacts(self) -> list[QuorumMember]:
        """Everybody to whom messages may go: the members in force, and those whose removal is not committed yet."""
        return self.log.memberships.contacts()

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None if it was compacted or does not exist."""
        return self.log.term(index)

    def silent_ticks(self, peer: int) -> int:
        """As leader: the ticks since `peer` was last heard."""
        return self._now - self.progress[peer].heard

    def tick(self) -> None:
        """10 ms have passed."""
        self._now += 1
        if self.role is LEADER:
            self._tick_leader()
            return
        self._elapsed += 1
        if self._elapsed >= self._timeout:
            self._start_pre_vote()

    def step(self, message: Message) -> None:
        """Take a message from a peer; one that is not for us is ignored.

        Its sender need not be a member as far as we know, for we may not have the entry yet that made it one. Only
        whoever counts votes and acknowledgements looks at the configuration (dissertation, section 4.1).
        """
        if message.to != self.node_id or message.sender == self.node_id:
            return
        if message.term == self.term or self._settle_term(message):
            _HANDLERS[type(message)](self, message)
            self._follow_memberships()

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append `data`; its (term, index). It is committed when `Ready.committed` holds that index with that term.

        Raises NotLeader; ProposalRefused if a transfer is under way or the uncommitted bytes would pass their limit
        (an entry is always taken if nothing is uncommitted); ValueError if `data` is longer than MAX_ENTRY_BYTES.
        """
        if self.role is not LEADER:
            raise NotLeader(self.leader_id)
        size = len(data)
        if size > MAX_ENTRY_BYTES:
            raise ValueError(f"an entry of {size} bytes passes the limit of {MAX_ENTRY_BYTES}: split the batch")
        if self.transferring is not None:
            raise ProposalRefused(f"leadership is being transferred to {self.transferring}: retry there")
        if self._uncommitted_bytes and self._uncommitted_bytes + size > self.config.max_uncommitted_bytes:
            raise ProposalRefused(f"{self._uncommitted_bytes} bytes wait to be committed: retry later")
        index = self._append(data)
        self._broadcast_append()
        return self.term, index

    def transfer_leadership(self, target: int | None = None) -> None:
        """Hand over to `target`, or to the most caught-up voter (dissertation, section 3.10).

        Proposals are refused until it is done or an election timeout has passed. Raises NotLeader; ValueError if
        `target` is not another voter; ProposalRefused if `target`, or every other voter, is recovering.
        """
        if self.role is not LEADER:
            raise NotLeader(self.leader_id)
        others = sorted(self._voters - {self.node_id})
        if target is not None and target not in others:
            raise ValueError(f"{target} is not one of the other voters {others}")
        fit = [peer for peer in others if not self.progress[peer].recovery]
        if target is None and fit:
            target = max(fit, key=lambda peer: (self.progress[peer].match, self.progress[peer].heard, -peer))
        if target not in fit or target is None:
            raise ProposalRefused("no member can take over: it lost data and has not caught up yet")
        if target != self.transferring:
            self.transferring = target
            self._transfer_elapsed = 0
            self._send_append(target, self.progress[target])
            self._hand_over_if_caught_up()

    def link_lost(self, peer: int) -> None:
        """The connection to `peer` broke, so what was sent may be lost; if it led, it may be dead."""
        if self.role is LEADER:
            if peer in self._peers:
                self.progress[peer].become_probe()
        elif peer == self.leader_id:
            self.leader_id = None
            if self.node_id not in self._voters:
                return
            # In turns: if all of them began at once, none would win, and the next try is an election timeout away.
            turn = sorted(self._voters - {peer}).index(self.node_id)
            delay = turn * self.config.link_lost_ticks + self._rng.randrange(0, 2)
            if delay:
                self._timeout = self._elapsed + delay
            else:
                self._start_pre_vote()

    def link_up(self, peer: int) -> None:
        """A connection to `peer` exists: as leader, probe it at once."""
        if self.role is LEADER and peer in self._peers:
            self.progress[peer].probe_sent = False
            self._send_append(peer, self.progress[peer])

    def ready(self) -> Ready | None:
        """The next round of work, or None."""
        log = self.log
        token, hard_state, entries = None, None, []
        # Behind its last chunk a received snapshot raises the commit index on disk, and a write may not lower it again.
        restarting = self._installing is not None and not self._chunks
        if self._hard_dirty or log.submitted < log.last_index:
            if not restarting:
                entries = log.begin_write()
                token, hard_state = self._begin_write()
        elif self._parked:
            self._park_on_last_write()
        committed = log.deliver() if self._installing is None and log.delivered < log.commit else []
        messages, self._outbox = self._outbox, []
        chunks, self._chunks = self._chunks, []
        requests, self._chunk_requests = self._chunk_requests, []
        if token is None and not (messages or committed or chunks or requests):
            return None
        return Ready(token, hard_state, entries, messages, committed, chunks, requests)

    def written(self, token: int) -> None:
        """The write of the Ready with `token` is durable. Tokens come back in the order in which they were issued."""
        if not self._writes or token != self._last_written + 1:
            raise InvariantViolation("R13", f"write {token} is durable, but {self._last_written + 1} is the next one")
        write = self._writes.popleft()
        self._last_written = token
        self.log.write_done()
        if write.hard and not self._hard_dirty and not any(later.hard for later in self._writes):
            self._hard_durable = True
            self._count_own_vote()
        self._release(write)
        if self.role is LEADER:
            self._count_own_log(write.hard)
            self._follow_memberships()

    def applied_to(self, index: int) -> None:
        """The state machine has applied every entry through `index`. Raises InvariantViolation if it cannot have."""
        self.log.applied_to(index)

    def compact(self, snapshot: SnapshotMeta, keep_from: int) -> None:
        """The own snapshot `snapshot` is durable: drop entries below `keep_from`, which is at most one past it."""
        if snapshot.index > self.log.applied:
            raise InvariantViolation("R12", f"snapshot {snapshot} covers more than was applied, {self.log.applied}")
        if keep_from > snapshot.index + 1:
            raise InvariantViolation("R12", f"entries below {keep_from} are not all covered by snapshot {snapshot}")
        if snapshot.index > self.snapshot.index:
            self.snapshot = snapshot
        self.log.compact(keep_from)

    def _tick_leader(self) -> None:
        if self.node_id not in self._voters and self.log.memberships.committed:
            raise InvariantViolation("R18", f"{self.node_id} leads, but the voters are {sorted(self._voters)}")
        self._check_quorum()
        if self.role is not LEADER:
            return
        if self.transferring is not None:
            self._transfer_elapsed += 1
            if self._transfer_elapsed >= self.config.election_ticks:
                self.transferring = None
        self._heartbeat_elapsed += 1
        if self._heartbeat_elapsed >= self.config.heartbeat_ticks:
            self._heartbeat_elapsed = 0
            for peer in self._peers:
                progress = self.progress[peer]
                self._send_heartbeat(peer, progress)
                if progress.state is SNAPSHOT:
                    self._nudge_snapshot(peer, progress)

    def _settle_term(self, message: Message) -> bool:
        """Compare a message's term, which is not ours, with ours (paper, section 5.1); whether to go on with it."""
        if message.term < self.term:
            return self._answer_stale(message)
        kind = type(message)
        if kind is PreVote or (isinstance(message, PreVoteReply) and message.agrees):
            return True
        if isinstance(message, RequestVote) and not message.transfer and self._hears_leader():
            return False
        self._become_follower(message.term, message.sender if kind in _FROM_LEADER else None)
        return True

    def _answer_stale(self, message: Message) -> bool:
        """A peer that is behind learns our term, so that a deposed leader steps down and a candidate moves on."""
        kind = type(message)
        if kind is PreVote:
            return True
        peer = message.sender
        if kind is RequestVote:
            self._send_when_durable(RequestVoteReply(self.term, self.node_id, peer, False, self._recovery))
        elif kind in _FROM_LEADER and kind is not TimeoutNow:
            reply = AppendEntriesReply(self.term, self.node_id, peer, True, 0, 0, 0, 0, self._recovery, self._learns)
            self._send_when_durable(reply)
        return False

    def _begin_write(self) -> tuple[int, HardState | None]:
        token = (self._writes[-1].token if self._writes else self._last_written) + 1
        hard_state = None
        if self._hard_dirty or self.log.commit != self._persisted_commit:
            hard_state = HardState(self.term, self.vote, self.log.commit, self.recovering)
            self._persisted_commit = self.log.commit
        self._writes.append(Write(token, self._hard_dirty, self._parked))
        self._hard_dirty = False
        self._parked = []
        return token, hard_state

    def _park_on_last_write(self) -> None:
        """Nothing new to write: the youngest write under way, if any, covers all that the parked messages rest on."""
        parked, self._parked = self._parked, []
        if self._writes:
            self._writes[-1].parked.extend(parked)
        else:
            self._release(Write(self._last_written, False, parked))

    def _count_own_log(self, hard: bool) -> None:
        """As leader: our own acknowledgement."""
        own = self.progress[self.node_id]
        own.match = self.log.stable
        own.check()
        if hard:
            self._settle()
        if not self.recovering and self._hard_durable:
            own.counted = own.match
        self._maybe_commit()


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
