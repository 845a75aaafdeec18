"""One life of a simulated member: the product's `ClusterMember`, on ports in virtual time."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from msgspec.structs import replace

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.migration.zookeeper import BlockZnode, NoZookeeper
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.markers import Markers
from pidkeeper.controller.node.opening import OpenedStorage
from pidkeeper.controller.node.ports import Ports
from pidkeeper.controller.raft.core import RaftConfig, Role
from pidkeeper.controller.raft.messages import Entry, HardState, Message
from pidkeeper.controller.state import requests
from pidkeeper.controller.transport.identity import Identity, Peer
from pidkeeper.controller.transport.links import LinkEvents
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import QuorumMember
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from tests.simulation.chunk_reader import SimChunkReader
from tests.simulation.full_disks import Room
from tests.simulation.history import SERVED, Operation
from tests.simulation.loop import SimLoop, enter
from tests.simulation.observing import observe
from tests.simulation.transaction_history import Written
from tests.simulation.world import Violation, World
from tests.simulation.writer import Job, SimWriter
from tests.simulation.zookeeper import CLAIMS, ORDERS, STEPS, Port, Session
from tests.support.memory_files import PowerCut
from tests.support.sharing import sharing

if TYPE_CHECKING:
    from tests.simulation.member import Member

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class MemberLoop(SimLoop):
    """The loop of a member. Work for other threads takes as long as the disk does."""

    def __init__(self, process: Process, rate: float) -> None:
        super().__init__(process.world, rate=rate, turned=process.watch)
        self.process = process
        self.at_once = False
        """Whether work for other threads is done without time passing: for a look at the end of a run."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        done = self.create_future()
        if self.at_once:
            done.set_result(self.process.work(functools.partial(func, *args)))
            return done
        self.process.start_job(functools.partial(func, *args), done)
        return done


class SimLinks:
    """The links of one process: the simulated network."""

    failures: Mapping[tuple[int, str], int] = {}
    handshakes_failed: Mapping[str, int] = {}

    def __init__(self, process: Process, identity: Identity, _: Mapping[int, tuple[str, int]]) -> None:
        self.identity = identity
        self._process = process
        self._network = process.member.network

    @property
    def peers(self) -> Mapping[int, Peer]:
        """What the connected peers said when they dialled."""
        return self._network.peers_of(self._process)

    async def start(self, host: str, port: int, events: LinkEvents) -> int:
        """Listen and dial."""
        self._process.events = events
        self._network.started(self._process)
        return port

    async def stop(self) -> None:
        """Close everything."""
        self._network.stopped(self._process, silent=False)

    def send(self, messages: list[Message]) -> None:
        """Hand messages to the network."""
        self._process.member.monitor.sends(self._process, messages)
        self._network.send(messages)

    def introduce_as(self, founding_id: uuid.UUID | None, succession: Succession | None) -> None:
        """A member of this founding from now on."""
        self.identity = replace(self.identity, founding_id=founding_id, succession=succession, blank=None)
        self._network.introduced_anew(self._process)

    def tell_voters(self, voters: tuple[QuorumMember, ...]) -> None:
        """Told by the newest build alone (`Process.introduction`)."""
        self.identity = replace(self.identity, voters=voters)

    def redial(self) -> None:
        """Dial anew."""
        self._network.redial(self._process)

    def set_members(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """The network reaches everybody."""


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

    events: LinkEvents
    """Who hears what the links say, from the start on."""

    def __init__(self, member: Member, storage: OpenedStorage, config: RaftConfig) -> None:
        self.member = member
        self.world: World = member.world
        self.node_id: int = member.node_id
        self.storage: OpenedStorage = storage
        self.alive = True
        self.jobs: list[Job] = []
        self.points: dict[str, str] = {}
        self.room = Room(self)
        self.zookeeper: Session | None = None
        self.durable_last = storage.wal.next_index - 1
        self.seen_term = self.seen_commit = self.seen_applied = self.seen_next_id = 0
        self.seen_role = Role.FOLLOWER
        self.seen_memberships = -1
        self.build, self.taken_back = storage.machine.supported, member.taken_back
        self.loop = MemberLoop(self, member.clock_rate)
        enter(self.loop)
        self.node = node = ClusterMember(member.settings, storage, self._ports(), config)
        self.interface = MemberInterface(node)
        self.app = build_app(
            self.interface,
            limits=ApiLimits(),
            shared=sharing(operators=member.cluster.floors.operator_token),
            clock_ns=self._clock_ns,
        )
        self.core, self.driver, self.machine = node.core, node.driver, node.machine
        assert isinstance(node.writer, SimWriter), f"{node.writer} is not in virtual time"
        self.writer: SimWriter = node.writer
        migration = node.leadership.migration
        migration.steps._znode, migration.orders._znode = self._port(STEPS), self._port(ORDERS)
        observe(self)
        node.ended.add_done_callback(self._on_fault)

    def _ports(self) -> Ports:
        member = self.member
        names = self.world.stream(f"name-{self.node_id}-{member.starts}")
        return Ports(
            loop=self.loop,
            rng=member.core_random,
            wall_clock=member.wall_clock,
            links=functools.partial(SimLinks, self),
            writer=functools.partial(SimWriter, self),
            chunk_reader=functools.partial(SimChunkReader, self),
            znode=self._port(CLAIMS),
            markers=SimMarkers(self),
            new_name=lambda: f"pidkeeper/simulated-cluster/{names.getrandbits(128):032x}",
            new_founding_id=lambda: uuid.UUID(int=names.getrandbits(128)),
            clock_ns=self._clock_ns,
        )

    def _clock_ns(self) -> int:
        return int(self.loop.time() * 1_000_000_000)

    def start(self) -> None:
        """Begin to tick, at some moment within the first tick."""
        self.member.disk.off_limits = True
        self.later(self.member.core_random.randrange(self.member.tick_us), self._start)

    def _start(self) -> None:
        self.loop.create_task(self.node.start(), name="start")
        self.loop.create_task(self.app.keep_up(), name="upkeep")

    # Events. Each happens in the process's loop, at the earliest when a pause is over.

    @property
    def paused_until(self) -> int:
        """The moment at which the process goes on."""
        return self.loop.paused_until

    def runs(self, call: Callable[..., None], *args: Any) -> bool:
        """Whether this process runs now; if it is paused, `call` comes again at its end."""
        if not self.alive:
            return False
        pause = self.loop.paused_until - self.world.now
        if pause > 0:
            self.world.at(pause, call, *args)
            return False
        enter(self.loop)
        return True

    def receive(self, message: Message) -> None:
        """A message from a peer."""
        self.loop.run_event(self.events.received, [message])

    def link_up(self, peer: int) -> None:
        """Messages reach `peer` from now on."""
        self.loop.run_event(self.events.link_up, peer)

    def introduced(self, peer: int) -> None:
        """A peer dialled us, and said who it is."""
        self.loop.run_event(self.events.introduced, peer)

    def link_lost(self, peer: int) -> None:
        """The connection from `peer` broke."""
        self.loop.run_event(self.events.link_lost, peer)

    def soon(self, callback: Callable[..., None], *args: Any) -> None:
        """Call back as an event of its own, now."""
        self.world.at(0, self.loop.run_event, callback, *args)

    def later(self, delay: int, callback: Callable[..., None], *args: Any) -> None:
        """Call back as an event of its own, in a while."""
        self.world.at(delay, self.loop.run_event, callback, *args)

    def after_disk(self, callback: Callable[..., None]) -> None:
        """Call back when the disk has done its work."""
        self.later(self.member.disk_delay(), callback)

    def start_job(self, job: Job, done: asyncio.Future[Any]) -> None:
        """Run a job of another thread."""
        self.jobs.append(job)
        self.after_disk(functools.partial(self._end_job, job, done))

    def _end_job(self, job: Job, done: asyncio.Future[Any]) -> None:
        self.jobs.remove(job)
        try:
            result = self.work(job)
        except PowerCut:
            self.member.power_failed(self)
        except Exception as error:  # noqa: BLE001 - handed on to whoever awaits it
            done.set_exception(error)
        else:
            done.set_result(result)

    def work(self, job: Callable[[], _T]) -> _T:
        """Run a job of another thread now: on none but those may the disk be touched while this process runs."""
        disk = self.member.disk
        disk.off_limits = False
        try:
            return job()
        finally:
            disk.off_limits = self.alive

    def introduction(self) -> Peer:
        """What it says of itself to its peers."""
        said = self.node.links.identity
        voters = said.voters if self.build == LATEST else ()
        return Peer(said.directory_id, said.metadata_version, said.founding_id, said.blank, said.succession, voters)

    def started(self) -> bool:
        """Whether it has joined the quorum."""
        return self.node._ticker is not None

    def watch(self) -> None:
        """Look at the core after an event."""
        core, member = self.core, self.member
        # Past the properties of the core, for this is called at every event.
        term, log = core._hard.term, core.log
        if member.founding is None and self.node.gate.founding is not None:
            member.founded(self, self.node.gate.founding)
        if term != self.seen_term or core.role is not self.seen_role or log.commit != self.seen_commit:
            member.monitor.changed(self)
        if log.memberships.version != self.seen_memberships:
            member.monitor.reconfigured(self)

    def serve(
        self, request: HttpRequest, operations: Sequence[Operation], served: Callable[[HttpResponse], None]
    ) -> None:
        """Answer a request of HTTP, in which `operations` are asked for; never if the process ends before."""

        def done(task: asyncio.Task[HttpResponse]) -> None:
            response = task.result()
            if response.status == ErrorCode.UNKNOWN_SERVER_ERROR.http_status:
                raise Violation("server-error", f"member {self.node_id} answers {request.url} with {response.body!r}")
            served(response)

        context = copy_context()
        context.run(SERVED.set, operations)
        self.loop.create_task(self.app.dispatch(request), context=context).add_done_callback(done)

    def submit(self, request: requests.Request) -> asyncio.Future[Any]:
        """As the HTTP interface has a request decided. Raises RequestError."""
        answer: asyncio.Future[Any] = self.interface.submit(request)
        return answer

    # ZooKeeper.

    def _port(self, use: str) -> BlockZnode:
        """Each part of the member has one of its own, so that its calls can be told apart."""
        cluster, name = self.member.cluster, f"member-{self.node_id}-{self.member.starts}"
        if not cluster.migrating.present:
            return NoZookeeper()
        if self.zookeeper is None:
            self.zookeeper = Session(cluster.zookeeper, self.node_id, name, self.later, lambda: self.alive)
        return Port(self.zookeeper, self, use)

    def seen_of_znode(self) -> set[bytes]:
        """What the znode has held, as far as this process was told."""
        return set() if self.zookeeper is None else self.zookeeper.seen

    # The end.

    def wrote(self, entries: list[Entry], hard_state: HardState | None) -> None:
        """A write of the log is durable."""
        if entries:
            self.durable_last = entries[-1].index
        self.member.monitor.wrote(self, entries, hard_state)

    def stop(self, stopped: Callable[[Process], None]) -> None:
        """End in order, as on SIGTERM; `stopped` is called when everything is closed."""

        def done(task: asyncio.Task[None]) -> None:
            if task.exception() is not None:
                raise AssertionError(f"member {self.node_id} cannot stop") from task.exception()
            stopped(self)

        enter(self.loop)
        self.loop.create_task(self.node.stop(), name="stop").add_done_callback(done)

    def die(self, crash_calls: list[int]) -> None:
        """Stop now. Each job under way still makes the next number of `crash_calls` of its calls to the disk."""
        self.end()
        jobs = list(self.jobs)
        if (current := self.writer.current) is not None:
            jobs.append(functools.partial(self.writer.execute, current))
        self.member.monitor.interrupted(self, self.writer.merging())
        for job, calls in zip(jobs, crash_calls, strict=False):
            self.member.disk.arm(cut_after=calls)
            try:
                job()
            except (PowerCut, Exception):  # noqa: BLE001 - it ends here either way
                continue

    def end(self) -> None:
        """Nothing of it happens any more."""
        self.alive = self.member.disk.off_limits = False
        self.loop.close()

    def quiet(self) -> bool:
        """Whether no work on the disk is under way."""
        return self.writer.idle() and not self.jobs and not self.taking_snapshot()

    def taking_snapshot(self) -> bool:
        """Whether a snapshot is being taken."""
        return self.node.keeper._task is not None

    def _on_fault(self, ended: asyncio.Future[BaseException | None]) -> None:
        if (error := ended.result()) is not None:
            self.member.faulted(self, error)


def listen(answer: asyncio.Future[Any], told: Callable[[Any, RequestError | None], None]) -> None:
    """Call `told(result, refusal)`, one of them None, when `answer` is given; never if the process ends before."""

    def done(_: object) -> None:
        refusal = answer.exception()
        if refusal is None:
            told(answer.result(), None)
        else:
            assert isinstance(refusal, RequestError), f"answered with {refusal!r}"
            told(None, refusal)

    answer.add_done_callback(done)
