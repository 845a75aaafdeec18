"""What the leader sends to one peer: entries, heartbeats and snapshots (Raft paper, sections 5.3 and 7).

A new commit index travels on the next AppendEntries, else on the next heartbeat: a message of its own would double the
messages per entry, and a follower that applies a little later costs nobody anything.
"""

from __future__ import annotations

from pidkeeper.controller.raft.config import RaftConfig
from pidkeeper.controller.raft.hard_state import HardStateKeeper
from pidkeeper.controller.raft.log import RaftLog
from pidkeeper.controller.raft.messages import AppendEntries, Heartbeat, TimeoutNow
from pidkeeper.controller.raft.outbox import Outbox
from pidkeeper.controller.raft.progress import REPLICATE, Progress
from pidkeeper.controller.raft.ready import ChunkRequest


class Replication:
    """Sends to a peer what its `Progress` says it needs. Has no state of its own; `now`: the leadership's clock."""

    __slots__ = ("_config", "_hard", "_log", "_outbox")

    def __init__(self, config: RaftConfig, hard: HardStateKeeper, log: RaftLog, outbox: Outbox) -> None:
        self._config = config
        self._hard = hard
        self._log = log
        self._outbox = outbox

    def send_append(self, peer: int, progress: Progress, now: int) -> None:
        """Send the next entries to `peer`, none if it has them all, as far as flow control allows.

        They may leave before they are durable here: a majority of others may commit them.
        """
        if progress.paused:
            return
        log, config = self._log, self._config
        prev = progress.next - 1
        prev_term = log.term(prev)
        # Nothing is known of the entry before the next one: it was compacted, so entries cannot be matched there.
        if prev_term is None:
            self._start_snapshot(peer, progress, now)
            return
        entries = log.page(prev + 1, config.max_append_bytes) if prev < log.last_index else []
        self._outbox.send(AppendEntries(self._hard.term, config.node_id, peer, prev, prev_term, log.commit, entries))
        # An append without entries is a probe as well: its reply says whether the logs agree at `prev`.
        if progress.state is not REPLICATE:
            progress.await_reply()
        elif entries:
            progress.sent(prev + len(entries), sum([len(entry.data) for entry in entries]))

    def send_heartbeat(self, peer: int, progress: Progress) -> None:
        """Tell `peer` that we lead, what is committed of that which it holds, and whether its recovery is over."""
        # Behind `match` the logs may differ, so the peer must not take what it has there for committed.
        commit = min(progress.match, self._log.commit)
        recovered = progress.recovery if self.may_end_recovery(progress) else 0
        commit_term = self._log.term(commit) or 0
        self._outbox.send(Heartbeat(self._hard.term, self._config.node_id, peer, commit, recovered, commit_term))

    def send_timeout_now(self, peer: int) -> None:
        """Ask `peer` to stand for the next term at once (dissertation, section 3.10)."""
        self._outbox.send(TimeoutNow(self._hard.term, self._config.node_id, peer))

    def may_end_recovery(self, progress: Progress) -> bool:
        """Whether the member holds its barrier, and the barrier is committed."""
        return progress.recovery != 0 and min(progress.match, self._log.commit) >= progress.barrier

    def nudge_snapshot(self, peer: int, progress: Progress, now: int) -> None:
        """Called every heartbeat in SNAPSHOT: ask again for a lost chunk; what is stuck starts over if it can."""
        # Our newest snapshot may be another by now, and the driver may have deleted the one that is being sent.
        if now - progress.moved >= self._config.election_ticks and progress.snapshot != self._log.snapshot:
            self._start_snapshot(peer, progress, now)
        elif now - progress.asked >= self._config.heartbeat_ticks:
            self.request_chunk(peer, progress, progress.offset, now)

    def request_chunk(self, peer: int, progress: Progress, offset: int, now: int) -> None:
        """Have the chunk at byte `offset` sent; nothing if no snapshot is being sent to `peer`."""
        if progress.snapshot is not None:
            progress.ask_chunk(offset, now)
            self._outbox.request_chunk(ChunkRequest(self._hard.term, peer, progress.snapshot, offset))

    def _start_snapshot(self, peer: int, progress: Progress, now: int) -> None:
        """The entries that `peer` needs are gone: send it our newest snapshot, chunk by chunk."""
        progress.become_snapshot(self._log.snapshot, now)
        self.request_chunk(peer, progress, 0, now)
