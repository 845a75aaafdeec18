"""What a follower has received of a snapshot, chunk by chunk (Raft paper, section 7).

The follower asks, the leader answers: every reply names the byte that is wanted next, so a lost, repeated or reordered
chunk costs one more request and nothing else. The leader asks again for a chunk that did not come within a heartbeat.
"""

from __future__ import annotations

from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.messages import InstallSnapshot
from pidkeeper.snapshots.snapshot_id import SnapshotId


class IncomingSnapshot:
    """A snapshot of which not all chunks have come. Exists from its first chunk to its last, under one leader."""

    __slots__ = ("next_offset", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        # Which snapshot. Another leader's file for the same index need not be equal byte for byte, so chunks of two
        # leaders are never put together.
        self.snapshot = snapshot
        # The byte that is wanted next: all before it were handed to the receiver, in order.
        self.next_offset = 0

    def take(self, chunk: InstallSnapshot) -> bool:
        """Whether `chunk` is the one that is wanted; then the one behind it is wanted next."""
        if chunk.offset != self.next_offset:
            return False
        self.next_offset += len(chunk.data)
        return True


class SnapshotReceiver:
    """Chunks on their way to the driver, and the complete snapshot that the driver is putting in force.

    Outlives terms and leaders: what a snapshot covers is committed, whoever sent it.
    """

    __slots__ = ("chunks", "installing", "restarts_log")

    def __init__(self) -> None:
        # Chunks that the next Ready hands to the driver, in the order of their offsets.
        self.chunks: list[InstallSnapshot] = []
        # The snapshot that the driver stores, restores from and puts in the log's place. Set with its last chunk,
        # cleared by `finish` or `abandon`. While it is set, nothing is appended, applied, or received of another one.
        self.installing: SnapshotId | None = None
        # Whether the driver has the last chunk, so that it may be restarting the log on disk behind the snapshot. By
        # that the commit index on disk rises to the snapshot's, and a write of ours may not lower it again. Implies
        # that `installing` is set.
        self.restarts_log = False

    def store(self, chunk: InstallSnapshot) -> None:
        """Hand `chunk` to the driver; behind the last one the snapshot is being installed."""
        self.chunks.append(chunk)
        if chunk.done:
            self.installing = chunk.snapshot

    def take_chunks(self) -> list[InstallSnapshot]:
        """The chunks for the driver; none of them is kept."""
        chunks, self.chunks = self.chunks, []
        self.restarts_log = self.installing is not None
        return chunks

    def finish(self, snapshot: SnapshotId) -> None:
        """The driver has put `snapshot` in force; it must be the snapshot that was received."""
        if self.installing != snapshot:
            raise InvariantViolation("R12", f"snapshot {snapshot} was installed, but {self.installing} was received")
        self.installing = None
        self.restarts_log = False

    def abandon(self, snapshot: SnapshotId) -> None:
        """The driver found `snapshot` unusable; the leader will send it from the start."""
        if self.installing == snapshot:
            self.installing = None
            self.restarts_log = False
