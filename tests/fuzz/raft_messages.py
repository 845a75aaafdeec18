"""Messages that peers may send to a core: most of them near the situations in which the cores of `raft_core` are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec

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
from pidkeeper.protocol.records import encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.fuzz.mutator import Parts
from tests.support.raft_network import members

NODE: Final = 1
PEERS: Final = (2, 3)
_TERMS: Final = (3, 3, 4, 4, 4, 4, 4, 5, 6, 0, 2)
_INDEXES: Final = (0, 1, 3, 4, 5, 6, 9, 10, 10, 11, 11, 12, 13, 100)
_EXTREMES: Final = (2**31, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1)
_EXTREME_SHARE: Final = 0.03
"""Most of the extremes are refused by the decoder, and a message with one of them is the last of its input."""

_CONFIGURATIONS: Final = (
    members(1, 2, 3, learners=[4]),
    members(1, 2, 3, learners=[4]),
    members(1, 2, 3, 4),
    members(2, 3),
    members(1, 2),
    members(5, 6, 7),
    members(2, learners=[1, 3]),
)
"""What entries and snapshots of peers hold: steps from one to the next, and leaps."""

_CONFIGURATION: Final = encode_batch([_CONFIGURATIONS[0]])


def message_streams(count: int, situations: int) -> list[Parts]:
    """Messages that decode, mostly near the situations: a byte for the situation, then one to five messages."""
    rng = random.Random("messages")
    streams = []
    for at in range(count):
        peer = rng.randrange(2)
        choice = at % situations + situations * rng.randrange(5) + 64 * rng.randrange(2) + 128 * peer
        choice = min(choice, 127 + 128 * peer)
        messages = [msgspec.msgpack.encode(_message(rng, PEERS[peer])) for _ in range(rng.randrange(1, 6))]
        streams.append((bytes((choice,)), *messages))
    return streams


def _one_of(rng: random.Random, near: Sequence[int]) -> int:
    return rng.choice(_EXTREMES if rng.random() < _EXTREME_SHARE else near)


def _message(rng: random.Random, peer: int) -> Message:
    def index() -> int:
        return _one_of(rng, _INDEXES)

    def flag() -> bool:
        return rng.random() < 0.5

    term, recovery = _one_of(rng, _TERMS), rng.choice((0, 0, 1, 5))
    head = (term, peer, NODE)
    return rng.choice(
        (
            lambda: PreVote(*head, index(), _one_of(rng, _TERMS), recovery),
            lambda: PreVoteReply(*head, flag(), flag(), flag(), rng.choice((None, recovery))),
            lambda: RequestVote(*head, index(), _one_of(rng, _TERMS), flag()),
            lambda: RequestVoteReply(*head, flag(), recovery),
            lambda: _append(rng, head),
            lambda: _append(rng, head),
            lambda: AppendEntriesReply(*head, flag(), index(), index(), index(), _one_of(rng, _TERMS), recovery),
            lambda: Heartbeat(*head, index(), recovery),
            lambda: HeartbeatReply(*head, index()),
            lambda: _chunk(rng, head),
            lambda: InstallSnapshotReply(*head, SnapshotId(index(), _one_of(rng, _TERMS)), index(), flag()),
            lambda: InstallSnapshotReply(*head, SnapshotId(4, 2), index(), flag()),
            lambda: TimeoutNow(*head),
        )
    )()


def _append(rng: random.Random, head: tuple[int, int, int]) -> AppendEntries:
    """Entries that mostly follow one another, at times with one that does not."""
    prev = rng.choice(_INDEXES[:12])
    prev_term = rng.choice((2, 3, 3, 4)) if rng.random() < 0.5 else 0 if prev == 0 else 2 if prev < 8 else 3
    count = rng.randrange(5)
    entries = [Entry(min(head[0], 4), prev + at, _data(rng)) for at in range(1, count + 1)]
    if entries and rng.random() < 0.4:
        entries[rng.randrange(count)] = Entry(_one_of(rng, _TERMS), _one_of(rng, _INDEXES), b"")
    return AppendEntries(*head, prev, prev_term, _one_of(rng, _INDEXES), entries)


def _data(rng: random.Random) -> bytes:
    """Mostly no configuration; at times one, also one that cannot be read."""
    if rng.random() < 0.7:
        return b"data"
    return encode_batch([rng.choice(_CONFIGURATIONS)]) if rng.random() < 0.9 else _CONFIGURATION[:-1]


def _chunk(rng: random.Random, head: tuple[int, int, int]) -> InstallSnapshot:
    snapshot = SnapshotId(_one_of(rng, _INDEXES), min(head[0], _one_of(rng, _TERMS)))
    data = rng.choice((b"chunk", b"without", _data(rng)))
    return InstallSnapshot(*head, snapshot, _one_of(rng, (0, 0, 0, 5)), data, rng.random() < 0.5)
