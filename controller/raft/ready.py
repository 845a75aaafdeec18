"""What the core asks its driver to do."""

from __future__ import annotations

import msgspec

from pidkeeper.controller.raft.messages import Entry, HardState, InstallSnapshot, Message
from pidkeeper.snapshots.snapshot_id import SnapshotId


class ChunkRequest(msgspec.Struct, frozen=True):
    """As leader: read the chunk of `snapshot` at byte `offset` and send it as InstallSnapshot with this `term`."""

    term: int
    to: int
    snapshot: SnapshotId
    offset: int


class Ready(msgspec.Struct, frozen=True):
    """One round of work. All of it may run at once, but writes keep the order of their tokens.

    token: set if `hard_state` or `entries` must become durable; then call `RaftCore.written(token)`.
    hard_state: to be written before `entries`.
    entries: to append in order; whatever the disk holds at or after the first one's index is replaced.
    messages: may leave now; what they rest on is durable.
    committed: to apply in order, each committed and durable here; then call `RaftCore.applied_to`.
    chunks: received snapshot chunks in offset order; one at offset 0 starts over. After the one with `done` is stored
        and verified durably and the state machine restored from it, call `RaftCore.snapshot_installed`; if it turns
        out unusable, `RaftCore.snapshot_failed`. No entries are handed out for applying in between.
    chunk_requests: snapshot chunks to read and send.
    """

    token: int | None
    hard_state: HardState | None
    entries: list[Entry]
    messages: list[Message]
    committed: list[Entry]
    chunks: list[InstallSnapshot]
    chunk_requests: list[ChunkRequest]
