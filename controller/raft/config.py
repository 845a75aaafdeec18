"""What an operator sets for one member of the quorum."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.controller.raft.messages import MAX_CHUNK_BYTES, MAX_ENTRIES_PER_MESSAGE

MISSED_HEARTBEATS: Final = 3
"""Whoever was not heard for so many is likely to be gone, while a busy machine has let one or two be late."""


class RaftConfig(msgspec.Struct, frozen=True):
    """Times are ticks of 10 ms. Raises ValueError if the values cannot work together.

    voters: whoever votes as long as neither log nor snapshot says. learner: this member's id may be one that is used
    again (`HardStateKeeper`). directory_id: the uuid of this member's data directory. election_ticks: the timeout is
    drawn from [election_ticks, 2 x that). link_lost_ticks: when the links to the leader broke, the followers try to
    succeed it one after another, so far apart and a tick of jitter. max_append_bytes: payload of one AppendEntries,
    which always takes at least one entry. max_inflight_bytes: payload sent to one peer and not acknowledged.
    max_uncommitted_bytes: payload that was proposed and not committed, beyond which `propose` refuses. chunk_bytes:
    snapshot bytes in one InstallSnapshot. promotion_lag: the entries that a learner may be behind when it becomes a
    voter, by default what one message holds.
    """

    node_id: int
    voters: tuple[int, ...]
    heartbeat_ticks: int = 5
    election_ticks: int = 30
    link_lost_ticks: int = 3
    max_inflight_messages: int = 64
    max_append_bytes: int = 256 * 1024
    max_inflight_bytes: int = 4 * 1024 * 1024
    max_uncommitted_bytes: int = 16 * 1024 * 1024
    chunk_bytes: int = MAX_CHUNK_BYTES
    promotion_lag: int = MAX_ENTRIES_PER_MESSAGE
    learner: bool = False
    directory_id: str | None = None

    def __post_init__(self) -> None:
        if not self.voters or len(set(self.voters)) != len(self.voters):
            raise ValueError(f"voters {self.voters} must hold every id once, and one at least")
        if not 0 < self.heartbeat_ticks < self.election_ticks or self.link_lost_ticks < 0:
            raise ValueError(
                f"ticks: 0 < heartbeat {self.heartbeat_ticks} < election {self.election_ticks} is required"
            )
        if not 0 < self.chunk_bytes <= MAX_CHUNK_BYTES:
            raise ValueError(f"chunk_bytes {self.chunk_bytes} is not in 1..{MAX_CHUNK_BYTES}")
        if min(self.max_inflight_messages, self.max_inflight_bytes, self.max_append_bytes) < 1:
            raise ValueError("the limits of one message and of the inflight window must be at least 1")
