"""What an authenticated but hostile peer can send: frames, and the messages in them stepped into a core.

`PeerFrameTarget` decodes. `CoreTarget` steps whatever decodes into a real core in one of many situations and carries
out the work that comes of it, down to the bytes on disk and on the wire. A core may stop by an invariant alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.raft.core import RaftCore, Ready, Role
from controller.raft.invariants import InvariantViolation
from controller.raft.member import RaftConfig
from controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    PreVote,
    PreVoteReply,
    RequestVote,
    RequestVoteReply,
    SnapshotMeta,
    TimeoutNow,
)
from controller.storage import frames
from controller.storage.recovery import NO_SNAPSHOT
from controller.transport.frames import MAX_FRAME_BYTES, FrameError, frame, message_reader
from tests.fuzz.mutator import Parts
from tests.fuzz.storage_files import FirstChoice, entry_frame
from tests.fuzz.target import Target, Violation

NODE: Final = 1
PEERS: Final = (2, 3)
_TERMS: Final = (3, 3, 4, 4, 4, 4, 5, 6, 0, 2, 2**31, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1)
_INDEXES: Final = (0, 1, 3, 4, 5, 6, 9, 10, 10, 11, 11, 12, 13, 100, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
_MAX_ROUNDS: Final = 64
"""Ready bundles that one message may cause: three at most are expected."""


def frame_parts(parts: Parts) -> bytes:
    """Every part with its length in front."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


class PeerFrameTarget(Target):
    """The frame reader of messages, fed in two pieces."""

    name = "peer_frames"
    refusals = (FrameError,)
    steps = 200
    steps_per_byte = 3

    def __init__(self) -> None:
        self.corpus: list[Parts] = [parts[1:] for parts in message_streams(400)]

    def assemble(self, parts: Parts) -> bytes:
        """A stream of frames."""
        return frame_parts(parts)

    def feed(self, data: bytes) -> None:
        reader = message_reader()
        half = len(data) // 2
        for piece in (data[:half], data[half:]):
            reader.push(piece)
            while (message := reader.pop()) is not None:
                again = message_reader()
                again.push(frame(message))
                if again.pop() != message:
                    raise Violation(f"{message} changed when encoded again")


class CoreTarget(Target):
    """Messages of peer 2 or 3 at a core in one of the situations of `SITUATIONS`, named by the first byte."""

    name = "raft_core"
    refusals = (FrameError, InvariantViolation)
    steps = 20_000
    steps_per_byte = 40

    def __init__(self) -> None:
        self.corpus = message_streams(4000)

    def assemble(self, parts: Parts) -> bytes:
        """The situation's byte, and a stream of frames."""
        return parts[0][:1].ljust(1, b"\0") + frame_parts(parts[1:])

    def feed(self, data: bytes) -> None:
        choice = data[0] if data else 0
        core = SITUATIONS[choice % len(SITUATIONS)]()
        peer = PEERS[choice >> 7]
        reader = message_reader()
        reader.push(data[1:])
        while True:
            before = fingerprint(core)
            try:
                message = reader.pop()
                if message is not None and message.sender != peer:
                    raise FrameError("a message in the name of another member")
            except FrameError:
                if fingerprint(core) != before:
                    raise Violation("a refused frame changed the core") from None
                raise
            if message is None:
                break
            core.step(message)
            work(core)
            check(core)
        for _ in range(40 if choice & 64 else 0):
            core.tick()
            work(core)
        check(core)


def fingerprint(core: RaftCore) -> tuple[Any, ...]:
    """What a message could change."""
    log = core.log
    hard = (core.term, core.vote, core.recovering, core.role, core.leader_id)
    return (*hard, log.commit, log.applied, log.last_index, log.last_term, log.stable, len(core._outbox))


def work(core: RaftCore) -> None:
    """Carry out the core's work as a driver would, with a disk that is durable at once."""
    for _ in range(_MAX_ROUNDS):
        if (ready := core.ready()) is None:
            return
        _encode(ready)
        if ready.token is not None:
            core.written(ready.token)
        for entry in ready.committed:
            core.applied_to(entry.index)
        for chunk in ready.chunks:
            if chunk.done:
                core.snapshot_failed(chunk.meta)
    raise Violation(f"the core still has work after {_MAX_ROUNDS} rounds")


def _encode(ready: Ready) -> None:
    """What leaves and what is written must fit into the formats."""
    kept = [frames.hard_state_frame(ready.hard_state)] if ready.hard_state is not None else []
    kept += [entry_frame(entry) for entry in ready.entries]
    frames.encode_batch(kept, 1, 136, 0, 0)
    reader = message_reader()
    for message in ready.messages:
        data = frame(message)
        if len(data) > MAX_FRAME_BYTES:
            raise Violation(f"a message of {len(data)} bytes")
        reader.push(data)
        try:
            same = reader.pop() == message
        except FrameError as error:
            raise Violation(f"peers refuse {message}: {error}") from error
        if not same:
            raise Violation(f"{message} is not what peers decode")


def check(core: RaftCore) -> None:
    """The log must be one that a leader could have written and that a restart accepts."""
    log = core.log
    held = log.slice(log.first_index, log.last_index)
    if len(log._entries) != len(held) or log.last_index != log.first_index - 1 + len(held):
        raise Violation(f"{len(held)} entries from {log.first_index} on, but the log ends at {log.last_index}")
    term = log.term(log.first_index - 1)
    for index, entry in enumerate(held, log.first_index):
        if entry.index != index or term is None or not term <= entry.term <= core.term:
            raise Violation(f"entry {entry.index} of term {entry.term} at {index}, after term {term}, in {core.term}")
        term = entry.term
    if not log.applied <= log.commit <= log.last_index:
        raise Violation(f"applied {log.applied}, commit {log.commit}, log end {log.last_index}")


def _core(*, first: int = 1, snapshot: SnapshotMeta = NO_SNAPSHOT, hard: HardState | None = None) -> RaftCore:
    return RaftCore(
        RaftConfig(node_id=NODE, voters=(NODE, *PEERS), heartbeat_ticks=1, election_ticks=2, max_append_bytes=64),
        FirstChoice(),
        hard_state=hard or HardState(3, None, 5),
        snapshot=snapshot,
        entries=[Entry(2 if index < 8 else 3, index, b"entry %d" % index) for index in range(first, 11)],
        leader_change_data=b"leader",
    )


def _follower() -> RaftCore:
    return _core()


def _compacted() -> RaftCore:
    return _core(first=4, snapshot=SnapshotMeta(4, 2), hard=HardState(3, 2, 6))


def _recovering() -> RaftCore:
    return _core(hard=HardState(3, None, 5, recovering=True))


def _led() -> RaftCore:
    core = _core()
    core.step(Heartbeat(4, 2, NODE, 5, 0))
    work(core)
    return core


def _receiving() -> RaftCore:
    core = _led()
    core.step(InstallSnapshot(4, 2, NODE, SnapshotMeta(13, 4), 0, b"chunk", False))
    work(core)
    return core


def _pre_candidate(core: RaftCore | None = None) -> RaftCore:
    core = core or _core()
    while core.role is Role.FOLLOWER:
        core.tick()
    work(core)
    return core


def _candidate(core: RaftCore | None = None) -> RaftCore:
    core = _pre_candidate(core)
    core.step(PreVoteReply(4, 2, NODE, True, False))
    work(core)
    return core


def _leader(core: RaftCore | None = None) -> RaftCore:
    core = _candidate(core)
    core.step(RequestVoteReply(4, 2, NODE, True, 0))
    work(core)
    return core


def _replicating() -> RaftCore:
    core = _leader()
    core.step(AppendEntriesReply(4, 2, NODE, False, 11, 0, 0, 0, 0))
    core.propose(b"proposed")
    core.step(AppendEntriesReply(4, 3, NODE, False, 10, 0, 0, 0, 0))
    work(core)
    return core


def _sending_snapshot() -> RaftCore:
    core = _leader(_compacted())
    core.step(AppendEntriesReply(4, 2, NODE, True, 0, 10, 1, 1, 0))
    work(core)
    return core


def _transferring() -> RaftCore:
    core = _replicating()
    core.transfer_leadership(3)
    work(core)
    return core


SITUATIONS: Final[tuple[Callable[[], RaftCore], ...]] = (
    _follower,
    _compacted,
    _recovering,
    _led,
    _receiving,
    _pre_candidate,
    _candidate,
    _leader,
    _replicating,
    _sending_snapshot,
    _transferring,
)


def message_streams(count: int) -> list[Parts]:
    """Messages that decode, mostly near the situations: a byte for the situation, then one to five messages."""
    rng = random.Random("messages")
    streams = []
    for at in range(count):
        peer = rng.randrange(2)
        choice = at % len(SITUATIONS) + len(SITUATIONS) * rng.randrange(5) + 64 * rng.randrange(2) + 128 * peer
        choice = min(choice, 127 + 128 * peer)
        messages = [msgspec.msgpack.encode(_message(rng, PEERS[peer])) for _ in range(rng.randrange(1, 6))]
        streams.append((bytes((choice,)), *messages))
    return streams


def _message(rng: random.Random, peer: int) -> Message:
    def index() -> int:
        return rng.choice(_INDEXES)

    def flag() -> bool:
        return rng.random() < 0.5

    term, recovery = rng.choice(_TERMS), rng.choice((0, 0, 1, 5))
    head = (term, peer, NODE)
    return rng.choice(
        (
            lambda: PreVote(*head, index(), rng.choice(_TERMS)),
            lambda: PreVoteReply(*head, flag(), flag()),
            lambda: RequestVote(*head, index(), rng.choice(_TERMS), flag()),
            lambda: RequestVoteReply(*head, flag(), recovery),
            lambda: _append(rng, head),
            lambda: _append(rng, head),
            lambda: AppendEntriesReply(*head, flag(), index(), index(), index(), rng.choice(_TERMS), recovery),
            lambda: Heartbeat(*head, index(), recovery),
            lambda: HeartbeatReply(*head, index()),
            lambda: _chunk(rng, head),
            lambda: InstallSnapshotReply(*head, SnapshotMeta(index(), rng.choice(_TERMS)), index(), flag()),
            lambda: InstallSnapshotReply(*head, SnapshotMeta(4, 2), index(), flag()),
            lambda: TimeoutNow(*head),
        )
    )()


def _append(rng: random.Random, head: tuple[int, int, int]) -> AppendEntries:
    """Entries that mostly follow one another, at times with one that does not."""
    prev = rng.choice(_INDEXES[:12])
    prev_term = rng.choice((2, 3, 3, 4)) if rng.random() < 0.5 else 0 if prev == 0 else 2 if prev < 8 else 3
    count = rng.randrange(5)
    entries = [Entry(min(head[0], 4), prev + at, b"data") for at in range(1, count + 1)]
    if entries and rng.random() < 0.4:
        entries[rng.randrange(count)] = Entry(rng.choice(_TERMS), rng.choice(_INDEXES), b"")
    return AppendEntries(*head, prev, prev_term, rng.choice(_INDEXES), entries)


def _chunk(rng: random.Random, head: tuple[int, int, int]) -> InstallSnapshot:
    meta = SnapshotMeta(rng.choice(_INDEXES), rng.choice(_TERMS))
    return InstallSnapshot(*head, meta, rng.choice((0, 0, 5, 2**63, 2**64 - 1)), b"chunk", rng.random() < 0.5)
