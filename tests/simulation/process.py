"""One life of a simulated member: the real storage, core, state, driver, keeper and ledger, in virtual time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pidkeeper.controller.answers import Answer as DeciderAnswer
from pidkeeper.controller.migration.member_side import Migration
from pidkeeper.controller.migration.zookeeper import BlockZnode, NoZookeeper
from pidkeeper.controller.node.driver import Driver
from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.markers import Markers
from pidkeeper.controller.node.opening import OpenedStorage
from pidkeeper.controller.node.sessions import BrokerSessions
from pidkeeper.controller.node.snapshot_keeper import SnapshotKeeper
from pidkeeper.controller.node.transaction_duties import TransactionDuties
from pidkeeper.controller.raft.core import RaftConfig, RaftCore, Role
from pidkeeper.controller.raft.messages import Entry, HardState, Message, SnapshotMeta
from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.records import LeaderChangeRecord, Record, decode_batch, encode_batch
from pidkeeper.snapshots.image import StateImage
from tests.simulation.loop import Answer, Job, ProcessLoop, Task, enter
from tests.simulation.transaction_history import Written
from tests.simulation.world import World
from tests.simulation.writer import SimWriter
from tests.simulation.zookeeper import CLAIMS, ORDERS, STEPS, Port, Session
from tests.support.memory_files import PowerCut

if TYPE_CHECKING:
    from tests.simulation.member import Member

FENCE_EVERY_TICKS = 10
"""As in `ClusterMember`."""


class SimDriver(Driver):
    """The real driver; reports what it applies and installs, and answers too early if that bug is planted."""

    process: Process

    def _apply(self, entry: Entry) -> None:
        cluster = self.process.member.cluster
        if cluster.migrating.present:
            # Before its answers leave: a step goes on in the same event.
            cluster.kill_points.applied(self.process, decode_batch(entry.data))
        super()._apply(entry)
        self.process.member.monitor.applied(self.process, entry)

    def snapshot_installed(self, meta: SnapshotMeta, image: StateImage) -> None:
        """Check the image, then go on."""
        self.process.durable_last = meta.index
        self.process.member.monitor.installed(self.process, meta, image)
        super().snapshot_installed(meta, image)

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append an entry to the log."""
        cluster = self.process.member.cluster
        if cluster.migrating.present:
            records = decode_batch(data)
            cluster.migration.proposed(self.process, records)
            position = super().propose(data)
            cluster.kill_points.proposed(self.process, records)
        else:
            position = super().propose(data)
        if self.process.member.cluster.bug == "answer-at-propose":
            self.process.soon(self._answer_early)
        return position

    def _answer_early(self) -> None:
        batch = self.decider._in_flight
        if batch is not None:
            self.decider.applied(Entry(batch.term, batch.index, b""))


class SimMarkers:
    """Writes the markers of transactions to partitions that are nowhere: at once or later, and keeps a record of it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._rng = process.world.stream(f"markers-{process.node_id}-{process.member.starts}")

    def write(self, markers: Markers, written: Callable[[], None]) -> None:
        """Write them, in some seeds after a while."""
        asked, longest = self._process.world.now, self._process.member.cluster.transactional.marker_delay
        if not longest:
            self._written(asked, markers, written)
            return
        self._process.later(self._rng.randrange(1, longest), self._written, asked, markers, written)

    def _written(self, asked: int, markers: Markers, written: Callable[[], None]) -> None:
        self._process.member.cluster.written.append(Written(asked, self._process.world.now, markers))
        written()


class Process:
    """A running member, from the opened storage on. `alive` turns false once; then nothing of it happens any more."""

    def __init__(self, member: Member, storage: OpenedStorage, config: RaftConfig) -> None:
        self.member = member
        self.world: World = member.world
        self.node_id: int = member.node_id
        self.storage = storage
        self.alive = True
        self.paused_until = 0
        self.stopping = False
        self.jobs: list[Job] = []
        self.tasks: list[Task] = []
        self.answers: list[Answer] = []
        self.loop = ProcessLoop(self)
        self.points: dict[str, str] = {}
        self.zookeeper: Session | None = None
        self.durable_last = storage.wal.next_index - 1
        self.seen_term = self.seen_commit = self.seen_applied = self.seen_next_id = 0
        self.seen_role = Role.FOLLOWER
        self.seen_memberships = -1
        self.sessions = BrokerSessions(member.cluster.swarm.session_ticks)
        enter(self.loop)
        core = RaftCore(
            config,
            member.core_random,
            hard_state=storage.log.hard_state,
            snapshot=storage.snapshot,
            entries=storage.log.entries,
            leader_change_data=encode_batch([LeaderChangeRecord(member.node_id)]),
            configured=member.settings.configured(),
            voters=storage.machine.voters,
        )
        machine = storage.machine
        self.build, self.taken_back = machine.supported, member.taken_back
        self.core = core
        self.ledger = Ledger(storage.archive, machine.next_offset, machine.producer_ids.next_producer_id)
        self.driver = SimDriver(core, machine, self.ledger, self._on_fault, loop=self.loop)
        self.driver.process = self
        self.driver.decider._wall_clock = member.wall_clock
        self.driver.on_serving = self._on_serving
        early = member.cluster.bug == "ack-before-write"
        self.worker = SimWriter(self, storage.wal, self.driver.durable, self.driver.fault, early)
        self.keeper = SnapshotKeeper(
            storage.catalog,
            core,
            machine,
            self.ledger,
            self.worker,
            self.driver,
            every_entries=member.settings.snapshot_entries,
            every_allocations=member.settings.snapshot_allocations,
        )
        self.driver.wire(self, self.worker, self.keeper)
        self.driver.on_applied = self._on_applied
        self.duties = TransactionDuties(
            machine,
            SimMarkers(self),
            self._ask,
            ticks=member.settings.timing.ticks,
            abort_check_ms=member.settings.transaction_abort_check_ms,
            expiration_ms=member.settings.transactional_id_expiration_ms,
        )
        self.migration = self._migration()
        self.driver.on_deposed = self._on_deposed

    def start(self) -> None:
        """Begin to tick."""
        self.driver.pump()
        self.watch()
        self.world.at(self.member.core_random.randrange(self.member.tick_us), self.tick)

    # Events. Each looks first whether it happens at all, and when.

    def runs(self, call: Callable[..., None], *args: Any) -> bool:
        """Whether this process runs now; if it is paused, `call` comes again at its end."""
        if not self.alive:
            return False
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until - self.world.now, call, *args)
            return False
        enter(self.loop)
        return True

    def tick(self) -> None:
        """One tick of the member's own clock."""
        if not self.runs(self.tick):
            return
        self.world.at(self.member.tick_us, self.tick)
        driver = self.driver
        driver.tick()
        self.worker.prepare_segment()
        if driver.ticks % FENCE_EVERY_TICKS == 0 and driver.serving():
            self._fence_silent_brokers()
            self._raise_metadata_version()
            self.duties.tick(driver.ticks, int(self.member.wall_clock() * 1000))
            self.migration.tick()
        self.watch()

    def receive(self, message: Message) -> None:
        """A message from a peer."""
        if self.runs(self.receive, message):
            self.driver.received([message])
            self.watch()

    def link_up(self, peer: int) -> None:
        """Messages reach `peer` from now on."""
        if self.runs(self.link_up, peer):
            self.driver.link_up(peer)
            self.watch()

    def link_lost(self, peer: int) -> None:
        """The connection from `peer` broke."""
        if self.runs(self.link_lost, peer):
            self.driver.link_lost(peer)
            self.watch()

    def soon(self, callback: Callable[..., None], *args: Any) -> None:
        """Call back as an event of its own, now."""
        self.world.at(0, self._call, callback, *args)

    def later(self, delay: int, callback: Callable[..., None], *args: Any) -> None:
        """Call back as an event of its own, in a while."""
        self.world.at(delay, self._call, callback, *args)

    def after_disk(self, callback: Callable[..., None]) -> None:
        """Call back when the disk has done its work."""
        self.world.at(self.member.disk_delay(), self._call, callback)

    def start_job(self, job: Job, task: Task) -> None:
        """Run a job of another thread."""
        self.jobs.append(job)
        self.world.at(self.member.disk_delay(), self._end_job, job, task)

    def _call(self, callback: Callable[..., None], *args: Any) -> None:
        if self.runs(self._call, callback, *args):
            callback(*args)
            self.watch()

    def _end_job(self, job: Job, task: Task) -> None:
        if not self.runs(self._end_job, job, task):
            return
        self.jobs.remove(job)
        try:
            result = job.function(*job.args)
        except PowerCut:
            self.member.power_failed(self)
            return
        except Exception as error:  # noqa: BLE001 - handed on to whoever awaits it
            task.step(error=error)
        else:
            task.step(result)
        self.watch()

    def watch(self) -> None:
        """Look at the core after an event."""
        core = self.core
        if core.term != self.seen_term or core.role is not self.seen_role or core.commit != self.seen_commit:
            self.member.monitor.changed(self)
        if core.memberships_version != self.seen_memberships:
            self.member.monitor.reconfigured(self)

    # The driver's link port.

    def send(self, messages: list[Message]) -> None:
        """Hand messages to the network."""
        self.member.monitor.sends(self, messages)
        self.member.network.send(messages)

    def set_members(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """The network reaches everybody."""

    # Requests.

    def submit(self, request: requests.Request) -> Answer:
        """As `ClusterMember.submit`. Raises RequestError."""
        if self.stopping:
            raise RequestError(ErrorCode.NOT_CONTROLLER)
        answer: Answer = self.migration.claim_for(request) or self.driver.decider.submit(request)
        if isinstance(request, requests.UnregisterBroker):
            self.sessions.forget(request.broker_id)
        elif isinstance(request, requests.SignOfLife):
            self.sessions.heard(request.broker_id, self.driver.ticks)
        return answer

    def _on_serving(self) -> None:
        brokers = (registration.broker_id for registration in self.storage.machine.brokers.all())
        self.sessions.restart(brokers, self.driver.ticks)
        self.duties.lead(self.core.term, self.driver.ticks)

    def _on_applied(self, records: list[Record]) -> None:
        self.duties.applied(records, self.driver.ticks)

    def _ask(self, request: requests.Request, refused: Callable[[], None]) -> None:
        """As `ClusterMember._ask`."""
        try:
            self.submit(request).callback = lambda _, error: None if error is None else refused()
        except RequestError:
            refused()

    def _fence_silent_brokers(self) -> None:
        for broker_id in self.sessions.expired(self.driver.ticks):
            registration = self.storage.machine.brokers.get(broker_id)
            if registration is None or registration.fenced:
                continue
            try:
                self.submit(requests.FenceBroker(broker_id, registration.broker_epoch))
            except RequestError:
                return

    def _raise_metadata_version(self) -> None:
        wanted = self.driver.common_version(self.member.network.builds_seen_by(self))
        if wanted > self.driver.machine.metadata_version:
            with contextlib.suppress(RequestError):
                self.submit(requests.RaiseMetadataVersion(wanted))

    # ZooKeeper.

    def _migration(self) -> Migration:
        """As `ClusterMember` makes it; each part has a port of its own, so that its calls can be told apart."""
        cluster, znode = self.member.cluster, self._port(CLAIMS)
        names = self.world.stream(f"name-{self.node_id}-{self.member.starts}")
        migration = Migration(
            self.storage.machine,
            znode,
            self.loop,
            self._decide,
            self.driver.serving,
            bridge=cluster.migrating.present and cluster.migrating.bridge,
            new_name=lambda: f"pidkeeper/simulated-cluster/{names.getrandbits(128):032x}",
        )
        migration.steps._znode = self._port(STEPS)
        migration.orders._znode = self._port(ORDERS)
        return migration

    def _port(self, use: str) -> BlockZnode:
        cluster, name = self.member.cluster, f"member-{self.node_id}-{self.member.starts}"
        if not cluster.migrating.present:
            return NoZookeeper()
        if self.zookeeper is None:
            self.zookeeper = Session(cluster.zookeeper, self.node_id, name, self.later, lambda: self.alive)
        return Port(self.zookeeper, self, use)

    def seen_of_znode(self) -> set[bytes]:
        """What the znode has held, as far as this process was told."""
        return set() if self.zookeeper is None else self.zookeeper.seen

    def _decide(self, request: requests.Request, answer: DeciderAnswer) -> None:
        self.driver.decider.submit(request, answer)

    def _on_deposed(self) -> None:
        self.member.cluster.kill_points.gone(self)
        self.migration.deposed()

    # The end.

    def wrote(self, entries: list[Entry], hard_state: HardState | None) -> None:
        """A write of the log is durable."""
        if entries:
            self.durable_last = entries[-1].index
        self.member.monitor.wrote(self, entries, hard_state)

    def die(self, crash_calls: list[int]) -> None:
        """Stop now. Each job under way still makes the next number of `crash_calls` of its calls to the disk."""
        self.alive = False
        jobs: list[Callable[[], Any]] = [functools.partial(job.function, *job.args) for job in self.jobs]
        if (current := self.worker.current) is not None:
            jobs.append(functools.partial(self.worker.execute, current))
        self.member.monitor.interrupted(self, self.worker.merging())
        for job, calls in zip(jobs, crash_calls, strict=False):
            self.member.disk.arm(cut_after=calls)
            try:
                job()
            except (PowerCut, Exception):  # noqa: BLE001 - it ends here either way
                continue
        self.end_tasks()

    def close(self) -> None:
        """End in order: everything is written."""
        self.alive = False
        self.storage.wal.close()
        self.storage.directory.close()
        self.end_tasks()

    def end_tasks(self) -> None:
        """Nothing goes on with them, nor with the requests under way."""
        for task in self.tasks:
            task.close()
        # The garbage collector cannot see them: what the decider keeps them in is not tracked.
        for answer in self.answers:
            answer.abandon()
        self.answers.clear()

    def quiet(self) -> bool:
        """Whether no work on the disk is under way."""
        return self.worker.idle() and not self.tasks

    def _on_fault(self, error: BaseException) -> None:
        self.member.faulted(self, error)
