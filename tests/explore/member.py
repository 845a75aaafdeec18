"""One member: the core as it ships, and its disk. Events take it from one state to the next.

Time is taken away after every event: a timer may fire whenever it runs, so how far it has run makes no difference. So
do numbers that only ever rise: of writes, and of versions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, RaftConfig, RaftCore, Role
from pidkeeper.controller.raft.disk_pace import DiskPace
from pidkeeper.controller.raft.durability_lag import DurabilityLag
from pidkeeper.controller.raft.election_tally import ElectionTally
from pidkeeper.controller.raft.hard_state import MAX_RECOVERY
from pidkeeper.controller.raft.messages import InstallSnapshot, Message
from pidkeeper.controller.raft.ready import ChunkRequest, Ready
from pidkeeper.protocol.records import VotersRecord, read_voters
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.explore.frozen import renamed
from tests.support.raft_network import NOOP, Disk, members

PROPOSED: Final = b"p"
FIRST_ID: Final = 90_001
"""Ids of members are numbers that nothing else can be, so that members can be renamed wherever they are mentioned."""


Event = tuple[Any, ...]
"""The name of a method of `Member`, and what it is called with."""


class Rng:
    """No chance: the timer's times make no difference, and recoveries are numbered one after another."""

    __slots__ = ("recoveries",)

    def __init__(self) -> None:
        self.recoveries = 0

    def randrange(self, start: int, stop: int, /) -> int:
        """The least, or the next number of a recovery."""
        if stop == MAX_RECOVERY:
            self.recoveries += 1
            return self.recoveries
        return start


class Outcome(msgspec.Struct, frozen=True):
    """What came of an event: messages that left; (index, term) of each entry that is newly known to be committed;
    whether the member came to lead; the rule that was broken, if one was; the IDs that an agent has handed out."""

    messages: list[Any]
    committed: list[tuple[int, int]]
    elected: bool
    broken: str | None = None
    handed: list[int] = []


class Member:
    """A member between two events: all that it has ready was taken, what it wrote is not durable yet."""

    __slots__ = ("config", "core", "disk", "entries", "incoming", "installing", "lost", "rng")

    def __init__(self, config: RaftConfig, *, recovering: bool) -> None:
        self.config = config
        self.rng = Rng()
        self.disk = Disk(recovering)
        # Something that was durable, and it has not recovered yet.
        self.lost = recovering
        self._boot()
        self._forget_time()

    def _boot(self) -> None:
        self.disk.pending.clear()
        self.incoming = b""
        self.installing: SnapshotId | None = None
        self._start()

    def _start(self) -> None:
        """Start from what is durable: the replicated state, and the core on top of it."""
        self.entries: list[tuple[int, int, bytes]] = (
            [] if not self.disk.image else msgspec.msgpack.decode(self.disk.image, type=list[tuple[int, int, bytes]])
        )
        self.core = self._make_core(NOOP, self._configuration())

    def _make_core(
        self, leader_change_data: bytes, voters: VotersRecord | None, configured: VotersRecord | None = None
    ) -> RaftCore:
        core = RaftCore(
            self.config,
            self.rng,
            hard_state=self.disk.hard_state,
            snapshot=self.disk.snapshot,
            entries=self.disk.entries,
            leader_change_data=leader_change_data,
            configured=configured,
            voters=voters,
        )
        core.name_voters()
        return core

    def _configuration(self) -> VotersRecord | None:
        """The newest configuration that was applied, from the snapshot on."""
        found = (read_voters(data) for _, _, data in reversed(self.entries))
        return next((record for record in found if record is not None), None)

    # Events.

    def happen(self, event: Event) -> Outcome | None:
        """Let `event` happen; None if it cannot. Its name is the name of a method below."""
        core, role, commit = self.core, self.core.role, self.core.commit
        try:
            if getattr(self, event[0])(*event[1:]) is False:
                return None
            messages = self._drain()
        except AssertionError as error:
            return Outcome([], [], False, str(error) or repr(error))
        after = self.core
        committed = []
        if after is core:
            for index in range(commit + 1, after.commit + 1):
                term = after.term_at(index)
                if term is not None:
                    committed.append((index, term))
        elected = after.role is Role.LEADER and (role is not Role.LEADER or after is not core)
        self._forget_time()
        return Outcome(messages, committed, elected)

    def receive(self, message: Message, impatient: bool) -> None:
        """`impatient`: a minimum election timeout has passed since a leader was heard."""
        if impatient:
            self.core._timer._elapsed = self.config.election_ticks
        self.core.step(message)

    def time_out(self) -> bool:
        """No leader was heard for an election timeout."""
        core = self.core
        if core.leadership is not None or not core._may_campaign:
            return False
        core._timer._elapsed = core._timer._timeout
        core.tick()
        return True

    def heartbeat(self) -> bool:
        """The leader's next heartbeats are due."""
        leadership = self.core.leadership
        if leadership is None:
            return False
        leadership._heartbeat_elapsed = self.config.heartbeat_ticks
        self.core.tick()
        return True

    def hear_nobody(self) -> bool:
        """The leader has heard no majority for an election timeout."""
        leadership = self.core.leadership
        if leadership is None:
            return False
        leadership.now = 2 * self.config.election_ticks
        self.core.tick()
        return True

    def propose(self) -> bool:
        """A client asks the leader for something."""
        return _granted(self.core.propose, PROPOSED)

    def transfer(self, target: int) -> bool:
        """An operator has the leader hand over."""
        if self.core.transferring == target:
            return False
        return _granted(self.core.transfer_leadership, target)

    def change(self, kind: str, target: int) -> bool:
        """An operator has the leader take `target` in as a learner, let it vote, or let it go."""
        now = self.core.membership
        voters, learners = set(now.voters), set(now.members - now.voters)
        if (target in now.members) != (kind != "add") or (kind == "promote" and target in voters):
            return False
        voters.discard(target)
        learners.discard(target)
        if kind == "add":
            learners.add(target)
        elif kind == "promote":
            voters.add(target)
        if not voters:
            return False
        return _granted(self.core.change_members, members(*sorted(voters), learners=sorted(learners)))

    def sync(self) -> bool:
        """The oldest write is durable; behind the last one a received snapshot is put in force."""
        if self.disk.pending:
            token = self.disk.sync_one()
            self.lost = self.lost and self.disk.hard_state.recovering
            self.core.written(token)
            return True
        if self.installing is None:
            return False
        snapshot, self.installing = self.installing, None
        self.disk.install(snapshot, self.incoming)
        self._take_over(snapshot)
        return True

    def crash(self, kept: int) -> None:
        """The process dies when the first `kept` of the writes under way were durable, and starts again."""
        for _ in range(kept):
            self.disk.sync_one()
        self._boot()

    def tear(self) -> bool:
        """The process dies, and finds a part of the oldest write when it starts again."""
        if not self.disk.pending:
            return False
        self.disk.hard_state = msgspec.structs.replace(self.disk.hard_state, recovering=True)
        self._boot()
        return True

    def lose_disk(self) -> None:
        """An empty disk is put in."""
        self.lost = True
        self.disk = Disk(recovering=True)
        self._boot()

    def compact(self) -> bool:
        """A snapshot is taken of all that was applied, and the log behind it dropped."""
        core = self.core
        term = core.term_at(core.applied)
        if core.applied <= core.snapshot.index or term is None or self.installing is not None:
            return False
        snapshot = SnapshotId(core.applied, term)
        core.compact(snapshot, core.applied + 1)
        self.disk.compact(snapshot, self._image(snapshot), core.first_index)
        return True

    def renamed(self, names: Mapping[int, int]) -> Self:
        """A copy in which everybody that the member knows, and itself, has another id."""
        found: Self = renamed(self, names)
        leadership = found.core.leadership
        if leadership is not None:
            leadership._track_members()
        found._forget_time()
        return found

    # The replicated state: all entries that were applied.

    def _image(self, snapshot: SnapshotId) -> bytes:
        return msgspec.msgpack.encode(self.entries)

    def _take_over(self, snapshot: SnapshotId) -> None:
        self.entries = msgspec.msgpack.decode(self.incoming, type=list[tuple[int, int, bytes]])
        self.core.snapshot_installed(snapshot, self._configuration())

    # The driver's work.

    def _drain(self) -> list[Message]:
        messages: list[Message] = []
        while (ready := self.core.ready()) is not None:
            messages += ready.messages
            if ready.token is not None:
                self.disk.pending.append(Ready(ready.token, ready.hard_state, ready.entries, [], [], [], []))
            for entry in ready.committed:
                assert entry in self.disk.entries, f"{entry} was handed out for applying before it was durable"
                self.entries.append((entry.index, entry.term, entry.data))
                self.core.applied_to(entry.index)
            for chunk in ready.chunks:
                self.store(chunk)
            messages += [one for request in ready.chunk_requests for one in self._chunks(request)]
        return messages

    def store(self, chunk: InstallSnapshot) -> None:
        """A part of a snapshot has come."""
        self.incoming = self.incoming[: chunk.offset] + chunk.data
        if chunk.done:
            self.installing = chunk.snapshot

    def _chunks(self, request: ChunkRequest) -> list[Message]:
        """All of the snapshot from there on, if it is still the newest."""
        if request.snapshot != self.disk.snapshot:
            return []
        head = (request.term, self.config.node_id, request.to)
        return [InstallSnapshot(*head, request.snapshot, request.offset, self.disk.image[request.offset :], True)]

    def _forget_time(self) -> None:
        core, config = self.core, self.config
        core._timer._elapsed, core._timer._timeout = 0, config.election_ticks
        core._term_jumps.__init__()  # type: ignore[misc]
        core.disk = DiskPace(config.election_ticks)
        self._forget_numbers()
        if (leadership := core.leadership) is not None:
            leadership.now = leadership._heartbeat_elapsed = 0
            leadership._lag = DurabilityLag(config.election_ticks)
            assert leadership.memberships_version == core.log.memberships.version
            leadership.memberships_version = 0
            if leadership._transfer is not None:
                leadership._transfer.elapsed = 0
            for progress in leadership.progress.values():
                progress.heard = progress.asked = progress.moved = 0
        core.log.memberships.version = 0

    def _forget_numbers(self) -> None:
        """Number writes from 1, and versions by their order, let parked messages be a set, and count nothing."""
        self.core.tally = ElectionTally()
        outbox, hard = self.core._outbox, self.core._hard
        outbox._last_written = 0
        versions = [outbox._durable_version, outbox._submitted_version, hard.version]
        ranks = {
            version: rank for rank, version in enumerate(sorted({*versions, *(one.version for one in outbox._writes)}))
        }
        outbox._durable_version, outbox._submitted_version, hard.version = (ranks[version] for version in versions)
        for token, (write, ready) in enumerate(zip(outbox._writes, self.disk.pending, strict=True), 1):
            write.token, write.version = token, ranks[write.version]
            write.parked = _in_order(write.parked)
            self.disk.pending[token - 1] = msgspec.structs.replace(ready, token=token)
        outbox._parked = _in_order(outbox._parked)


def _granted(ask: Callable[[Any], object], what: object) -> bool:
    """Whether the core does what it is asked for."""
    try:
        ask(what)
    except (NotLeader, ProposalRefused, ValueError):
        return False
    return True


def _in_order(messages: list[Message]) -> list[Message]:
    """Each once, in an order of their own: they leave together, and the network reorders them anyway."""
    return [message for _, message in sorted({msgspec.msgpack.encode(one): one for one in messages}.items())]
