"""Executes what the core asks for: messages to the links, writes to the storage thread, committed entries to the state.

One owner: every method runs on the event loop, and every input ends in `pump`, which drains the core's Ready bundles:

1. messages leave at once (the core has parked those that rest on a write);
2. hard state and entries go to the storage thread, and their token comes back when they are durable;
3. committed entries are replayed in order, and the answers that rest on them are released;
4. snapshot chunks are stored or sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pidkeeper.controller.answers import Loop, not_controller
from pidkeeper.controller.node.decider import Decider
from pidkeeper.controller.node.voter_changes import VoterChanges
from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, RaftCore, Role
from pidkeeper.controller.raft.messages import Entry, HardState, InstallSnapshot, Message, SnapshotMeta
from pidkeeper.controller.raft.ready import ChunkRequest
from pidkeeper.controller.state.machine import StateMachine, allocations
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.metadata_version import common_version
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    LeaderChangeRecord,
    Record,
    decode_batch,
    encode_batch,
)
from pidkeeper.snapshots.format import SnapshotError
from pidkeeper.snapshots.image import StateImage

logger = logging.getLogger(__name__)


class Links(Protocol):
    """Sends messages; may drop them. `PeerLinks` is one."""

    def send(self, messages: list[Message]) -> None:
        """Send each message to its receiver, if it is known."""

    def set_members(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """The (host, port) of the other members, whenever they change."""


class Writer(Protocol):
    """Makes writes durable in order and then calls `Driver.durable`. `StorageWorker` is one."""

    def append(self, token: int, entries: list[Entry], hard_state: HardState | None) -> None:
        """Queue one write of the log."""


class Keeper(Protocol):
    """Takes, stores and reads snapshots. `SnapshotKeeper` is one."""

    def applied(self, entry: Entry) -> None:
        """An entry was applied: time for a snapshot?"""

    def store(self, chunk: InstallSnapshot) -> None:
        """Store a received chunk; calls `Driver.snapshot_installed` or `snapshot_failed` after the last one."""

    def read(self, meta: SnapshotMeta, offset: int) -> tuple[bytes, bool]:
        """A chunk of a snapshot, and whether it is the last. Raises SnapshotError if the snapshot is gone."""


class History(Protocol):
    """Takes note of applied allocations. `Ledger` is one."""

    def record(self, allocations: Iterable[tuple[int, AllocateProducerIdsRecord]]) -> None:
        """Add applied allocations, each with its offset."""

    def restart(self, next_offset: int, next_producer_id: int) -> None:
        """A snapshot replaced what was to come."""


class Driver:
    """The single owner of the core. `on_fault(error)` is called once for anything that must stop this member."""

    def __init__(
        self,
        core: RaftCore,
        machine: StateMachine,
        history: History,
        on_fault: Callable[[BaseException], None],
        loop: Loop | None = None,
    ) -> None:
        self.core = core
        self.machine = machine
        self.history = history
        self.decider = Decider(self, machine, loop=loop)
        self.voter_changes = VoterChanges(core, machine)
        self._on_fault = on_fault
        self.faulted = False
        self.leader_changes = 0
        self.ticks = 0
        self.on_serving: Callable[[], None] = lambda: None
        self.on_deposed: Callable[[], None] = lambda: None
        # What was applied since, while it serves.
        self.on_applied: Callable[[list[Record]], None] = lambda _: None
        self.led_by_another = asyncio.Event()
        self._leader = core.leader_id
        self._memberships_version = core.memberships_version
        self._led_term: int | None = None
        self._was_serving = False
        self.links: Links
        self.worker: Writer
        self.keeper: Keeper

    def wire(self, links: Links, worker: Writer, keeper: Keeper) -> None:
        """Connect the parts that need the driver to exist first."""
        self.links, self.worker, self.keeper = links, worker, keeper

    # Inputs. Each is guarded: a fault in the core or the state stops this member, never just a task of it.

    def tick(self) -> None:
        """Let one tick pass."""
        self.ticks += 1
        self._guarded(self.core.tick)

    def received(self, messages: list[Message]) -> None:
        """Step the messages of one peer."""
        self._guarded(self._step, messages)

    def link_up(self, peer: int) -> None:
        """Messages reach `peer` again."""
        self._guarded(self.core.link_up, peer)

    def link_lost(self, peer: int) -> None:
        """`peer` stopped sending: its process died, or the network broke."""
        self._guarded(self.core.link_lost, peer)

    def durable(self, tokens: list[int]) -> None:
        """The storage thread synced the writes of `tokens`."""
        self._guarded(self._written, tokens)

    def snapshot_installed(self, meta: SnapshotMeta, image: StateImage) -> None:
        """The received snapshot `meta` is durable, and the log restarts behind it: take its state over."""
        self._guarded(self._take_over, meta, image)

    def snapshot_failed(self, meta: SnapshotMeta) -> None:
        """The received snapshot `meta` could not be used: let the leader send it anew."""
        self._guarded(self.core.snapshot_failed, meta)

    def transfer_leadership(self, target: int | None) -> None:
        """Hand over to `target`, or to the most caught-up voter. Raises RequestError if this member does not lead."""
        try:
            self.core.transfer_leadership(target)
        except NotLeader as error:
            raise not_controller() from error
        except ProposalRefused as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        except ValueError as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        self.pump()

    def common_version(self, versions: Mapping[int, int]) -> int:
        """The newest metadata version that every member reads, given what the connected peers say."""
        everybody = (member.id for member in self.core.contacts())
        return common_version(everybody, {**versions, self.core.node_id: self.machine.supported})

    # What the decider needs.

    def serving(self) -> bool:
        """Whether requests may be decided here."""
        return self.core.serving and not self.core.transferring and not self.faulted

    def settled(self) -> bool:
        """Whether every entry of the log is applied."""
        return self.core.applied == self.core.last_index

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append an entry to the log. Raises RequestError."""
        try:
            return self.core.propose(data)
        except (NotLeader, ProposalRefused) as error:
            raise not_controller() from error

    def confirm(self) -> tuple[int, int]:
        """Append an entry that changes nothing. Raises RequestError."""
        return self.propose(encode_batch([LeaderChangeRecord(self.core.node_id)]))

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
            self.decider.fail(RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "this member stops after a fault"))
            self._on_fault(error)

    def _drain(self) -> None:
        core = self.core
        while True:
            self._watch_leadership()
            self.decider.decide()
            if (ready := core.ready()) is None:
                return
            if ready.token is not None:
                self.worker.append(ready.token, ready.entries, ready.hard_state)
            if ready.messages:
                self.links.send(ready.messages)
            if core.memberships_version != self._memberships_version:
                self._memberships_version = core.memberships_version
                self.links.set_members(addresses(core))
            for entry in ready.committed:
                self._apply(entry)
            for chunk in ready.chunks:
                self.keeper.store(chunk)
            for request in ready.chunk_requests:
                self._send_chunk(request)

    def _step(self, messages: list[Message]) -> None:
        for message in messages:
            self.core.step(message)

    def _written(self, tokens: list[int]) -> None:
        for token in tokens:
            self.core.written(token)

    def _apply(self, entry: Entry) -> None:
        records = self.decider.records_of(entry) or decode_batch(entry.data)
        first_offset = self.machine.next_offset
        self.machine.replay(records)
        self.history.record(allocations(records, first_offset))
        self.core.applied_to(entry.index)
        self.decider.applied(entry)
        self.voter_changes.applied(entry)
        if self._was_serving and self.core.serving:
            self.on_applied(records)
        self.keeper.applied(entry)

    def _send_chunk(self, request: ChunkRequest) -> None:
        try:
            data, done = self.keeper.read(request.meta, request.offset)
        except (SnapshotError, FileNotFoundError) as error:
            # Newer snapshots replaced it, or the follower asks for what is not there: the core starts over.
            logger.warning("cannot send a part of a snapshot to member %d: %s", request.to, error)
            return
        self.links.send(
            [
                InstallSnapshot(
                    term=request.term,
                    sender=self.core.node_id,
                    to=request.to,
                    meta=request.meta,
                    offset=request.offset,
                    data=data,
                    done=done,
                )
            ]
        )

    def _take_over(self, meta: SnapshotMeta, image: StateImage) -> None:
        self.machine.restore(image)
        self.history.restart(image.next_offset, image.next_producer_id)
        self.core.snapshot_installed(meta, image.voters)

    def _watch_leadership(self) -> None:
        core = self.core
        if core.leader_id != self._leader:
            self._leader = core.leader_id
            if self._leader in {None, core.node_id}:
                self.led_by_another.clear()
            else:
                self.led_by_another.set()
            if self._leader is not None:
                self.leader_changes += 1
                logger.info("member %d leads term %d", self._leader, core.term)
        led_term = core.term if core.role is Role.LEADER else None
        if self._led_term not in {None, led_term}:
            self.decider.fail(not_controller())
            self.on_deposed()
        self._led_term = led_term
        if core.serving != self._was_serving:
            self._was_serving = core.serving
            if core.serving:
                self.on_serving()


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
