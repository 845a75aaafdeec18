"""The members of a scenario, their disks and the network between them; everything that happens goes into the trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pidkeeper.controller.raft.core import InvariantViolation, RaftConfig, RaftCore, Ready, Role
from pidkeeper.controller.raft.hard_state import MAX_RECOVERY
from pidkeeper.controller.raft.messages import Entry, Heartbeat, HeartbeatReply, InstallSnapshot, Message
from pidkeeper.protocol.records import VotersRecord
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.scenarios.configuration import configuration_of
from tests.scenarios.transcript import ScenarioError
from tests.scenarios.view import View, changes
from tests.scenarios.wording import entries, hard_state, message_text, payload, told
from tests.support.raft_network import NOOP, Disk

MAX_STEPS = 5_000
"""Steps of one `settle`: a hundred times what the longest scenario takes."""


class FixedRng:
    """No chance at all: timeouts are the base plus the id unless set, jitter is 0, recoveries count up from 10 x id.

    `timeouts`: how many were drawn, so that a timer that fires can be told from one that only runs on.
    """

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.timeout: int | None = None
        self.timeouts = 0
        self._recoveries = 10 * node_id

    def randrange(self, start: int, stop: int, /) -> int:
        if stop == MAX_RECOVERY:
            self._recoveries += 1
            return self._recoveries
        if start == 0:
            return 0
        self.timeouts += 1
        return min(start + self.node_id if self.timeout is None else self.timeout, stop - 1)


class Member:
    """One member: its core, its disk, the work it was handed and has not done. `down`: why it does not run.

    names_voters: a leader whose log names no voters does so, as from metadata version 2 on.
    """

    def __init__(self, config: RaftConfig, *, names_voters: bool) -> None:
        self.config = config
        self.node_id = config.node_id
        self._names_voters = names_voters
        self.rng = FixedRng(config.node_id)
        self.disk = Disk(recovering=False)
        self.down: str | None = "not started"
        self.boot()
        self.down = "not started"

    def boot(self) -> None:
        """Start from what is durable."""
        self.disk.pending.clear()
        self.to_apply: list[Entry] = []
        self.installing: SnapshotId | None = None
        self.incoming = b""
        self.applied = self.disk.image.decode().splitlines()
        self.core = RaftCore(
            self.config,
            self.rng,
            hard_state=self.disk.hard_state,
            snapshot=self.disk.snapshot,
            entries=self.disk.entries,
            leader_change_data=NOOP,
            voters=self.configuration(),
        )
        if self._names_voters:
            self.core.name_voters()
        self.down = None

    def configuration(self) -> VotersRecord | None:
        """The newest configuration that the state machine was told."""
        texts = (row.partition(" ")[2] for row in reversed(self.applied))
        return next((configuration_of(text[1:-1]) for text in texts if text.startswith("[")), None)

    def apply(self, entry: Entry) -> None:
        """The state machine is the list of lines that it was told."""
        self.applied.append(f"{entry.index}@{entry.term} {told(entry.data)}")
        self.core.applied_to(entry.index)


class Oracle:
    """Raft's promises, checked apart from the traces, so that no rewrite can make a broken one look right."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        self._applied: dict[int, str] = {}

    def check(self, member: Member) -> None:
        """Election safety and state machine safety (Raft paper, figure 3)."""
        core = member.core
        if core.role is Role.LEADER and self._leaders.setdefault(core.term, member.node_id) != member.node_id:
            raise AssertionError(f"{member.node_id} and {self._leaders[core.term]} both lead term {core.term}")
        for index, line in enumerate(member.applied, 1):
            known = self._applied.setdefault(index, line)
            assert known == line, f"{member.node_id} applied {line!r} where another applied {known!r}"


class World:
    """All members, and the messages between them in the order in which they left."""

    def __init__(self, members: dict[int, Member]) -> None:
        self.members = members
        self.flying: list[Message] = []
        self.held: list[Message] = []
        self.cuts: set[frozenset[int]] = set()
        self.trace: list[str] = []
        self.hidden_heartbeats: int | None = None
        self._oracle = Oracle()

    def note(self, member: Member, text: str) -> None:
        """A line about one member."""
        self.trace.append(f"{member.node_id:<8}{text}")

    def note_message(self, message: Message, arrow: str) -> None:
        """A line about a message: `~>` it left, `->` it arrived, `-x` it was lost."""
        self.trace.append(f"{message.sender} {arrow} {message.to}  {message_text(message)}")

    @contextmanager
    def calling(self, member: Member) -> Iterator[RaftCore]:
        """Around every call of a core: note what it changed; a violated rule stops the member."""
        if member.down is not None:
            raise ScenarioError(f"{member.node_id} is {member.down}")
        before = View.of(member.core)
        try:
            yield member.core
        except InvariantViolation as violation:
            member.down = "stopped"
            self.note(member, f"STOPS: {violation}")
            return
        for line in changes(before, View.of(member.core)):
            self.note(member, line)
        self._oracle.check(member)

    # The work of one member.

    def take_ready(self, member: Member, *, arrow: str | None) -> Ready | None:
        """Take one round of work; messages leave, the rest waits to be done. `arrow`: how to note what leaves."""
        ready = None
        with self.calling(member) as core:
            ready = core.ready()
        if ready is None:
            return None
        for message in [*ready.messages, *self._read_chunks(member, ready)]:
            self.flying.append(message)
            if arrow is not None:
                self.note_message(message, arrow)
        for chunk in ready.chunks:
            self._store_chunk(member, chunk)
        if ready.token is not None:
            member.disk.pending.append(ready)
        member.to_apply += ready.committed
        return ready

    def write_text(self, ready: Ready) -> str:
        """What one write holds."""
        parts = [] if ready.hard_state is None else [hard_state(ready.hard_state)]
        if ready.entries:
            parts.append(entries(ready.entries))
        return "; ".join(parts)

    def write_done(self, member: Member, *, begun: bool) -> None:
        """The oldest write is durable. `begun`: the trace has told what it holds."""
        text = self.write_text(member.disk.pending[0])
        token = member.disk.sync_one()
        self.note(member, f"write #{token} is durable" if begun else f"saves {text}")
        with self.calling(member) as core:
            core.written(token)

    def apply_one(self, member: Member) -> None:
        """Apply the next committed entry."""
        entry = member.to_apply.pop(0)
        assert entry in member.disk.entries, f"{entry} was handed out for applying before it was durable"
        self.note(member, f"applies {entry.index}@{entry.term} {payload(entry.data)}")
        with self.calling(member):
            member.apply(entry)

    def install(self, member: Member, *, damaged: bool) -> None:
        """The received snapshot is stored and restored from, or turns out to be unusable."""
        snapshot, member.installing = member.installing, None
        assert snapshot is not None
        name = f"{snapshot.index}@{snapshot.term}"
        if damaged:
            self.note(member, f"finds snapshot {name} damaged")
            with self.calling(member) as core:
                core.snapshot_failed(snapshot)
            return
        while member.disk.pending:
            self.write_done(member, begun=False)
        self.note(member, f"restores snapshot {name}")
        member.disk.install(snapshot, member.incoming)
        member.applied = member.incoming.decode().splitlines()
        with self.calling(member) as core:
            core.snapshot_installed(snapshot, member.configuration())

    def finish(self, member: Member) -> bool:
        """Do all the work that there is, every write succeeding at once; whether there was any."""
        busy = False
        for _ in range(MAX_STEPS):
            if member.down is not None:
                return busy
            if member.disk.pending:
                self.write_done(member, begun=False)
            elif member.to_apply:
                self.apply_one(member)
            elif member.installing is not None:
                self.install(member, damaged=False)
            elif self.take_ready(member, arrow=None) is None:
                return busy
            busy = True
        raise AssertionError(f"member {member.node_id} does not come to rest")

    # The network.

    def lost(self, message: Message) -> bool:
        """Whether a message cannot arrive: its link is cut, or nobody is there."""
        cut = frozenset({message.sender, message.to}) in self.cuts
        return cut or self.members[message.to].down is not None

    def arrive(self, message: Message) -> None:
        """A message reaches its receiver, or is lost for a reason that lies in the network."""
        target = self.members[message.to]
        is_heartbeat = isinstance(message, Heartbeat | HeartbeatReply)
        if self.hidden_heartbeats is not None and is_heartbeat:
            self.hidden_heartbeats += 1
        else:
            self.note_message(message, "-x" if self.lost(message) else "->")
        if not self.lost(message):
            with self.calling(target) as core:
                core.step(message)

    def settle(self, only: set[int]) -> None:
        """Deliver in order, the receiver finishing its work each time, until these members have nothing to do."""
        for node_id in sorted(only):
            self.finish(self.members[node_id])
        for _ in range(MAX_STEPS):
            message = next((one for one in self.flying if one.to in only), None)
            if message is None:
                return
            self.flying.remove(message)
            self.arrive(message)
            self.finish(self.members[message.to])
        raise AssertionError("the members do not come to rest")

    def take_flying(self, wanted: Callable[[Message], bool], skip: int, count: int) -> list[Message]:
        """Take `count` messages that are `wanted` off the network, behind `skip`; ScenarioError if there is none."""
        taken = [message for message in self.flying if wanted(message)][skip : skip + count]
        if not taken:
            raise ScenarioError("no such message is on its way; `messages` lists those that are")
        self.flying = [message for message in self.flying if not any(message is one for one in taken)]
        return taken

    def _read_chunks(self, member: Member, ready: Ready) -> Iterator[Message]:
        for request in ready.chunk_requests:
            if request.snapshot == member.disk.snapshot:
                image, size = member.disk.image, member.config.chunk_bytes
                part = image[request.offset : request.offset + size]
                done = request.offset + len(part) == len(image)
                yield InstallSnapshot(
                    request.term, member.node_id, request.to, request.snapshot, request.offset, part, done
                )

    def _store_chunk(self, member: Member, chunk: InstallSnapshot) -> None:
        member.incoming = member.incoming[: chunk.offset] + chunk.data
        if chunk.done:
            member.installing = chunk.snapshot
        self.note(member, f"stores bytes {chunk.offset} to {chunk.offset + len(chunk.data)}")
