"""Executes what the core asks for: messages to the links, writes to the storage thread, committed entries to the state.

One owner: every method runs on the event loop, and every input ends in `_drain`, which takes the core's Ready bundles:

1. messages leave at once (the core has parked those that rest on a write);
2. hard state and entries go to the storage thread, and their token comes back when they are durable;
3. committed entries are replayed in order, and the answers that rest on them are released;
4. received snapshot chunks are stored, and those that peers want are read on a thread of their own, then sent.

Then what waits to be decided is decided, on the state as it is by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pidkeeper.controller.answers import Loop, not_controller
from pidkeeper.controller.node.election_clock import ElectionClock
from pidkeeper.controller.node.happenings import Happenings
from pidkeeper.controller.node.leader_wait import LeaderWait
from pidkeeper.controller.node.operator_warnings import implausible_terms
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.round_trips import RoundTrips
from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, RaftCore, Role
from pidkeeper.controller.raft.election_tally import ElectionTally, LossCause
from pidkeeper.controller.raft.messages import Entry, HardState, InstallSnapshot, Message
from pidkeeper.controller.raft.ready import ChunkRequest, Ready
from pidkeeper.controller.state.machine import Allocation, Jump, StateMachine, allocations, jumps, owners
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.metadata_version import MEMBERSHIP
from pidkeeper.protocol.records import QuorumMember, Record, VotersRecord, decode_batch
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.owner_format import Owner
from pidkeeper.snapshots.snapshot_id import SnapshotId

logger = logging.getLogger(__name__)


class Links(Protocol):
    """Sends messages; may drop them. `PeerLinks` is one."""

    def send(self, messages: list[Message]) -> None:
        """Send each message to its receiver, if it is known."""

    def set_members(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """The (host, port) of the other members, whenever they change."""

    def tell_voters(self, voters: tuple[QuorumMember, ...]) -> None:
        """The voters, whenever others are committed."""


class Writer(Protocol):
    """Makes writes durable in order, and then calls `Driver.durable`. `StorageWorker` is one."""

    def append(self, token: int, entries: list[Entry], hard_state: HardState | None) -> None:
        """Queue one write of the log."""


class Keeper(Protocol):
    """Takes and stores snapshots. `SnapshotKeeper` is one."""

    def applied(self, entry: Entry) -> None:
        """An entry was applied: time for a snapshot?"""

    def store(self, chunk: InstallSnapshot) -> None:
        """Store a received chunk; calls `Driver.snapshot_installed` or `snapshot_failed` after the last one."""


class Chunks(Protocol):
    """Reads chunks of snapshots, and then calls `Driver.chunk_read`. `ChunkReader` is one."""

    def read(self, request: ChunkRequest) -> None:
        """Have a chunk read; may drop the request, for the core asks again."""


class History(Protocol):
    """Takes note of applied allocations. `Ledger` is one."""

    def record(
        self,
        allocations: Iterable[tuple[int, Allocation]],
        owners: Iterable[Owner] = (),
        jumps: Iterable[tuple[int, Jump]] = (),
    ) -> None:
        """Add applied allocations, each with its offset, the IDs that transactional ids were given, and jumps."""

    def restart(self, next_offset: int, next_producer_id: int) -> None:
        """A snapshot replaced what was to come."""


class Directory(Protocol):
    """Where all of this member is on disk. `DataDirectory` is one."""

    founded: bool
    """A founding is durable in it."""


class LeaderSide(Protocol):
    """What this member does while it leads. `Leadership` is one."""

    def misses_leader(self) -> bool:
        """Whether one is to be expected shortly."""

    def observe(self) -> None:
        """The core may have come to lead, or lead no more."""

    def decide(self) -> bool:
        """Decide what waits; whether that appended an entry."""

    def applied(self, records: list[Record]) -> None:
        """These were committed and applied."""

    def tick(self) -> None:
        """10 ms have passed."""

    def fail(self, refusal: RequestError) -> None:
        """Answer everything with `refusal`, and take no more."""


class Driver:
    """The single owner of the core. `on_fault(error)` is called once for anything that must stop this member.

    `clock_ns`: a monotonic clock, for what is measured alone.
    """

    def __init__(
        self,
        core: RaftCore,
        machine: StateMachine,
        proposals: Proposals,
        leadership: LeaderSide,
        *,
        links: Links,
        writer: Writer,
        keeper: Keeper,
        chunks: Chunks,
        history: History,
        directory: Directory,
        loop: Loop,
        clock_ns: Callable[[], int],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._machine = machine
        self._proposals = proposals
        self._leadership = leadership
        self._links = links
        self._writer = writer
        self._keeper = keeper
        self._chunks = chunks
        self._history = history
        self._directory = directory
        self._loop = loop
        self._on_fault = on_fault
        self.faulted = False
        self.leader_changes = 0
        self.round_trips = RoundTrips(clock_ns)
        self.election_clock = ElectionClock(core.tally, clock_ns)
        self.happenings = Happenings()
        self.led_by_another = asyncio.Event()
        self.leader_wait = LeaderWait(leadership.misses_leader)
        self._leader = core.leader_id
        self._memberships_version = core.memberships_version
        self._pump_scheduled = False
        self._observe_version()

    # Inputs. Each is guarded: a fault in the core or the state stops this member, never just a task of it.

    def tick(self) -> None:
        """Let one tick pass."""
        self._guarded(self._tick)

    def received(self, messages: list[Message]) -> None:
        """Step the messages of one peer."""
        self._guarded(self._step, messages)

    def join(self, voters: VotersRecord) -> None:
        """A blank member joins a founding by these voters, which its file does not name."""
        self._guarded(self._join, voters)

    def link_up(self, peer: int) -> None:
        """Messages reach `peer` again."""
        self.round_trips.interrupted(peer)
        self._guarded(self._core.link_up, peer)

    def link_lost(self, peer: int) -> None:
        """`peer` stopped sending: its process died, or the network broke."""
        self.round_trips.interrupted(peer)
        self._guarded(self._core.link_lost, peer)

    def durable(self, tokens: list[int]) -> None:
        """The storage thread synced the writes of `tokens`."""
        self._guarded(self._written, tokens)

    def snapshot_installed(self, snapshot: SnapshotId, image: StateImage) -> None:
        """The received `snapshot` is durable, and the log restarts behind it: take its state over."""
        self._guarded(self._take_over, snapshot, image)

    def snapshot_failed(self, snapshot: SnapshotId) -> None:
        """The received `snapshot` could not be used: let the leader send it anew."""
        self._guarded(self._core.snapshot_failed, snapshot)

    def chunk_read(self, request: ChunkRequest, data: bytes, done: bool) -> None:
        """The chunk of `request` is `data`, `done` if it is the last one: send it."""
        self._guarded(self._send_chunk, request, data, done)

    def transfer_leadership(self, target: int | None) -> None:
        """As `RaftCore.transfer_leadership`. Raises RequestError, too if this member does not lead."""
        try:
            self._core.transfer_leadership(target)
        except NotLeader as error:
            raise not_controller() from error
        except ProposalRefused as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ValueError as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        self.pump()

    def pump_soon(self) -> None:
        """Pump at the end of this turn of the event loop: whatever else arrives in it is decided with it."""
        if not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pump_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Carry out everything that the core has ready."""
        self._guarded(_nothing)

    def _guarded(self, action: Callable[..., None], *args: Any) -> None:
        if self.faulted:
            return
        try:
            action(*args)
            self._drain()
        except Exception as error:  # noqa: BLE001 - an invariant is broken or the log is unreadable: stop, never go on
            self.fault(error)

    def fault(self, error: BaseException) -> None:
        """Stop serving for good: release nothing, and let the process end."""
        if not self.faulted:
            self.faulted = True
            self._leadership.fail(RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "this member stops after a fault"))
            self.leader_wait.look()
            self._on_fault(error)

    def _drain(self) -> None:
        while True:
            while (ready := self._core.ready()) is not None:
                self._carry_out(ready)
            # Only now: what was committed is answered as such, also by a leader that the same message deposed.
            self._watch_leader()
            self.election_clock.look()
            self._leadership.observe()
            self.leader_wait.look()
            if not self._leadership.decide():
                return

    def _carry_out(self, ready: Ready) -> None:
        if not self._directory.founded:
            # Whoever waits may apply what an earlier build has left on its disk, and that is all.
            taken = ready.token is not None or ready.messages or ready.chunks
            assert not taken, f"D8: {ready} before any founding is durable here"
        # Before the write: to wake the storage thread takes time that the peers would wait.
        if ready.messages:
            self.round_trips.sent(ready.messages)
            self._links.send(ready.messages)
        if ready.token is not None:
            self._writer.append(ready.token, ready.entries, ready.hard_state)
        self._tell_members()
        for entry in ready.committed:
            self._apply(entry)
        for chunk in ready.chunks:
            self._keeper.store(chunk)
        for request in ready.chunk_requests:
            self._chunks.read(request)

    def _tell_members(self) -> None:
        core = self._core
        if core.memberships_version != self._memberships_version:
            self._memberships_version = core.memberships_version
            self._links.set_members(addresses(core))
            self._links.tell_voters(core.committed_voters)

    def _join(self, voters: VotersRecord) -> None:
        self._core.join(voters)
        self._tell_members()

    def _tick(self) -> None:
        self._core.tick()
        self._leadership.tick()

    def _step(self, messages: list[Message]) -> None:
        self.round_trips.received(messages)
        core, peer = self._core, messages[0].sender
        refused = core.terms_refused.get(peer, 0)
        for message in messages:
            core.step(message)
        self._tell_refused(peer, refused)

    def _tell_refused(self, peer: int, before: int) -> None:
        """Log that terms of `peer` were refused: the first, and then as often as their number doubles."""
        count = self._core.terms_refused.get(peer, 0)
        if count.bit_length() > before.bit_length():
            logger.error("%s", implausible_terms(peer, count))

    def _written(self, tokens: list[int]) -> None:
        for token in tokens:
            self._core.written(token)

    def _apply(self, entry: Entry) -> None:
        records = self._proposals.records_of(entry) or decode_batch(entry.data)
        first_offset, version = self._machine.next_offset, self._machine.metadata_version
        self._machine.replay(records)
        self._observe_version()
        self._history.record(
            allocations(records, first_offset), owners(records, first_offset, version), jumps(records, first_offset)
        )
        if self.happenings.watched:
            self.happenings.applied(records, first_offset)
        self._core.applied_to(entry.index)
        self._proposals.applied(entry)
        self._leadership.applied(records)
        self._keeper.applied(entry)

    def _observe_version(self) -> None:
        if self._machine.metadata_version >= MEMBERSHIP:
            self._core.name_voters()

    def _send_chunk(self, request: ChunkRequest, data: bytes, done: bool) -> None:
        core = self._core
        # The read took its time: whoever leads by now sends what is wanted then, and knows nothing of this request.
        if core.role is not Role.LEADER or core.term != request.term:
            return
        chunk = InstallSnapshot(
            term=request.term,
            sender=core.node_id,
            to=request.to,
            snapshot=request.snapshot,
            offset=request.offset,
            data=data,
            done=done,
        )
        self._links.send([chunk])

    def _take_over(self, snapshot: SnapshotId, image: StateImage) -> None:
        self._machine.restore(image)
        self._observe_version()
        self._history.restart(image.next_offset, image.next_producer_id)
        self._core.snapshot_installed(snapshot, image.voters)

    def _watch_leader(self) -> None:
        core = self._core
        before, leader = self._leader, core.leader_id
        if leader == before:
            return
        self._leader = leader
        if self.happenings.watched:
            loss = core.tally.last_loss
            self.happenings.led_by(leader, core.term, None if loss is None else loss.value)
        if leader in {None, core.node_id}:
            self.led_by_another.clear()
        else:
            self.led_by_another.set()
        if before is not None:
            _tell_loss(before, core.tally)
        if leader is not None:
            self.leader_changes += 1
            logger.info("member %d leads term %d", leader, core.term, extra=_how_won(core))


def _tell_loss(leader: int, tally: ElectionTally) -> None:
    why = tally.last_loss
    level = logging.INFO if why is LossCause.TRANSFER else logging.WARNING
    logger.log(level, "member %d leads no more", leader, extra={"why": "unknown" if why is None else why.value})


def _how_won(core: RaftCore) -> dict[str, str]:
    """Why this member stood, and who voted for it; of another's election it knows nothing."""
    election = core.tally.last_election
    if core.leader_id != core.node_id or election is None:
        return {}
    return {"why": election[0].value, "votes": ",".join(map(str, core.tally.won_by))}


def addresses(core: RaftCore) -> dict[int, tuple[str, int]]:
    """Where the other members listen for peers, by id."""
    found = {}
    for member in core.contacts():
        if member.id != core.node_id:
            peer = HostPort.parse(member.peer, "peer")
            found[member.id] = (peer.host, peer.port)
    return found


def _nothing() -> None:
    """The pump's own action: only drain."""
