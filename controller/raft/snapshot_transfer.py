"""Chunked snapshot transfer to a follower that needs entries which the leader has dropped (Raft paper, section 7).

The follower asks, the leader answers: every reply names the byte that is wanted next, so a lost, repeated or reordered
chunk costs one more request and nothing else. The leader asks again for a chunk that did not come within a heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.member import FOLLOWER, LEADER, RaftConfig, Rng
from pidkeeper.controller.raft.membership import Memberships
from pidkeeper.controller.raft.messages import Entry, HardState, InstallSnapshot, InstallSnapshotReply, SnapshotMeta
from pidkeeper.controller.raft.progress import SNAPSHOT, Progress
from pidkeeper.controller.raft.replication import Replication
from pidkeeper.protocol.records import VotersRecord


class SnapshotTransfer(Replication):
    """Ask for chunks as leader; collect them as follower."""

    __slots__ = ("_incoming", "_incoming_offset")

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
        self._incoming: SnapshotMeta | None = None
        self._incoming_offset = 0
        super().__init__(config, rng, hard_state, snapshot, entries, memberships, leader_change_data)

    def snapshot_installed(self, meta: SnapshotMeta, voters: VotersRecord | None = None) -> None:
        """The received snapshot `meta` is durable and the state machine restored from it; the log goes on behind it.

        voters: the configuration that it holds; None if it holds none, as while the configured one was in force.
        """
        if self._installing != meta:
            raise InvariantViolation("R12", f"snapshot {meta} was installed, but {self._installing} was received")
        if self.role is LEADER:
            raise InvariantViolation("R6", f"a leader cannot replace its log by snapshot {meta}")
        self._installing = None
        self.log.restore(meta, voters)
        self._adopt_memberships()
        if not self.log.memberships.may_campaign(self.node_id) and self.role is not FOLLOWER:
            self._become_follower(self.term, None)
        self.snapshot = meta
        if self.leader_id is not None:
            self._verified = max(self._verified, meta.index)
            reply = InstallSnapshotReply(self.term, self.node_id, self.leader_id, meta, 0, True)
            self._send_when_durable(reply)

    def snapshot_failed(self, meta: SnapshotMeta) -> None:
        """The received snapshot `meta` is unusable: forget it; the leader will send it from the start."""
        if self._installing == meta:
            self._installing = None

    def _become_follower(self, term: int, leader: int | None) -> None:
        super()._become_follower(term, leader)
        # Another leader's file for the same index need not be equal byte for byte.
        self._incoming = None

    def _on_snapshot(self, message: InstallSnapshot) -> None:
        if self.leader_id != message.sender:
            self._follow(message.sender)
        self._elapsed = 0
        meta = message.meta
        if meta.term > self.term:
            raise InvariantViolation("R1", f"a snapshot of term {meta.term} came in term {self.term}")
        if self._installing is None and self.log.matches(meta.index, meta.term):
            # Our log has that entry, so also all before it; and what a snapshot covers is committed.
            self.log.commit_to(meta.index)
            self._verified = max(self._verified, meta.index)
        if meta.index <= self.log.commit:
            self._acknowledge(message.sender, self.log.commit)
        elif self._installing is None:
            self._take_chunk(message)

    def _take_chunk(self, message: InstallSnapshot) -> None:
        meta = message.meta
        if self._incoming is None or meta.index > self._incoming.index:
            self._incoming = meta
            self._incoming_offset = 0
        elif meta != self._incoming:
            return
        if message.offset == self._incoming_offset:
            self._chunks.append(message)
            self._incoming_offset += len(message.data)
            if message.done:
                self._installing = meta
                self._incoming = None
                return
        reply = InstallSnapshotReply(self.term, self.node_id, message.sender, meta, self._incoming_offset, False)
        self._outbox.append(reply)

    def _on_snapshot_reply(self, message: InstallSnapshotReply) -> None:
        peer = message.sender
        progress = self.progress.get(peer)
        if progress is None:
            return
        progress.heard = self._now
        if progress.state is not SNAPSHOT or progress.snapshot != message.meta:
            return
        if message.installed:
            progress.match = max(progress.match, message.meta.index)
            progress.become_probe()
            self._send_append(peer, progress)
        elif message.next_offset != progress.offset:
            # A repeated reply asks for what is on its way already.
            progress.moved = self._now
            self._request_chunk(peer, progress, message.next_offset)

    def _nudge_snapshot(self, peer: int, progress: Progress) -> None:
        """Called every heartbeat: ask again for a lost chunk; a transfer that is stuck starts over if it can."""
        if self._now - progress.moved >= self.config.election_ticks and progress.snapshot != self.snapshot:
            self._start_snapshot(peer, progress)
        elif self._now - progress.asked >= self.config.heartbeat_ticks:
            self._request_chunk(peer, progress, progress.offset)
