"""What a faulty member sends that knows the key: messages of every kind, of terms that no election has led to.

It stays within what a quorum can survive. Nobody may go to such a term by more than `MAX_TERM_JUMP` at once, and by
that only without a leader; so what is further away than a seed is long is never taken over, whatever else it says.

Within reach a term is taken over, after which every word of that term counts. Who asks for votes, and who answers as
if the receiver led, breaks nothing by that: it costs an election, which a member may cause. But who speaks as the
leader of its term, or grants a vote in it, breaks what Raft rests on, namely that members do not lie about elections.
No term protects from that.
"""

from __future__ import annotations

import random
from typing import Final

from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
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
from pidkeeper.protocol.log_position import MAX_NUMBER
from pidkeeper.snapshots.snapshot_id import SnapshotId

FIRST: Final = SnapshotId(1, 1)
FAR: Final = 2**62
"""At one step of MAX_TERM_JUMP in a second from each peer, a member is there after seven years."""

NEAR: Final = (2**17, 2**32)
"""From a jump that is more than small to the furthest that is borne."""

NEXT: Final = 2**33
"""Borne by nobody; but a member without a leader, which makes a step towards it, could bear a repetition."""


def forged(rng: random.Random, term: int, sender: int, to: int) -> Message:
    """A message to member `to`, which is in `term`."""
    if rng.random() < 0.5:
        far = rng.choice((term + FAR, MAX_NUMBER - 1))
        return rng.choice((*_harmless(far, sender, to), *_lies(far, sender, to)))
    return rng.choice(_harmless(term + rng.choice((NEXT, rng.randrange(*NEAR))), sender, to))


def _harmless(term: int, sender: int, to: int) -> tuple[Message, ...]:
    return (
        PreVote(term, sender, to, 0, 0),
        PreVoteReply(term, sender, to, False, False),
        RequestVote(term, sender, to, 0, 0, False),
        RequestVote(term, sender, to, 0, 0, True),
        RequestVoteReply(term, sender, to, False, 0),
        AppendEntriesReply(term, sender, to, False, 0, 0, 0, 0, 0),
        HeartbeatReply(term, sender, to, 0),
        InstallSnapshotReply(term, sender, to, FIRST, 0, False),
    )


def _lies(term: int, sender: int, to: int) -> tuple[Message, ...]:
    """The entry and the snapshot would take the place of what is committed."""
    return (
        PreVoteReply(term, sender, to, True, False, True),
        RequestVoteReply(term, sender, to, True, 0, True),
        AppendEntries(term, sender, to, 0, 0, 1, [Entry(term, 1, b"")]),
        Heartbeat(term, sender, to, 1, 0),
        InstallSnapshot(term, sender, to, FIRST, 0, b"", True),
        TimeoutNow(term, sender, to),
    )
