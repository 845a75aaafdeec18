"""What an authenticated but hostile peer can send: frames, and the messages in them stepped into a core.

`PeerFrameTarget` decodes. `CoreTarget` steps whatever decodes into a real core in one of many situations and carries
out the work that comes of it, down to the bytes on disk and on the wire. A core may stop by an invariant alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pidkeeper.controller.raft.config import RaftConfig
from pidkeeper.controller.raft.core import RaftCore, Ready, Role
from pidkeeper.controller.raft.invariants import InvariantViolation
from pidkeeper.controller.raft.membership import Memberships, plain_record
from pidkeeper.controller.raft.messages import (
    AppendEntriesReply,
    Entry,
    HardState,
    Heartbeat,
    InstallSnapshot,
    PreVoteReply,
    RequestVoteReply,
)
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.recovery import NO_SNAPSHOT
from pidkeeper.controller.transport.frames import MAX_FRAME_BYTES, FrameError, frame, message_reader
from pidkeeper.protocol.records import RecordError, VotersRecord, encode_batch, read_voters
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.fuzz.mutator import Parts
from tests.fuzz.raft_messages import NODE, PEERS, message_streams
from tests.fuzz.storage_files import FirstChoice, entry_frame
from tests.fuzz.target import Target, Violation
from tests.support.raft_network import members

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
        self.corpus: list[Parts] = [parts[1:] for parts in message_streams(400, len(SITUATIONS))]

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
    """Messages of peer 2 or 3 at a core in one of the situations of `SITUATIONS`, named by the first byte.

    A member stops by an invariant, or by a RecordError if a configuration cannot be read. What it has written by then
    must be a log from which it starts again, with the same configuration.
    """

    name = "raft_core"
    refusals = (FrameError, InvariantViolation, RecordError)
    steps = 20_000
    steps_per_byte = 40

    def __init__(self) -> None:
        self.corpus = message_streams(4000, len(SITUATIONS))

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
            check_memberships(core)
            check_restart(core)
        for _ in range(40 if choice & 64 else 0):
            core.tick()
            work(core)
        check(core)


def fingerprint(core: RaftCore) -> tuple[Any, ...]:
    """What a message could change."""
    log = core.log
    hard = (core.term, core.vote, core.recovering, core.role, core.leader_id)
    counted = (core.memberships_version, core.membership.index, core.voters, log.memberships.everybody)
    return (
        *hard,
        log.commit,
        log.applied,
        log.last_index,
        log.last_term,
        log.stable,
        len(core._outbox._messages),
        *counted,
    )


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
                _install(core, chunk)
    raise Violation(f"the core still has work after {_MAX_ROUNDS} rounds")


def _install(core: RaftCore, chunk: InstallSnapshot) -> None:
    """The last chunk stands for the snapshot: a configuration or none, or it is damaged."""
    try:
        record = read_voters(chunk.data)
    except RecordError:
        record = None
    if record is None and chunk.data != b"without":
        core.snapshot_failed(chunk.snapshot)
    else:
        core.snapshot_installed(chunk.snapshot, record)


def check_memberships(core: RaftCore) -> None:
    """What is counted by is what the log says, read from the last committed configuration on."""
    log = core.log
    known = log.memberships.configurations
    again = Memberships(known[0].record)
    again.restart(known[0].index, known[0].record)
    for entry in log.slice(max(log.first_index, known[0].index + 1), log.last_index):
        if (record := read_voters(entry.data)) is not None:
            again.append(entry.index, record)
    again.commit_to(log.commit)
    if [(one.index, one.record) for one in again.configurations] != [(one.index, one.record) for one in known]:
        raise Violation(f"the log holds {again.configurations}, the core counts by {known}")
    if core.voters != again.newest.voters or log.memberships.everybody != again.everybody:
        raise Violation(f"counting by {core.voters} of {log.memberships.everybody}, not by {again.newest.voters}")
    if core.leadership is not None and core.progress.keys() != again.everybody | {core.node_id}:
        raise Violation(f"a leader that keeps a progress of {sorted(core.progress)} for {sorted(again.everybody)}")
    if core.role is Role.LEADER and not again.committed and len(again.configurations) > 2:
        raise Violation(f"a leader with {len(again.configurations) - 1} changes under way")


def check_restart(core: RaftCore) -> None:
    """What is on disk must be a log from which the member starts again, and counts by the same voters."""
    log = core.log
    try:
        again = RaftCore(
            core.config,
            FirstChoice(),
            hard_state=HardState(core.term, core.vote, log.commit, core.recovering),
            snapshot=core.snapshot,
            entries=log.slice(log.first_index, log.last_index),
            leader_change_data=b"leader",
            voters=_as_of(core, core.snapshot),
        )
    except (InvariantViolation, ValueError) as error:
        raise Violation(f"the member would not start again: {error}") from error
    if again.voters != core.voters:
        raise Violation(f"after a restart {again.voters} would count, not {core.voters}")


def _as_of(core: RaftCore, snapshot: SnapshotId) -> VotersRecord | None:
    """The configuration that the snapshot holds, as far as the history still tells."""
    known = [one for one in core.log.memberships.configurations if 0 < one.index <= snapshot.index]
    return known[-1].record if known else None


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


def _core(
    *,
    first: int = 1,
    snapshot: SnapshotId = NO_SNAPSHOT,
    hard: HardState | None = None,
    changes: Mapping[int, VotersRecord] = {},
    learner: bool = False,
) -> RaftCore:
    """`changes`: the configurations in the log, by index."""
    data = {index: encode_batch([record]) for index, record in changes.items()}
    voters = PEERS if learner else (NODE, *PEERS)
    return RaftCore(
        RaftConfig(
            node_id=NODE, voters=voters, heartbeat_ticks=1, election_ticks=2, max_append_bytes=64, learner=learner
        ),
        FirstChoice(),
        hard_state=hard or HardState(3, None, 5),
        snapshot=snapshot,
        entries=[
            Entry(2 if index < 8 else 3, index, data.get(index, b"entry %d" % index)) for index in range(first, 11)
        ],
        leader_change_data=b"leader",
        voters=plain_record((NODE, *PEERS)) if snapshot.index else None,
    )


def _follower() -> RaftCore:
    return _core()


def _compacted() -> RaftCore:
    return _core(first=4, snapshot=SnapshotId(4, 2), hard=HardState(3, 2, 6))


def _recovering() -> RaftCore:
    return _core(hard=HardState(3, None, 5, recovering=True))


def _led() -> RaftCore:
    core = _core()
    core.step(Heartbeat(4, 2, NODE, 5, 0))
    work(core)
    return core


def _receiving() -> RaftCore:
    core = _led()
    core.step(InstallSnapshot(4, 2, NODE, SnapshotId(13, 4), 0, b"chunk", False))
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


def _changed() -> RaftCore:
    """One committed change, and one that may be undone."""
    return _core(changes={4: members(1, 2, 3, learners=[4]), 9: members(1, 2, 3, 4)})


def _learner() -> RaftCore:
    return _core(changes={4: members(2, 3, learners=[1])}, learner=True)


def _removed() -> RaftCore:
    return _core(changes={4: members(1, 2, 3), 10: members(2, 3)})


def _leader_with_learner() -> RaftCore:
    core = _leader(_core(changes={4: members(1, 2, 3, learners=[4])}))
    core.step(AppendEntriesReply(4, 2, NODE, False, 11, 0, 0, 0, 0))
    work(core)
    return core


def _changing() -> RaftCore:
    core = _leader_with_learner()
    core.change_members(members(1, 2, 3, learners=[4, 5]))
    work(core)
    return core


def _leaving() -> RaftCore:
    core = _replicating()
    core.step(AppendEntriesReply(4, 3, NODE, False, 11, 0, 0, 0, 0))
    core.change_members(members(2, 3))
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
    _changed,
    _learner,
    _removed,
    _leader_with_learner,
    _changing,
    _leaving,
)
