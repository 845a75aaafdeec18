"""The follower's side of replication (Raft paper, sections 5.3 and 7; dissertation, section 10.2.1)."""

from __future__ import annotations

from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
)
from pidkeeper.controller.raft.outbox import Outbox
from pidkeeper.controller.raft.snapshot_receiver import IncomingSnapshot, SnapshotReceiver
from pidkeeper.snapshots.snapshot_id import SnapshotId


class Following:
    """Takes what one leader sends in one term. Exists from its first message until leader or term are others.

    So what was learnt from one leader is never used for another.
    """

    __slots__ = ("_hard", "_incoming", "_log", "_node_id", "_outbox", "_receiver", "_verified", "leader_id")

    def __init__(
        self,
        leader_id: int,
        node_id: int,
        hard: HardStateKeeper,
        log: RaftLog,
        outbox: Outbox,
        receiver: SnapshotReceiver,
    ) -> None:
        # Who leads our term. Never changes: a term has one leader (R14).
        self.leader_id = leader_id
        self._node_id = node_id
        self._hard = hard
        self._log = log
        self._outbox = outbox
        self._receiver = receiver
        # Our log is known to agree with this leader's through this index: an accepted append or a snapshot has shown
        # it. Never falls. Behind it may lie entries of other leaders. It matters only while we recover, as the leader's
        # `match` for us may then rest on entries that we have lost.
        self._verified = 0
        # The snapshot of which this leader has sent the first chunks, None if there is none. Never set together with
        # `SnapshotReceiver.installing`.
        self._incoming: IncomingSnapshot | None = None

    @property
    def receiving(self) -> bool:
        """Whether some chunks of a snapshot have come, and not all."""
        return self._incoming is not None

    def append(self, message: AppendEntries) -> None:
        """Take entries if our log agrees before them; the answer is sent when they are durable."""
        if self._receiver.installing is not None:
            return  # the log is about to be replaced; what is appended now would be lost with it
        log = self._log
        # Late, or the probe of a leader that does not know yet how much we hold. What is committed here is in its log.
        if message.prev_log_index < log.commit:
            self._acknowledge(log.commit)
            return
        if message.entries and message.entries[-1].term > self._hard.term:
            term = message.entries[-1].term
            raise InvariantViolation("R1", f"an entry of term {term} came in term {self._hard.term}")
        last = log.maybe_append(message.prev_log_index, message.prev_log_term, message.entries)
        if last is None:
            self._refuse(message)
            return
        if last > self._verified:
            self._verified = last
        # Behind `last` our log may differ from the leader's, so what is committed there need not be what we hold.
        commit = min(message.leader_commit, last)
        if commit > log.commit:
            log.commit_to(commit)
        self._acknowledge(last)

    def heartbeat(self, message: Heartbeat) -> None:
        """Learn what is committed, and whether our recovery is over. The answer promises nothing, so it leaves now."""
        hard, log = self._hard, self._log
        commit = message.leader_commit
        if hard.recovering:
            # The leader's `match` for us may rest on entries that are gone: only what we have verified counts.
            commit = min(commit, self._verified)
            if message.recovered == hard.recovery:
                # We may have forgotten a vote of this term. As this leader has won, none but one for it can matter.
                if hard.vote is None:
                    hard.vote_for(self.leader_id)
                hard.end_recovery()
        elif commit > log.commit and message.commit_term:
            log.check_held(commit, message.commit_term)
        if commit > log.commit:
            log.commit_to(commit)
        # While we recover, the leader must learn that its `match` is void, so entries that it has not sent since our
        # loss do not show.
        end = min(log.stable, self._verified) if hard.recovering else log.stable
        self._outbox.send(HeartbeatReply(hard.term, self._node_id, self.leader_id, end))

    def take_snapshot(self, message: InstallSnapshot) -> None:
        """Take a chunk, unless we hold what the snapshot covers."""
        log, snapshot, installing = self._log, message.snapshot, self._receiver.installing
        if snapshot.term > self._hard.term:
            raise InvariantViolation("R1", f"a snapshot of term {snapshot.term} came in term {self._hard.term}")
        if installing is None and log.matches(snapshot.index, snapshot.term):
            # Our log has that entry, so also all before it; and what a snapshot covers is committed.
            log.commit_to(snapshot.index)
            self._verified = max(self._verified, snapshot.index)
        if snapshot.index <= log.commit:
            self._acknowledge(log.commit)
        elif installing is None:
            self._take_chunk(message)

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        """The log goes on behind `snapshot`, which whoever leads now has committed as well (leader completeness)."""
        self._verified = max(self._verified, snapshot.index)
        reply = InstallSnapshotReply(self._hard.term, self._node_id, self.leader_id, snapshot, 0, True)
        self._outbox.send_when_durable(reply)

    def _take_chunk(self, message: InstallSnapshot) -> None:
        snapshot, incoming = message.snapshot, self._incoming
        if incoming is None or snapshot.index > incoming.snapshot.index:
            incoming = self._incoming = IncomingSnapshot(snapshot)
        elif snapshot != incoming.snapshot:
            return
        if incoming.take(message):
            self._receiver.store(message)
            if message.done:
                self._incoming = None
                return
        offset = incoming.next_offset
        reply = InstallSnapshotReply(self._hard.term, self._node_id, self.leader_id, snapshot, offset, False)
        self._outbox.send(reply)

    def _acknowledge(self, index: int) -> None:
        hard = self._hard
        reused = hard.id_may_be_reused(self._log.memberships)
        reply = AppendEntriesReply(
            hard.term, self._node_id, self.leader_id, False, index, 0, 0, 0, hard.recovery, reused
        )
        self._outbox.send_when_durable(reply, index)

    def _refuse(self, message: AppendEntries) -> None:
        hard, log, prev = self._hard, self._log, message.prev_log_index
        # As far back as our log may agree by its terms, so that the leader skips a term at a time.
        hint, hint_term = log.find_conflict_by_term(min(prev, log.last_index), message.prev_log_term)
        reused = hard.id_may_be_reused(log.memberships)
        reply = AppendEntriesReply(
            hard.term, self._node_id, self.leader_id, True, 0, prev, hint, hint_term, hard.recovery, reused
        )
        self._outbox.send_when_durable(reply)
