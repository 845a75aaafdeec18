"""Consensus cores in one process: their disks, their links, and a driver that does what `Ready` asks for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from pidkeeper.controller.raft.core import RaftConfig, RaftCore, Ready, Role
from pidkeeper.controller.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    HardState,
    InstallSnapshot,
    Message,
    PreVoteReply,
    RequestVoteReply,
)
from pidkeeper.protocol.records import QuorumMember, VotersRecord, read_voters
from pidkeeper.snapshots.snapshot_id import SnapshotId

VOTERS = (1, 2, 3)
NOOP = b""
NO_SNAPSHOT = SnapshotId(0, 0)

M = TypeVar("M")


class NoJitter:
    """Election timeouts are the base plus the node id, link jitter is 0: every test knows who moves first."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id

    def randrange(self, start: int, stop: int, /) -> int:
        return min(start + self.node_id, stop - 1) if start else 0


def entries_of(terms: Iterable[int], first: int = 1) -> list[Entry]:
    """Entries from index `first` on with the given terms."""
    return [Entry(term, index, f"{term}/{index}".encode()) for index, term in enumerate(terms, first)]


def members(*voters: int, learners: Sequence[int] = ()) -> VotersRecord:
    """A configuration without addresses."""
    return VotersRecord(tuple(QuorumMember(one, None, "", "", one in voters) for one in sorted([*voters, *learners])))


def make_core(
    node_id: int = 1,
    *,
    terms: Sequence[int] = (),
    term: int | None = None,
    vote: int | None = None,
    commit: int = 0,
    recovering: bool = False,
    snapshot: SnapshotId = NO_SNAPSHOT,
    voters: tuple[int, ...] = VOTERS,
    **config: Any,
) -> RaftCore:
    """A core whose durable log holds entries of `terms` after `snapshot`; its term is at least the last of them."""
    entries = entries_of(terms, snapshot.index + 1)
    last_term = terms[-1] if terms else snapshot.term
    hard_state = HardState(last_term if term is None else term, vote, commit, recovering)
    return RaftCore(
        RaftConfig(node_id=node_id, voters=voters, **config),
        NoJitter(node_id),
        hard_state=hard_state,
        snapshot=snapshot,
        entries=entries,
        leader_change_data=NOOP,
    )


def flush(core: RaftCore) -> list[Message]:
    """Do all that `core` asks for, every write succeeding at once; the messages that left."""
    messages: list[Message] = []
    while (ready := core.ready()) is not None:
        messages += ready.messages
        if ready.token is not None:
            core.written(ready.token)
        if ready.committed:
            core.applied_to(ready.committed[-1].index)
    return messages


def of(kind: type[M], messages: Iterable[object]) -> list[M]:
    """Those of `messages` that are of one type."""
    return [message for message in messages if isinstance(message, kind)]


def tick(core: RaftCore, count: int) -> None:
    for _ in range(count):
        core.tick()


def tick_until(core: RaftCore, role: Role) -> None:
    """Tick until `core` has the role; two election timeouts at most."""
    for _ in range(2 * core.config.election_ticks):
        if core.role is role:
            return
        core.tick()
    raise AssertionError(f"node {core.node_id} is {core.role}, not {role}")


def make_candidate(core: RaftCore) -> list[Message]:
    """Make a follower a candidate, with pre-votes of all; the messages that left since."""
    while core.role is Role.FOLLOWER:
        core.tick()
    messages = flush(core)
    for peer in core.config.voters:
        if peer != core.node_id and core.role is Role.PRE_CANDIDATE:
            core.step(pre_vote_grant(core, peer))
    messages += flush(core)
    assert core.role in {Role.CANDIDATE, Role.LEADER}
    return messages


def make_leader(core: RaftCore) -> list[Message]:
    """Make a follower the leader of the next term with the votes of all; the messages that left since."""
    make_candidate(core)
    for peer in core.config.voters:
        if peer != core.node_id and core.role is Role.CANDIDATE:
            core.step(RequestVoteReply(core.term, peer, core.node_id, True, 0))
    assert core.role is Role.LEADER
    return flush(core)


def pre_vote_grant(core: RaftCore, peer: int) -> Message:
    """A granted pre-vote of `peer` for `core`."""
    return PreVoteReply(core.term + 1, peer, core.node_id, True, False, True, core._hard.recovery)


def accepted(
    core: RaftCore, peer: int, index: int, *, term: int | None = None, recovery: int = 0
) -> AppendEntriesReply:
    """An acknowledgement of `peer` to leader `core` through `index`."""
    return AppendEntriesReply(core.term if term is None else term, peer, core.node_id, False, index, 0, 0, 0, recovery)


def rejected(
    core: RaftCore, peer: int, index: int, hint_index: int, hint_term: int, *, recovery: int = 0
) -> AppendEntriesReply:
    """A refusal of `peer` to leader `core` of the append after `index`."""
    return AppendEntriesReply(core.term, peer, core.node_id, True, 0, index, hint_index, hint_term, recovery)


def append(
    core: RaftCore, prev: tuple[int, int], terms: Sequence[int], *, term: int, leader: int = 2, commit: int = 0
) -> AppendEntries:
    """An append to follower `core` after `prev` = (index, term)."""
    entries = entries_of(terms, prev[0] + 1)
    return AppendEntries(term, leader, core.node_id, prev[0], prev[1], commit, entries)


def replicating_leader(**kwargs: Any) -> RaftCore:
    """Leader 1 whose peers have acknowledged everything and are in the Replicate state."""
    core = make_core(1, **kwargs)
    make_leader(core)
    for peer in core.config.voters[1:]:
        core.step(accepted(core, peer, core.last_index))
    flush(core)
    return core


class Disk:
    """What one member has written. `pending`: issued and not yet durable, lost when the member crashes."""

    def __init__(self, recovering: bool) -> None:
        self.hard_state = HardState(recovering=recovering)
        self.snapshot = NO_SNAPSHOT
        self.image = b""
        self.entries: list[Entry] = []
        self.pending: list[Ready] = []

    def sync_one(self) -> int:
        """The oldest write is durable; its token."""
        ready = self.pending.pop(0)
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.entries:
            first = ready.entries[0].index
            self.entries = [entry for entry in self.entries if entry.index < first] + ready.entries
        assert ready.token is not None
        return ready.token

    def install(self, snapshot: SnapshotId, image: bytes) -> None:
        agrees = any(entry.index == snapshot.index and entry.term == snapshot.term for entry in self.entries)
        if not agrees:
            self.entries = []
        self.snapshot, self.image = snapshot, image

    def compact(self, snapshot: SnapshotId, image: bytes, keep_from: int) -> None:
        self.snapshot, self.image = snapshot, image
        self.entries = [entry for entry in self.entries if entry.index >= keep_from]


class Node:
    """One member with its disk; its state machine is the list of (index, term, data) that it applied.

    `hangs`: no write becomes durable for now.
    """

    def __init__(self, node_id: int, rng: random.Random | NoJitter, voters: tuple[int, ...], **config: Any) -> None:
        self.node_id = node_id
        self.rng = rng
        self.config = RaftConfig(node_id=node_id, voters=voters, learner=node_id not in voters, **config)
        self.up = True
        self.hangs = False
        self.wipe()

    def wipe(self) -> None:
        """A new, empty disk."""
        self.disk = Disk(recovering=True)
        self.restart()

    def restart(self) -> None:
        """Start from what is durable."""
        disk = self.disk
        disk.pending.clear()
        self.up = True
        self.incoming = b""
        self.applied: list[tuple[int, int, bytes]] = msgspec.msgpack.decode(
            disk.image or b"\x90", type=list[tuple[int, int, bytes]]
        )
        self.core = RaftCore(
            self.config,
            self.rng,
            hard_state=disk.hard_state,
            snapshot=disk.snapshot,
            entries=disk.entries,
            leader_change_data=NOOP,
            voters=self.voters(),
        )

    def voters(self) -> VotersRecord | None:
        """The newest configuration that was applied."""
        found = (read_voters(data) for _, _, data in reversed(self.applied))
        return next((record for record in found if record is not None), None)

    def work(self) -> list[Message] | None:
        """Take one `Ready`: start its write, apply what it commits; the messages that leave. None if there is none."""
        ready = self.core.ready()
        if ready is None:
            return None
        if ready.token is not None:
            self.disk.pending.append(ready)
        for entry in ready.committed:
            assert entry in self.disk.entries, "applied before it was durable"
            self.applied.append((entry.index, entry.term, entry.data))
            self.core.applied_to(entry.index)
        messages = list(ready.messages)
        for chunk in ready.chunks:
            self._store(chunk)
        for request in ready.chunk_requests:
            if request.snapshot == self.disk.snapshot:
                part = self.disk.image[request.offset : request.offset + self.config.chunk_bytes]
                done = request.offset + len(part) == len(self.disk.image)
                head = (request.term, self.node_id, request.to)
                messages.append(InstallSnapshot(*head, request.snapshot, request.offset, part, done))
        return messages

    def sync(self) -> None:
        """Every write under way becomes durable, unless the disk hangs."""
        while self.disk.pending and not self.hangs:
            self.core.written(self.disk.sync_one())

    def take_snapshot(self, keep: int = 0) -> None:
        """A snapshot of everything applied; `keep` entries below it stay in the log."""
        index = self.core.applied
        term = self.core.term_at(index)
        assert term is not None
        snapshot = SnapshotId(index, term)
        keep_from = max(index + 1 - keep, 1)
        self.core.compact(snapshot, keep_from)
        self.disk.compact(snapshot, msgspec.msgpack.encode(self.applied), keep_from)

    def _store(self, chunk: InstallSnapshot) -> None:
        self.incoming = self.incoming[: chunk.offset] + chunk.data
        if chunk.done:
            while self.disk.pending:
                self.core.written(self.disk.sync_one())
            self.disk.install(chunk.snapshot, self.incoming)
            self.applied = msgspec.msgpack.decode(self.incoming, type=list[tuple[int, int, bytes]])
            self.core.snapshot_installed(chunk.snapshot, self.voters())


class Cluster:
    """Members whose messages arrive in order and whose writes succeed at once, unless a test says otherwise.

    `drop(message)`: whether a message is lost.
    """

    def __init__(self, voters: tuple[int, ...] = VOTERS, *, others: Sequence[int] = (), **config: Any) -> None:
        self.nodes = {node_id: Node(node_id, NoJitter(node_id), voters, **config) for node_id in [*voters, *others]}
        self.drop: Callable[[Message], bool] = lambda _: False
        self.sent: list[Message] = []

    def __getitem__(self, node_id: int) -> RaftCore:
        return self.nodes[node_id].core

    def settle(self) -> None:
        """Deliver and write until nobody has anything to do."""
        for _ in range(10_000):
            sent: list[Message] = []
            busy = False
            for node in self.nodes.values():
                if node.up and (messages := node.work()) is not None:
                    busy = True
                    sent += messages
                    node.sync()
            for message in sent:
                self.sent.append(message)
                target = self.nodes[message.to]
                if target.up and not self.drop(message):
                    target.core.step(message)
            if not busy:
                return
        raise AssertionError("the cluster does not come to rest")

    def tick(self, count: int = 1, only: Sequence[int] | None = None) -> None:
        for _ in range(count):
            for node in self.nodes.values():
                if node.up and (only is None or node.node_id in only):
                    node.core.tick()
            self.settle()

    def elect(self, node_id: int) -> RaftCore:
        """Let `node_id` time out first; it must win."""
        core = self[node_id]
        for _ in range(4 * core.config.election_ticks):
            if core.role is Role.LEADER and core.serving:
                return core
            self.tick(1, only=[node_id])
        raise AssertionError(f"node {node_id} was not elected: {core.role}, term {core.term}")

    def isolate(self, *isolated: int) -> None:
        """Cut every link of these members."""
        self.drop = lambda message: message.sender in isolated or message.to in isolated

    def heal(self) -> None:
        self.drop = lambda _: False
