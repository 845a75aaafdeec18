"""One member of the quorum, put together: the only place where its parts meet.

The process and the simulator build the same object, each on ports of its own. The order of construction is the order of
dependence; nothing is connected afterwards, and nothing runs before `start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from pidkeeper.controller.migration.zookeeper import Connected
from pidkeeper.controller.node.disk_watch import DiskWatch
from pidkeeper.controller.node.driver import Driver, addresses
from pidkeeper.controller.node.founding_gate import FoundingGate, founding_terms
from pidkeeper.controller.node.leadership import Leadership
from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.opening import OpenedStorage
from pidkeeper.controller.node.operator_warnings import warnings
from pidkeeper.controller.node.ports import Ports
from pidkeeper.controller.node.proposals import Proposals
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.node.snapshot_due import SnapshotEvery
from pidkeeper.controller.node.snapshot_keeper import SnapshotKeeper
from pidkeeper.controller.node.voter_changes import VoterChanges
from pidkeeper.controller.raft.core import RaftConfig, RaftCore, Rng, Role
from pidkeeper.controller.state import requests
from pidkeeper.controller.transport.identity import Identity
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Founded
from pidkeeper.protocol.records import LeaderChangeRecord, encode_batch
from pidkeeper.protocol.releases import MAX_RELEASE_LENGTH
from pidkeeper.service.build import build_version

logger = logging.getLogger(__name__)

HANDOVER_SECONDS: Final = 1.0
"""How long a stopping leader waits for its successor: two election timeouts, after which an election does it."""


class ClusterMember:
    """The parts of one member, and its life: `start`, `stop`.

    `config`: of the core, by default what the settings say. `ended` is set when the member is to stop: to None by
    `request_stop`, to the error by a fault. `stopping`: it has begun to stop.
    """

    def __init__(
        self, settings: MemberSettings, storage: OpenedStorage, ports: Ports, config: RaftConfig | None = None
    ) -> None:
        self.settings = settings
        self.storage = storage
        self.ports = ports
        self.ended: asyncio.Future[BaseException | None] = ports.loop.create_future()
        self.stopping = False
        self.core = core = make_core(settings, storage, config or raft_config(settings, storage), ports.rng)
        self.disk_watch = DiskWatch(core, settings.timing.tick_ms)
        self.machine = machine = storage.machine
        self.ledger = Ledger(
            storage.archive, storage.owners, machine.next_offset, machine.producer_ids.next_producer_id
        )
        self.links = ports.links(_identity(settings, storage, core), addresses(core))
        self.writer = ports.writer(storage.wal)
        self.chunk_reader = ports.chunk_reader(storage.catalog, core.config.chunk_bytes)
        self.proposals = Proposals(core, ports.clock_ns)
        self.voter_changes = VoterChanges(core, machine, self.proposals)
        self.leadership = Leadership(
            core,
            machine,
            self.proposals,
            settings,
            ports,
            versions=self._versions,
            own=lambda: self.links.identity,
            foundings=self._foundings,
            wake=self._wake,
        )
        self.keeper = SnapshotKeeper(
            storage.catalog,
            core,
            machine,
            self.ledger,
            self.writer,
            SnapshotEvery(settings.snapshot_entries, settings.snapshot_bytes, settings.snapshot_allocations),
        )
        self.driver = Driver(
            core,
            machine,
            self.proposals,
            self.leadership,
            links=self.links,
            writer=self.writer,
            keeper=self.keeper,
            chunks=self.chunk_reader,
            history=self.ledger,
            directory=storage.directory,
            loop=ports.loop,
            clock_ns=ports.clock_ns,
            on_fault=self._on_fault,
        )
        self.gate = FoundingGate(settings, storage, self.driver, self.links, self.writer)
        self._ticker: asyncio.TimerHandle | None = None
        self._tick_seconds = settings.timing.tick_ms / 1000

    @property
    def node_id(self) -> int:
        """This member's id."""
        return self.settings.node_id

    def submit(self, request: requests.Request) -> Any:
        """Have `request` decided; see `Leadership.submit`."""
        return self.leadership.submit(request)

    async def start(self) -> None:
        """Join the quorum. Raises OSError if the peer address cannot be bound."""
        for warning in warnings(self.settings, self.core, self.machine):
            logger.warning("%s", warning)
        if self.gate.founding is None:
            logger.warning("%s", self.gate.waits_for)
        # Before the links: what a peer sends is to be written.
        self.keeper.start(self.driver)
        self.writer.start(self.driver)
        self.chunk_reader.start(self.driver)
        listen = self.settings.peer_listen
        await self.links.start(listen.host, listen.port, self.gate)
        if isinstance(self.ports.znode, Connected):
            await self.ports.znode.start()
        self.driver.pump()
        self._tick()

    async def stop(self) -> None:
        """Hand leadership over, finish what is being written, close everything."""
        await self.hand_over()
        if self._ticker is not None:
            self._ticker.cancel()
        self.chunk_reader.stop()
        await self.keeper.stop()
        if isinstance(self.ports.znode, Connected):
            await self.ports.znode.stop()
        await self.links.stop()
        await self.writer.stop()
        self.ledger.close()
        self.storage.directory.close()

    async def hand_over(self) -> None:
        """Stop serving and, as leader, hand over to another voter; bounded by HANDOVER_SECONDS."""
        self.stopping = True
        self.leadership.close()
        core = self.core
        if core.role is not Role.LEADER or core.membership.voters == {core.node_id}:
            return
        with contextlib.suppress(RequestError, TimeoutError):
            self.driver.transfer_leadership(None)
            async with asyncio.timeout(HANDOVER_SECONDS):
                await self.driver.led_by_another.wait()

    def request_stop(self) -> None:
        """Ask for a graceful stop."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _tick(self) -> None:
        # One tick per call, however late: a member that was paused must not catch up and time out at once.
        self._ticker = self.ports.loop.call_later(self._tick_seconds, self._tick)
        self.gate.tick()
        self.disk_watch.tick()
        self.writer.prepare_segment()

    def _versions(self) -> dict[int, int]:
        return {peer: facts.metadata_version for peer, facts in self.links.peers.items()}

    def _foundings(self) -> dict[int, Founded]:
        # Members alone: whoever knows the peer key can connect as a guest, and say what it likes of itself.
        members = {member.id for member in self.core.contacts()}
        said: dict[int, Founded] = {peer: facts for peer, facts in self.links.peers.items() if peer in members}
        said[self.node_id] = self.links.identity
        return {member: founded for member, founded in said.items() if founded.founding_id is not None}

    def _wake(self) -> None:
        self.driver.pump_soon()

    def _on_fault(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


def raft_config(settings: MemberSettings, storage: OpenedStorage) -> RaftConfig:
    """The core's configuration: who votes by what is durable, the rest by the settings."""
    timing = settings.timing
    return RaftConfig(
        node_id=settings.node_id,
        voters=tuple(voter.id for voter in storage.voters.members),
        learner=storage.learner,
        directory_id=str(storage.directory.meta.directory_id),
        heartbeat_ticks=timing.ticks(timing.heartbeat_ms),
        election_ticks=timing.ticks(timing.election_timeout_ms),
        link_lost_ticks=timing.ticks(timing.link_lost_ms),
    )


def make_core(settings: MemberSettings, storage: OpenedStorage, config: RaftConfig, rng: Rng) -> RaftCore:
    """The consensus core, started from what is durable. Raises InvariantViolation if the parts do not fit together."""
    return RaftCore(
        config,
        rng,
        hard_state=storage.log.hard_state,
        snapshot=storage.snapshot,
        entries=storage.log.entries,
        leader_change_data=encode_batch([LeaderChangeRecord(settings.node_id)]),
        configured=storage.voters,
        voters=storage.machine.voters,
    )


def _identity(settings: MemberSettings, storage: OpenedStorage, core: RaftCore) -> Identity:
    founding = storage.founding
    return Identity(
        cluster_id=settings.cluster_id,
        node_id=settings.node_id,
        directory_id=str(storage.directory.meta.directory_id),
        keys=settings.peer_keys,
        address=settings.address(),
        metadata_version=storage.machine.supported,
        founding_id=None if founding is None else founding.founding_id,
        succession=None if founding is None else founding.succession,
        blank=founding_terms(settings) if founding is None else None,
        voters=core.committed_voters,
        release=build_version()[:MAX_RELEASE_LENGTH],
    )
