"""One member of the quorum: opens its storage, wires core, state, log and links together, and runs until stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client.core import Metric

from pidkeeper.controller.answers import Answer
from pidkeeper.controller.migration.member_side import Migration, random_name
from pidkeeper.controller.migration.zookeeper import BlockZnode, Connected, NoZookeeper
from pidkeeper.controller.node.driver import Driver, addresses
from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.markers import RecordedMarkers
from pidkeeper.controller.node.metrics import member_metrics
from pidkeeper.controller.node.opening import OpenedStorage, open_storage
from pidkeeper.controller.node.sessions import BrokerSessions
from pidkeeper.controller.node.settings import MemberSettings, ZooKeeperSettings
from pidkeeper.controller.node.snapshot_keeper import SnapshotKeeper
from pidkeeper.controller.node.status import describe, liveness, readiness
from pidkeeper.controller.node.storage_worker import StorageWorker
from pidkeeper.controller.node.transaction_duties import TransactionDuties
from pidkeeper.controller.node.transaction_views import brokers_response, transaction_description, transactions_page
from pidkeeper.controller.raft.core import RaftConfig, RaftCore, Role
from pidkeeper.controller.state import requests
from pidkeeper.controller.transport.links import Identity, Peer, PeerLinks
from pidkeeper.protocol.addresses import AddressError, HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AddVoterRequest,
    AllocatedBlock,
    AllocatedBlocksPage,
    BrokersResponse,
    QuorumDescription,
    TransactionDescription,
    TransactionsPage,
)
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import MAX_PEER_LENGTH, LeaderChangeRecord, QuorumMember, Record, encode_batch
from pidkeeper.service.health_check import HealthCheck
from pidkeeper.snapshots.files import OsFiles

logger = logging.getLogger(__name__)

HANDOVER_SECONDS = 1.0
"""How long a stopping leader waits for its successor: two election timeouts, after which an election does it."""


class ClusterMember:
    """A running member. Make one with `open`, then `start`.

    `ended` is set when it is to stop: to None by `request_stop`, to the error by a fault.
    """

    def __init__(self, settings: MemberSettings, storage: OpenedStorage) -> None:
        self.settings = settings
        self.node_id = settings.node_id
        self.cluster_id = settings.cluster_id
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.stopping = False
        self._storage = storage
        core = make_core(settings, storage)
        machine = storage.machine
        self.ledger = ledger = Ledger(storage.archive, machine.next_offset, machine.producer_ids.next_producer_id)
        self.driver = Driver(core, machine, ledger, self._on_fault)
        identity = Identity(
            cluster_id=settings.cluster_id,
            node_id=settings.node_id,
            directory_id=str(storage.directory.meta.directory_id),
            key=settings.peer_key,
            address=settings.address(),
            metadata_version=machine.supported,
        )
        self.links = PeerLinks(identity, addresses(core), self.driver)
        self.worker = StorageWorker(storage.wal, self.driver.durable, self.driver.fault)
        self.keeper = SnapshotKeeper(
            storage.catalog,
            core,
            storage.machine,
            ledger,
            self.worker,
            self.driver,
            every_entries=settings.snapshot_entries,
            every_allocations=settings.snapshot_allocations,
        )
        self.driver.wire(self.links, self.worker, self.keeper)
        self.driver.on_serving = self._on_serving
        self.driver.on_applied = self._on_applied
        self._sessions = BrokerSessions(settings.timing.ticks(settings.broker_session_timeout_ms))
        self.duties = TransactionDuties(
            machine,
            RecordedMarkers(),
            self._ask,
            ticks=settings.timing.ticks,
            abort_check_ms=settings.transaction_abort_check_ms,
            expiration_ms=settings.transactional_id_expiration_ms,
        )
        self.migration = Migration(
            machine,
            NoZookeeper() if settings.zookeeper is None else _znode(settings.zookeeper),
            asyncio.get_running_loop(),
            self._decide,
            self.driver.serving,
            bridge=settings.bridge,
            new_name=lambda: random_name(settings.cluster_id),
        )
        self.driver.on_deposed = self.migration.deposed
        self._http: dict[int, str] = {}
        self._http_version = -1
        self._ticker: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, settings: MemberSettings) -> ClusterMember:
        """Open the data directory. Raises what `open_storage` raises."""
        return cls(settings, await asyncio.to_thread(open_storage, OsFiles(), settings))

    async def start(self) -> None:
        """Join the quorum. Raises OSError if the peer address cannot be bound."""
        await self.links.start(self.settings.peer_listen.host, self.settings.peer_listen.port)
        if isinstance(self.migration.znode, Connected):
            await self.migration.znode.start()
        self.worker.start()
        self.driver.pump()
        self._tick()

    async def stop(self) -> None:
        """Hand leadership over, finish what is being written, close everything."""
        await self.hand_over()
        if self._ticker is not None:
            self._ticker.cancel()
        await self.keeper.stop()
        if isinstance(self.migration.znode, Connected):
            await self.migration.znode.stop()
        await self.links.stop()
        await self.worker.stop()
        self.ledger.close()
        self._storage.directory.close()

    async def hand_over(self) -> None:
        """Stop serving and, as leader, make the most caught-up voter the next one; bounded by HANDOVER_SECONDS."""
        self.stopping = True
        core = self.driver.core
        if core.role is not Role.LEADER or core.membership.voters == {core.node_id}:
            return
        with contextlib.suppress(RequestError, TimeoutError):
            self.driver.transfer_leadership(None)
            async with asyncio.timeout(HANDOVER_SECONDS):
                await self.driver.led_by_another.wait()

    # What the HTTP interface needs.

    def submit(self, request: requests.Request) -> asyncio.Future[object]:
        """Decide `request` in the next batch, once its IDs are claimed in ZooKeeper if need be; see Decider.submit."""
        answer: asyncio.Future[object] = self.migration.claim_for(request) or self.driver.decider.submit(request)
        # Only once it was taken: a member that does not lead keeps no sessions.
        if isinstance(request, requests.UnregisterBroker):
            self._sessions.forget(request.broker_id)
        elif isinstance(request, requests.SignOfLife):
            self._sessions.heard(request.broker_id, self.driver.ticks)
        return answer

    def leader(self) -> tuple[int, str] | None:
        """The leader's id and base URL, as far as this member knows."""
        core = self.driver.core
        if core.memberships_version != self._http_version:
            self._http_version = core.memberships_version
            self._http = {member.id: member.http for member in core.contacts()}
        # The entry that made it a member may not have arrived here yet.
        if core.leader_id is None or (http := self._http.get(core.leader_id)) is None:
            return None
        return core.leader_id, http

    def describe(self) -> QuorumDescription:
        """The quorum as this member sees it."""
        return describe(self)

    async def blocks(self, after: int, limit: int) -> AllocatedBlocksPage:
        """A page of the allocation history."""
        return await self.ledger.page(after, limit)

    async def owner(self, producer_id: int) -> AllocatedBlock | None:
        """The block that holds `producer_id`."""
        return await self.ledger.owner(producer_id)

    def transactions(self, after: str, limit: int, state: str | None, producer_id: int | None) -> TransactionsPage:
        """A page of the transactional ids."""
        return transactions_page(self.driver.machine.transactions, after, limit, state, producer_id)

    def transaction(self, transactional_id: str) -> TransactionDescription | None:
        """One transactional id."""
        record = self.driver.machine.transactions.get(transactional_id)
        return None if record is None else transaction_description(record)

    def brokers(self) -> BrokersResponse:
        """The registered brokers."""
        return brokers_response(self.driver.machine.brokers)

    def liveness(self) -> list[HealthCheck]:
        """Whether this process works at all."""
        return liveness(self)

    def readiness(self) -> list[HealthCheck]:
        """Whether this member has its place in the quorum."""
        return readiness(self)

    def transfer_leadership(self, target: int | None) -> None:
        """Hand over to `target`. Raises RequestError."""
        self.driver.transfer_leadership(target)

    def add_voter(self, wanted: AddVoterRequest) -> asyncio.Future[Any]:
        """One step towards a new voter; see VoterChanges.add. Also INVALID_REQUEST without a peer key."""
        if self.settings.peer_key is None:
            detail = "voters are added under a peer key only: set peer_key_file on every member (docs/operations.md)"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        try:
            peer = str(HostPort.parse(wanted.peer, "peer"))
        except AddressError as error:
            raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if len(peer) > MAX_PEER_LENGTH:  # by the brackets that were missing
            detail = f"peer: {peer!r} has {len(peer)} characters, {MAX_PEER_LENGTH} are allowed"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        voter = QuorumMember(wanted.id, wanted.directory_id, peer, wanted.http.rstrip("/"), True)
        answer = self.driver.voter_changes.add(voter, self._peer(voter.id))
        self.driver.pump()
        return answer

    def remove_voter(self, member_id: int) -> asyncio.Future[Any]:
        """Remove a voter or a learner; see VoterChanges.remove."""
        answer = self.driver.voter_changes.remove(member_id)
        self.driver.pump()
        return answer

    def start_migration(self) -> asyncio.Future[Any]:
        """Begin the migration from ZooKeeper; see MigrationOrders.start."""
        answer: asyncio.Future[Any] = self.migration.orders.start()
        return answer

    def order_migration(self, phase: MigrationPhase) -> asyncio.Future[Any]:
        """Have FINALIZING or ROLLING_BACK begin; see MigrationOrders.order."""
        answer: asyncio.Future[Any] = self.migration.orders.order(phase)
        return answer

    def describe_migration(self) -> asyncio.Future[Any]:
        """A future of MigrationDescription."""
        answer: asyncio.Future[Any] = self.migration.orders.describe(self.migration.trouble())
        return answer

    def _decide(self, request: requests.Request, answer: Answer) -> None:
        self.driver.decider.submit(request, answer)

    def _peer(self, member_id: int) -> Peer | None:
        if member_id == self.node_id:
            return Peer(self.links.identity.directory_id)
        return self.links.peers.get(member_id)

    def metric_families(self) -> Iterable[Metric]:
        """This member's samples."""
        return member_metrics(self)

    # Time and faults.

    def _tick(self) -> None:
        # One tick per call, however late: a member that was paused must not catch up and time out at once.
        seconds = self.settings.timing.tick_ms / 1000
        self._ticker = asyncio.get_running_loop().call_later(seconds, self._tick)
        self.driver.tick()
        self.worker.prepare_segment()
        if self.driver.serving() and self.driver.ticks % 10 == 0:
            self._fence_silent_brokers()
            self._raise_metadata_version()
            self.duties.tick(self.driver.ticks, int(time.time() * 1000))
            self.migration.tick()

    def _on_serving(self) -> None:
        registered = (registration.broker_id for registration in self._storage.machine.brokers.all())
        self._sessions.restart(registered, self.driver.ticks)
        self.duties.lead(self.driver.core.term, self.driver.ticks)

    def _on_applied(self, records: list[Record]) -> None:
        self.duties.applied(records, self.driver.ticks)

    def _ask(self, request: requests.Request, refused: Callable[[], None]) -> None:
        def answered(answer: asyncio.Future[object]) -> None:
            if answer.cancelled() or answer.exception() is not None:
                refused()

        try:
            self.submit(request).add_done_callback(answered)
        except RequestError:
            refused()

    def _fence_silent_brokers(self) -> None:
        for broker_id in self._sessions.expired(self.driver.ticks):
            registration = self._storage.machine.brokers.get(broker_id)
            if registration is None or registration.fenced:
                continue
            logger.warning("fencing broker %d: no heartbeat", broker_id)
            try:
                answer = self.submit(requests.FenceBroker(broker_id, registration.broker_epoch))
            except RequestError:
                return  # no longer leading: the next leader watches it
            # A refusal means that the broker registered anew meanwhile, which is better news.
            answer.add_done_callback(_forget)

    def _raise_metadata_version(self) -> None:
        machine = self.driver.machine
        if machine.metadata_version == machine.supported:
            return
        versions = {peer: facts.metadata_version for peer, facts in self.links.peers.items()}
        wanted = self.driver.common_version(versions)
        if wanted > machine.metadata_version:
            logger.info("all members read metadata version %d", wanted)
            with contextlib.suppress(RequestError):  # no longer leading
                self.submit(requests.RaiseMetadataVersion(wanted)).add_done_callback(_forget)

    def request_stop(self) -> None:
        """Ask for a graceful stop."""
        if not self.ended.done():
            self.ended.set_result(None)

    def _on_fault(self, error: BaseException) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


def _forget(answer: asyncio.Future[object]) -> None:
    """Nobody waits for this answer, not even for a refusal."""
    if not answer.cancelled():
        answer.exception()


def _znode(settings: ZooKeeperSettings) -> BlockZnode:
    """The real one; imported here because most members need none of it."""
    from pidkeeper.controller.migration.kazoo_znode import KazooZnode

    return KazooZnode(
        settings.connect,
        session_timeout_ms=settings.session_timeout_ms,
        request_timeout_ms=settings.request_timeout_ms,
        digest=settings.digest,
    )


def make_core(settings: MemberSettings, storage: OpenedStorage) -> RaftCore:
    """The consensus core, started from what is durable."""
    timing = settings.timing
    config = RaftConfig(
        node_id=settings.node_id,
        voters=tuple(voter.id for voter in settings.voters),
        learner=settings.learner is not None,
        heartbeat_ticks=timing.ticks(timing.heartbeat_ms),
        election_ticks=timing.ticks(timing.election_timeout_ms),
        link_lost_ticks=timing.ticks(timing.link_lost_ms),
    )
    return RaftCore(
        config,
        random.SystemRandom(),
        hard_state=storage.log.hard_state,
        snapshot=storage.snapshot,
        entries=storage.log.entries,
        leader_change_data=encode_batch([LeaderChangeRecord(settings.node_id)]),
        configured=settings.configured(),
        voters=storage.machine.voters,
    )
