"""Log replication: the leader's side and the follower's (Raft paper, section 5.3; dissertation, section 10.2.1).

A new commit index travels on the next AppendEntries, else on the next heartbeat: a message of its own would double the
messages per entry, and a follower that applies a little later costs nobody anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.member import LEADER, Member, RaftConfig, Rng
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    SnapshotMeta,
    TimeoutNow,
)
from pidkeeper.controller.raft.progress import REPLICATE, SNAPSHOT, Progress
from pidkeeper.controller.raft.quorum import majority_index
from pidkeeper.controller.raft.ready import ChunkRequest


class Replication(Member):
    """Send, take and acknowledge entries; move the commit index."""

    __slots__ = (
        "_counting",
        "_heartbeat_elapsed",
        "_installing",
        "_leader_change_data",
        "_noop_index",
        "_transfer_elapsed",
        "_unanimous",
        "_uncommitted_bytes",
        "_unsettled",
        "transferring",
    )

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
        # As leader: the progress of the voters, and of everybody.
        self._counting: list[Progress] = []
        self._unanimous: list[Progress] = []
        super().__init__(config, rng, hard_state, snapshot, entries, memberships)
        self._leader_change_data = leader_change_data
        self._heartbeat_elapsed = 0
        self._noop_index = 0
        self._uncommitted_bytes = 0
        self._unsettled = False
        self.transferring: int | None = None
        self._transfer_elapsed = 0
        # The received snapshot that the driver is putting in the log's place.
        self._installing: SnapshotMeta | None = None

    def _become_follower(self, term: int, leader: int | None) -> None:
        super()._become_follower(term, leader)
        self.transferring = None

    def _adopt_memberships(self) -> None:
        if self.role is not LEADER:
            super()._adopt_memberships()
            return
        for peer in sorted(self.progress.keys() - self.log.memberships.everybody - {self.node_id}):
            # Its removal is committed: the last that it hears of us is just that, even while a probe is on its way.
            progress = self.progress.pop(peer)
            progress.probe_sent = False
            self._send_append(peer, progress)
        super()._adopt_memberships()
        self._track_members()
        self._settle()

    # The leader's side.

    def _track_members(self) -> None:
        """Keep a progress for everybody, and for ourselves; which of them count where."""
        config = self.config
        for member in sorted(self._everybody | {self.node_id}):
            if member not in self.progress:
                self.progress[member] = Progress(
                    self.log.last_index + 1, self._now, config.max_inflight_messages, config.max_inflight_bytes
                )
        self._counting = [self.progress[voter] for voter in sorted(self._voters)]
        self._unanimous = [self.progress[member] for member in sorted(self._everybody)]

    def _append(self, data: bytes) -> int:
        """Add an entry of our term to our own log; its index."""
        index = self.log.last_index + 1
        self.log.append(Entry(self.term, index, data))
        self._uncommitted_bytes += len(data)
        self.progress[self.node_id].next = index + 1
        return index

    def _broadcast_append(self) -> None:
        for peer in self._peers:
            self._send_append(peer, self.progress[peer])

    def _send_append(self, peer: int, progress: Progress) -> None:
        """Send the next entries to `peer`, none if it has them all, as far as flow control allows."""
        if progress.paused:
            return
        log, config = self.log, self.config
        prev = progress.next - 1
        prev_term = log.term(prev)
        if prev_term is None:
            self._start_snapshot(peer, progress)
            return
        entries = log.page(prev + 1, config.max_append_bytes) if prev < log.last_index else []
        self._outbox.append(AppendEntries(self.term, self.node_id, peer, prev, prev_term, log.commit, entries))
        if progress.state is not REPLICATE:
            progress.probe_sent = True
        elif entries:
            progress.sent(prev + len(entries), sum([len(entry.data) for entry in entries]))

    def _start_snapshot(self, peer: int, progress: Progress) -> None:
        """The entries that `peer` needs are gone: send it our newest snapshot, chunk by chunk."""
        progress.become_snapshot(self.snapshot, self._now)
        self._request_chunk(peer, progress, 0)

    def _request_chunk(self, peer: int, progress: Progress, offset: int) -> None:
        if progress.snapshot is not None:
            progress.offset = offset
            progress.asked = self._now
            self._chunk_requests.append(ChunkRequest(self.term, peer, progress.snapshot, offset))

    def _send_heartbeat(self, peer: int, progress: Progress) -> None:
        commit = min(progress.match, self.log.commit)
        recovered = progress.recovery if self._may_end_recovery(progress) else 0
        self._outbox.append(Heartbeat(self.term, self.node_id, peer, commit, recovered, self.log.term(commit) or 0))

    def _on_append_reply(self, message: AppendEntriesReply) -> None:
        peer = message.sender
        progress = self.progress.get(peer)
        if progress is None:
            return
        progress.heard = self._now
        progress.estranged = message.learner and self.log.memberships.may_campaign(peer)
        if message.recovery != progress.recovery:
            self._note_recovery(progress, message.recovery)
        if message.rejected:
            self._on_rejection(peer, progress, message)
            return
        index = message.match_index
        if index > self.log.last_index:
            raise InvariantViolation("R9", f"{peer} acknowledged {index}, but our log ends at {self.log.last_index}")
        news = progress.acknowledge(index)
        if message.recovery == 0 and index > progress.counted:
            progress.counted = index
            self._maybe_commit()
        elif news and message.recovery:
            self._maybe_commit()
            self._tell_recovered()
        if progress.state is SNAPSHOT and progress.match >= self.log.first_index - 1:
            progress.become_probe()
        if progress.next <= self.log.last_index:
            self._send_append(peer, progress)
        if peer == self.transferring:
            self._hand_over_if_caught_up()

    def _on_rejection(self, peer: int, progress: Progress, message: AppendEntriesReply) -> None:
        rejected = message.rejected_index
        if message.recovery and rejected <= progress.match:
            progress.forget_match(rejected + 1)
        hint = message.hint_index
        if message.hint_term:
            hint, _ = self.log.find_conflict_by_term(hint, message.hint_term)
        if progress.reject(rejected, hint):
            self._send_append(peer, progress)

    def _on_heartbeat_reply(self, message: HeartbeatReply) -> None:
        peer = message.sender
        progress = self.progress.get(peer)
        if progress is None:
            return
        progress.heard = self._now
        progress.probe_sent = False
        if progress.state is REPLICATE and progress.paused:
            progress.free_first()
        behind = progress.match < self.log.last_index or message.last_log_index < progress.match
        if behind or progress.counted < progress.match or progress.state is not REPLICATE:
            self._send_append(peer, progress)
        if peer == self.transferring:
            self._hand_over_if_caught_up()

    def _hand_over_if_caught_up(self) -> None:
        target = self.transferring
        if target is not None and self.progress[target].match == self.log.last_index:
            self._outbox.append(TimeoutNow(self.term, self.node_id, target))

    def _maybe_commit(self) -> None:
        """Commit what enough members hold: a majority that is not recovering, or everybody (see `elections.py`)."""
        if self.log.memberships.newest.voters is not self._voters:
            raise InvariantViolation("R20", f"counting by {sorted(self._voters)}, which is not in force")
        index = majority_index([progress.counted for progress in self._counting])
        if self._unsettled:
            index = max(index, min([progress.agreed for progress in self._unanimous]))
        least = max(self.log.commit + 1, self.log.memberships.newest.index)
        if index >= least and self.log.term(index) == self.term:
            self._commit_as_leader(index)

    def _commit_as_leader(self, index: int) -> None:
        if self.log.term(index) != self.term:
            raise InvariantViolation("R7", f"{index} is of term {self.log.term(index)}, ours is {self.term}")
        if index < self.log.memberships.newest.index:
            raise InvariantViolation("R20", f"{index} lies before {self.log.memberships.newest.index}, which counts it")
        for entry in self.log.slice(self.log.commit + 1, index):
            self._uncommitted_bytes -= len(entry.data)
        self.log.commit_to(index)
        if self._unsettled:
            if self.recovering:
                self._leave_recovery()
            self._tell_recovered()

    # Recovery, as the leader conducts it.

    def _note_recovery(self, progress: Progress, recovery: int) -> None:
        """A member says that it recovers (a new `recovery`) or has recovered (0)."""
        progress.recovery = recovery
        if recovery:
            progress.forget_match(progress.next)
            # Not before its answer: the reply at hand says where to go on.
            progress.probe_sent = True
            progress.barrier = self._append(self._leader_change_data)
        self._settle()
        if recovery:
            self._broadcast_append()

    def _settle(self) -> None:
        """Find out anew whether anybody recovers, ourselves included, so that the count needs a second look."""
        own = self.progress[self.node_id]
        weak = self.recovering or not self._hard_durable
        if not weak:
            own.counted = own.match
        self._unsettled = weak or any(progress.recovery for progress in self.progress.values())

    def _may_end_recovery(self, progress: Progress) -> bool:
        return progress.recovery != 0 and min(progress.match, self.log.commit) >= progress.barrier

    def _tell_recovered(self) -> None:
        for peer in self._peers:
            if self._may_end_recovery(self.progress[peer]):
                self._send_heartbeat(peer, self.progress[peer])

    # The follower's side.

    def _on_append(self, message: AppendEntries) -> None:
        if self.leader_id != message.sender:
            self._follow(message.sender)
        self._elapsed = 0
        if self._installing is not None:
            return  # the log is about to be replaced; what is appended now would be lost with it
        log = self.log
        if message.prev_log_index < log.commit:
            self._acknowledge(message.sender, log.commit)
            return
        if message.entries and message.entries[-1].term > self.term:
            raise InvariantViolation("R1", f"an entry of term {message.entries[-1].term} came in term {self.term}")
        last = log.maybe_append(message.prev_log_index, message.prev_log_term, message.entries)
        if last is None:
            self._refuse_append(message)
            return
        self._verified = max(self._verified, last)
        commit = min(message.leader_commit, last)
        if commit > log.commit:
            log.commit_to(commit)
        self._acknowledge(message.sender, last)

    def _acknowledge(self, leader: int, index: int) -> None:
        reply = AppendEntriesReply(self.term, self.node_id, leader, False, index, 0, 0, 0, self._recovery, self._learns)
        self._send_when_durable(reply, index)

    def _refuse_append(self, message: AppendEntries) -> None:
        prev = message.prev_log_index
        hint, hint_term = self.log.find_conflict_by_term(min(prev, self.log.last_index), message.prev_log_term)
        reply = AppendEntriesReply(
            self.term, self.node_id, message.sender, True, 0, prev, hint, hint_term, self._recovery, self._learns
        )
        self._send_when_durable(reply)

    def _on_heartbeat(self, message: Heartbeat) -> None:
        if self.leader_id != message.sender:
            self._follow(message.sender)
        self._elapsed = 0
        commit = message.leader_commit
        if self.recovering:
            # The leader may still count on entries that are gone: believe it only about what it has sent since.
            commit = min(commit, self._verified)
            if message.recovered == self._recovery:
                # It leads this term, so a vote for it is the only one that we can have given.
                if self.vote is None:
                    self._set_vote(message.sender)
                self._leave_recovery()
        elif commit > self.log.commit and message.commit_term:
            self.log.check_held(commit, message.commit_term)
        if commit > self.log.commit:
            self.log.commit_to(commit)
        # While recovering, what this leader has not verified is none of its log: it will see that its match is void.
        end = min(self.log.stable, self._verified) if self.recovering else self.log.stable
        self._outbox.append(HeartbeatReply(self.term, self.node_id, message.sender, end))
