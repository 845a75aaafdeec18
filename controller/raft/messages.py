"""The values that the consensus core, the log on disk and the peer links share: entries, hard state, messages.

Messages are msgpack arrays with an integer tag first, so a frame is decoded and checked in one step. Names are the Raft
paper's; pre-vote is section 9.6 of the dissertation, TimeoutNow section 3.10.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from pidkeeper.protocol.log_position import Index, Term
from pidkeeper.snapshots.snapshot_id import SnapshotId

MAX_ENTRIES_PER_MESSAGE: Final = 1024
"""Entries in one AppendEntries. A follower that is further behind gets more messages."""

ENTRY_BYTES: Final = 128
"""Of an entry beside its payload: its frame on disk, or its object in memory, whichever is larger."""

MAX_ENTRY_BYTES: Final = 256 * 1024
"""Payload of one entry: a full batch of 4096 records at 40 bytes each takes 160 KiB."""

MAX_CHUNK_BYTES: Final = 64 * 1024
"""Snapshot bytes in one InstallSnapshot."""

NodeId = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Recovery = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""Names one recovery of one member, so that an answer to an earlier one is never taken for it; 0: not recovering."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One slot of the replicated log; `data` is an encoded record batch, opaque to the core."""

    term: Term
    index: Index
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_ENTRY_BYTES)]


class HardState(msgspec.Struct, frozen=True, array_like=True):
    """What must be on disk before a message that rests on it leaves.

    `recovering`: this member lost its disk or the tail of its log, so its vote counts only in a unanimous election
    until it has caught up (docs/decisions/0005). A freshly formatted member starts like this.
    """

    term: Term = 0
    vote: NodeId | None = None
    commit: Index = 0
    recovering: bool = False


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """Every message carries the sender's term, its sender and its receiver."""

    term: Term
    sender: NodeId
    to: NodeId


class PreVote(_Message, frozen=True, array_like=True, tag=1):
    """Would you vote for me in `term`? Nobody's term changes by asking. `recovery`: the one that the sender is in."""

    last_log_index: Index
    last_log_term: Term
    recovery: Recovery = 0


class PreVoteReply(_Message, frozen=True, array_like=True, tag=2):
    """`term` is the asked-for one if the replier agrees, else its own.

    `granted` is its answer as a voter, `consents` its answer as a learner: it may not know yet which of them it is, and
    the candidate counts the answer of the one that it takes it for (see `elections.py`). `asked_in`: the recovery that
    the candidate was in when it asked; None: the replier's build does not say.
    """

    granted: bool
    recovering: bool
    consents: bool = False
    asked_in: Recovery | None = None

    @property
    def agrees(self) -> bool:
        """Whether it is for the candidate in either way."""
        return self.granted or self.consents


class RequestVote(_Message, frozen=True, array_like=True, tag=3):
    """Vote for me in `term`. `transfer`: the leader asked for it, so a live leader is no reason to refuse."""

    last_log_index: Index
    last_log_term: Term
    transfer: bool


class RequestVoteReply(_Message, frozen=True, array_like=True, tag=4):
    """Leaves only when the vote is durable. `consents`: as in PreVoteReply."""

    granted: bool
    recovery: Recovery
    consents: bool = False


class AppendEntries(_Message, frozen=True, array_like=True, tag=5):
    """Entries that follow (`prev_log_index`, `prev_log_term`)."""

    prev_log_index: Index
    prev_log_term: Term
    leader_commit: Index
    entries: Annotated[list[Entry], msgspec.Meta(max_length=MAX_ENTRIES_PER_MESSAGE)]


class AppendEntriesReply(_Message, frozen=True, array_like=True, tag=6):
    """Accepted: the log matches the leader's and is durable up to `match_index`.

    Rejected: `rejected_index` is the refused `prev_log_index`; the follower's log may match at (`hint_index`,
    `hint_term`) at the latest. `recovery`: not 0 if the follower lost acknowledged entries, so an old match is void.
    `learner`: it may bear the id of a removed voter, for whom it must not be counted (`HardStateKeeper`).
    """

    rejected: bool
    match_index: Index
    rejected_index: Index
    hint_index: Index
    hint_term: Term
    recovery: Recovery
    learner: bool = False


class Heartbeat(_Message, frozen=True, array_like=True, tag=7):
    """The leader lives; `leader_commit` is clamped to what this follower is known to hold.

    `recovered`: the recovery of the follower that is complete, 0 if none. `commit_term`: the term of the entry at
    `leader_commit`, 0 if the leader does not know it any more.
    """

    leader_commit: Index
    recovered: Recovery
    commit_term: Term = 0


class HeartbeatReply(_Message, frozen=True, array_like=True, tag=8):
    """The follower follows; `last_log_index` is its durable log end, as far as it is verified while it recovers."""

    last_log_index: Index


class InstallSnapshot(_Message, frozen=True, array_like=True, tag=9):
    """One chunk of `snapshot`, from byte `offset`; `done` marks the last one."""

    snapshot: SnapshotId
    offset: Annotated[int, msgspec.Meta(ge=0)]
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_CHUNK_BYTES)]
    done: bool


class InstallSnapshotReply(_Message, frozen=True, array_like=True, tag=10):
    """Asks for the chunk at `next_offset`; `installed`: the whole snapshot is durable and in force here."""

    snapshot: SnapshotId
    next_offset: Annotated[int, msgspec.Meta(ge=0)]
    installed: bool


class TimeoutNow(_Message, frozen=True, array_like=True, tag=11):
    """The leader hands over: start an election at once."""


Message = (
    PreVote
    | PreVoteReply
    | RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendEntriesReply
    | Heartbeat
    | HeartbeatReply
    | InstallSnapshot
    | InstallSnapshotReply
    | TimeoutNow
)
