"""A member of the quorum in memory: the rules of allocation without log, peers or disk. For tests of the HTTP edge."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec.structs import asdict
from prometheus_client.core import GaugeMetricFamily, Metric

from pidkeeper.controller.answers import Answer, release
from pidkeeper.controller.migration.member_side import Migration
from pidkeeper.controller.migration.zookeeper import Cause, Failure, LiveBrokers, Znode
from pidkeeper.controller.node.group_views import fetch_offsets, find_group, group_offsets, groups_page
from pidkeeper.controller.node.log_views import find_offsets, find_topics, read_logs, topic_partitions, topics_page
from pidkeeper.controller.node.log_watch import LogWatch
from pidkeeper.controller.node.ownerless import Gaps, why_ownerless
from pidkeeper.controller.node.segment_views import check_objects, due_logs, garbage, kept_objects
from pidkeeper.controller.node.transaction_views import brokers_response, transaction_description, transactions_page
from pidkeeper.controller.state.brokers import BrokersState
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.producer_ids import ProducerIdsState, check_floor
from pidkeeper.controller.state.requests import (
    AbortTransaction,
    AddPartitionsToTxn,
    AdvanceMigration,
    AllocateProducerIds,
    BrokerHeartbeat,
    CommitGroup,
    CommitObject,
    CommitOffsets,
    CommitSegment,
    CompleteTransaction,
    ConfirmState,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteTopic,
    DismissEvidence,
    EndTxn,
    ExpireOffsets,
    ExpireProducers,
    FillOwnIds,
    ForgetTransactionalId,
    InitProducerId,
    ObjectsDeleted,
    OrderMigration,
    RaiseFloor,
    RaiseMetadataVersion,
    RecordFounding,
    RegisterBroker,
    ReleaseCollection,
    Request,
    RetainLogs,
    StartMigration,
    UnregisterBroker,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.events import Event
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.group_messages import (
    FetchOffsetsRequest,
    GroupDescription,
    GroupsPage,
    OffsetsPage,
)
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_PRODUCER_ID, ProducerIdBlock
from pidkeeper.protocol.log_messages import (
    FindOffsetsRequest,
    FindOffsetsResponse,
    ReadLogsRequest,
    ReadLogsResponse,
    TopicPartitionsPage,
    TopicsPage,
    WatchLogsRequest,
)
from pidkeeper.protocol.messages import (
    AddVoterRequest,
    AddVoterResponse,
    AllocatedBlock,
    AllocatedBlocksPage,
    AllocateProducerIdsResponse,
    BrokerHeartbeatResponse,
    BrokersResponse,
    DismissEvidenceResponse,
    FoundQuorumRequest,
    FoundQuorumResponse,
    ProducerIdOwner,
    QuorumDescription,
    RaiseFloorResponse,
    RegisterBrokerResponse,
    RemoveVoterResponse,
    TransactionalOwner,
    TransactionDescription,
    TransactionsPage,
    UnregisterBrokerResponse,
    VoterStatus,
)
from pidkeeper.protocol.metadata_version import ADDED_PARTITIONS, LATEST
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import FeatureLevelRecord, decode_batch, encode_batch
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    FindGarbageResponse,
    FindRollsResponse,
    KeptObjectsPage,
)
from pidkeeper.service.health_check import HealthCheck
from pidkeeper.snapshots.image import BrokerRegistration, LastBlock

CLUSTER_ID = "memory-cluster"
QUORUM_NAME = f"pidkeeper/{CLUSTER_ID}/0"
FOUNDING_ID = uuid.UUID(int=1)
STORE_ID = uuid.UUID(int=2)
NOW_MS = 1_700_000_000_000
URLS = {1: "http://127.0.0.1:1", 2: "http://127.0.0.1:2", 3: "http://127.0.0.1:3"}


class MemoryZnode:
    """The znode of the latest block: `now` is what it holds. `failure` is the outcome of every call while it is set.

    `live`: what is registered beside it, or why nobody can tell. Every call takes `seconds`.
    """

    def __init__(self, data: bytes | None = None) -> None:
        self.now = Znode(data, 0)
        self.failure: Failure | None = None
        self.live: LiveBrokers | Failure = LiveBrokers(())
        self.seconds = 0.0

    def put(self, data: bytes | None) -> None:
        """Write it as a broker does."""
        self.now = Znode(data, self.now.version + 1)

    def read(self, done: Callable[[Znode | Failure], None]) -> None:
        """What it holds."""
        self._answer(done, self.failure or self.now)

    def write(self, data: bytes | None, version: int, done: Callable[[Znode | Failure], None]) -> None:
        """Replace `version`."""
        if self.failure is None and version == self.now.version:
            self.put(data)
            self._answer(done, self.now)
        else:
            self._answer(done, self.failure or Failure(Cause.CONFLICT, "written by somebody else"))

    def brokers(self, done: Callable[[LiveBrokers | Failure], None]) -> None:
        """Who is registered."""
        self._answer(done, self.failure or self.live)

    def disconnected(self) -> str | None:
        """What is wrong while calls fail."""
        return None if self.failure is None else self.failure.detail

    def _answer(self, done: Callable[[Any], None], outcome: Znode | LiveBrokers | Failure) -> None:
        asyncio.get_running_loop().call_later(self.seconds, done, outcome)


class RunningLoop:
    """Whichever event loop runs when it is needed: a member may be made before there is one."""

    def create_future(self) -> Any:
        """See Loop."""
        return asyncio.get_running_loop().create_future()

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """See Loop."""
        return asyncio.get_running_loop().call_soon(callback)


class MemoryMember:
    """Node 1 of three. `leader_id` says who leads; `hold` keeps answers back in `held`; `fault` is raised by submit.

    `migration` is the real one, on `znode`; the leader takes a step at each look at it, unless `steps_wait`.
    """

    def __init__(self) -> None:
        self.node_id = 1
        self.cluster_id = CLUSTER_ID
        self.leader_id: int | None = 1
        self.next_id = 0
        self.history: list[AllocatedBlock] = []
        self.epochs: dict[int, int] = {}
        self.kafka: dict[int, str | None] = {}
        # For transactions, which nobody completes, and for the migration.
        self.machine = StateMachine(CLUSTER_ID)
        # The last version at which a caller names the ID that a transactional id is to get.
        self.machine.replay([FeatureLevelRecord(ADDED_PARTITIONS)])
        # For partition logs, at the newest version.
        self.log_machine = StateMachine(CLUSTER_ID)
        self.log_machine.replay([FeatureLevelRecord(LATEST), FoundingRecord(FOUNDING_ID, DEFAULT_BLOCK_SIZE, False, 0)])
        self.log_machine.logs.pin(STORE_ID, "the test")
        self.log_watch = LogWatch()
        self.znode = MemoryZnode()
        self.steps_wait = False
        self.migration = Migration(
            self.machine,
            self.znode,
            RunningLoop(),
            self._submit,
            bridge=False,
            new_name=lambda: QUORUM_NAME,
        )
        self.submitted: list[Request] = []
        self.transfers: list[int | None] = []
        self.joining: set[int] = set()
        self.founding_id: uuid.UUID | None = None
        self.hold = False
        self.held: list[asyncio.Future[Any]] = []
        self.fault: Exception | None = None
        self.watched = False
        self.events: list[Event] = []
        self.checks = {"loop": True, "disk": True}
        self.place = {"leader": True, "caught_up": True}

    def submit(self, request: Request) -> asyncio.Future[Any]:
        """Decide and apply at once, or keep the answer back."""
        if self.fault is not None:
            raise self.fault
        self.submitted.append(request)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.hold:
            self.held.append(future)
            return future
        try:
            future.set_result(self._apply(request))
        except RequestError as error:
            future.set_exception(error)
        return future

    def leader(self) -> tuple[int, str] | None:
        """Whoever `leader_id` names."""
        return None if self.leader_id is None else (self.leader_id, URLS[self.leader_id])

    def misses_leader(self) -> bool:
        """Never: here nobody is elected."""
        return False

    async def leader_known(self, seconds: float) -> None:
        """At once, as nobody is missed."""

    def describe(self) -> QuorumDescription:
        """A healthy quorum of three."""
        return QuorumDescription(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            role="leader" if self.leader_id == self.node_id else "follower",
            term=1,
            leader_id=self.leader_id,
            leader_http=None if self.leader_id is None else URLS[self.leader_id],
            commit_index=len(self.submitted),
            applied_index=len(self.submitted),
            log_end_index=len(self.submitted),
            snapshot_index=0,
            next_producer_id=self.next_id,
            block_size=DEFAULT_BLOCK_SIZE,
            voters=[VoterStatus(id=node_id, http=url) for node_id, url in URLS.items()],
            failure_tolerance=1,
            healthy=True,
            reasons=[],
        )

    async def blocks(self, after: int, limit: int) -> AllocatedBlocksPage:
        """A page of the history."""
        found = [block for block in self.history if block.first > after]
        page = found[:limit]
        return AllocatedBlocksPage(page, page[-1].first if len(found) > limit else None, 0)

    async def owner(self, producer_id: int) -> ProducerIdOwner | None:
        """The block that holds the ID, and its transactional id as far as the state tells."""
        block = next((block for block in self.history if block.first <= producer_id <= block.last), None)
        name = self.machine.transactions.user_of(producer_id)
        known = None if name is None else TransactionalOwner(name)
        return None if block is None else ProducerIdOwner(**asdict(block), transactional=known)

    def topics(self, after: str, limit: int) -> TopicsPage:
        """A page of the topics."""
        return topics_page(self.log_machine.logs, after, limit)

    def find_topics(self, names: list[str]) -> TopicsPage:
        """Those of the named topics that there are."""
        return find_topics(self.log_machine.logs, names)

    def topic_partitions(self, name: str, after: int, limit: int) -> TopicPartitionsPage | None:
        """A topic with a page of its partitions."""
        return topic_partitions(self.log_machine.logs, self.log_machine.transactions, name, after, limit)

    def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse:
        """Where the batches of some logs are."""
        return read_logs(self.log_machine.logs, request)

    def find_rolls(self, limit: int) -> FindRollsResponse:
        """All logs, as if each was due."""
        return due_logs(self.log_machine.logs, self.log_machine.logs.numbers()[:limit], 8 << 20)

    def find_garbage(self, limit: int) -> FindGarbageResponse:
        """As if all of it had been garbage for long."""
        return garbage(self.log_machine, limit, self.log_machine.logs.objects.became_garbage)

    def check_objects(self, request: CheckObjectsRequest) -> CheckObjectsResponse:
        """Which objects of the store nobody needs."""
        return check_objects(self.log_machine, request)

    def kept_objects(self, after: int, limit: int) -> KeptObjectsPage:
        """One page of the store's objects."""
        return kept_objects(self.log_machine, after, limit)

    def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        """Offsets of logs by time."""
        return find_offsets(self.log_machine.logs, request)

    def group(self, group_id: str) -> GroupDescription | None:
        """One consumer group."""
        return find_group(self.log_machine.groups, group_id)

    def groups(self, after: str | None, limit: int) -> GroupsPage:
        """A page of the consumer groups."""
        return groups_page(self.log_machine.groups, after, limit)

    def fetch_offsets(self, request: FetchOffsetsRequest) -> OffsetsPage:
        """Where a consumer group is to go on."""
        return fetch_offsets(self.log_machine.groups, request)

    def group_offsets(self, group_id: str, after: tuple[str, int] | None, limit: int) -> OffsetsPage:
        """A page of the offsets of a consumer group."""
        return group_offsets(self.log_machine.groups, group_id, after, limit)

    def watch_logs(self, request: WatchLogsRequest) -> asyncio.Future[Any]:
        """Answered when one of them has gone on."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.log_watch.add(self.log_machine.logs, request.logs, future)
        return future

    def end_watch(self, answer: Any) -> None:
        """Nobody waits for it any more."""
        self.log_watch.remove(answer)

    async def why_ownerless(self, producer_id: int) -> str:
        """As a member without jumps tells it."""
        return why_ownerless(producer_id, Gaps(self.next_id), None)

    def transactions(self, after: str, limit: int, state: str | None, producer_id: int | None) -> TransactionsPage:
        """A page of the transactional ids."""
        return transactions_page(self.machine.transactions, after, limit, state, producer_id)

    def transaction(self, transactional_id: str) -> TransactionDescription | None:
        """One transactional id."""
        record = self.machine.transactions.get(transactional_id)
        return None if record is None else transaction_description(record)

    def brokers(self) -> BrokersResponse:
        """The registered brokers."""
        return brokers_response(self._registrations())

    def watch(self, watched: bool) -> None:
        """Note it."""
        self.watched = watched

    def happened(self) -> list[Event]:
        """What a test has put into `events`."""
        events, self.events = self.events, []
        return events

    def liveness(self) -> list[HealthCheck]:
        """The checks in `checks`."""
        return [HealthCheck(name, ok, "" if ok else f"{name} is broken") for name, ok in self.checks.items()]

    def readiness(self) -> list[HealthCheck]:
        """The checks in `place`."""
        return [HealthCheck(name, ok, "" if ok else f"no {name}") for name, ok in self.place.items()]

    def transfer_leadership(self, target: int | None) -> None:
        """Note the target; refuse one that is no voter."""
        if target is not None and target not in URLS:
            raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, f"node {target} is no voter")
        self.transfers.append(target)

    async def found(self, wanted: FoundQuorumRequest) -> FoundQuorumResponse:
        """Founded by the first request; another one than that is refused."""
        if self.founding_id not in {None, wanted.founding_id}:
            raise RequestError(ErrorCode.FOUNDING_REFUSED, f"member 1 belongs to founding {self.founding_id}")
        self.founding_id = wanted.founding_id
        return FoundQuorumResponse(wanted.founding_id, sorted(wanted.voters))

    async def add_voter(self, wanted: AddVoterRequest) -> AddVoterResponse:
        """A learner at first, a voter when asked again."""
        voting = wanted.id in self.joining
        self.joining.add(wanted.id)
        return AddVoterResponse(wanted.id, voting)

    async def remove_voter(self, member_id: int) -> RemoveVoterResponse:
        """Gone at once."""
        if member_id not in self.joining:
            raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, f"member {member_id} is not in the quorum")
        self.joining.remove(member_id)
        return RemoveVoterResponse(member_id)

    def start_migration(self) -> asyncio.Future[Any]:
        """Begin the migration."""
        self._take_ids_over()
        answer: asyncio.Future[Any] = self.migration.orders.start()
        return answer

    def order_migration(self, phase: MigrationPhase, *, forced: bool = False) -> asyncio.Future[Any]:
        """Go on with the migration, or back."""
        answer: asyncio.Future[Any] = self.migration.orders.order(phase, forced=forced)
        return answer

    def describe_migration(self) -> asyncio.Future[Any]:
        """Where it is, while the leader takes its next step."""
        self._take_ids_over()
        answer: asyncio.Future[Any] = self.migration.orders.describe(self.migration.trouble())
        if not self.steps_wait:
            self.migration.tick()
        return answer

    def metric_families(self) -> Iterable[Metric]:
        """One gauge."""
        yield GaugeMetricFamily("pidkeeper_raft_term", "The current term.", value=1)

    def _apply(self, request: Request) -> Any:
        match request:
            case RegisterBroker(broker_id=broker_id):
                self.kafka[broker_id] = request.kafka
                self.epochs[broker_id] = len(self.submitted)
                return RegisterBrokerResponse(self.epochs[broker_id], self.cluster_id)
            case DismissEvidence(broker_id=broker_id):
                return DismissEvidenceResponse(broker_id, dismissed=False)
            case RaiseFloor(at_least=at_least):
                check_floor(self.next_id, at_least, DEFAULT_BLOCK_SIZE, forced=request.forced)
                raised = at_least > self.next_id
                self.next_id = max(self.next_id, at_least)
                return RaiseFloorResponse(self.next_id, raised)
            case InitProducerId() | AddPartitionsToTxn() | EndTxn() | AbortTransaction():
                return self._decide(request)
            case (
                CommitObject()
                | CreateTopic()
                | DeleteTopic()
                | ConfirmState()
                | CommitSegment()
                | DeleteRecords()
                | ObjectsDeleted()
                | ReleaseCollection()
                | CommitGroup()
                | CommitOffsets()
                | DeleteGroup()
                | DeleteOffsets()
            ):
                return self.decide_on_logs(request)
            case (
                RaiseMetadataVersion()
                | RecordFounding()
                | FillOwnIds()
                | CompleteTransaction()
                | ForgetTransactionalId()
                | StartMigration()
                | OrderMigration()
                | AdvanceMigration()
                | ExpireProducers()
                | RetainLogs()
                | ExpireOffsets()
            ):
                raise AssertionError(f"the edge never asks for {request}")
        self._check_epoch(request.broker_id, request.broker_epoch)
        match request:
            case AllocateProducerIds():
                return self._allocate(request)
            case UnregisterBroker():
                del self.epochs[request.broker_id]
                return UnregisterBrokerResponse(request.broker_id)
            case BrokerHeartbeat():
                return BrokerHeartbeatResponse(fenced=False)
        raise AssertionError(f"the edge never asks for {request}")

    def _submit(self, request: Request, answer: Answer) -> None:
        try:
            release(answer, self._decide(request))
        except RequestError as refusal:
            release(answer, refusal)

    def _take_ids_over(self) -> None:
        last = None
        if self.history:
            block = self.history[-1]
            length = block.last - block.first + 1
            last = LastBlock(block.first, length, block.broker_id, block.broker_epoch, block.offset, NOW_MS)
        self.machine.producer_ids = ProducerIdsState(self.next_id, last)

    def _decide(self, request: Request) -> Any:
        self.machine.brokers = self._registrations()
        self._take_ids_over()
        draft = Draft(self.machine, NOW_MS)
        answer = decide(draft, request)
        if draft.records:
            self.machine.replay(decode_batch(encode_batch(draft.records)))
            self.next_id = self.machine.producer_ids.next_producer_id
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def decide_on_logs(self, request: Request) -> Any:
        """Decide and apply a request about topics and partition logs; its answer. Raises RequestError."""
        registered = (msgspec.structs.replace(one, store_id=STORE_ID) for one in self._registrations().all())
        self.log_machine.brokers = BrokersState(registered)
        draft = Draft(self.log_machine, NOW_MS)
        answer = decide(draft, request)
        if draft.records:
            self.log_machine.replay(decode_batch(encode_batch(draft.records)))
            self.log_watch.applied(self.log_machine.logs)
        return answer

    def _registrations(self) -> BrokersState:
        return BrokersState(
            BrokerRegistration(broker_id, epoch, "memory", False, (), self.kafka.get(broker_id))
            for broker_id, epoch in self.epochs.items()
        )

    def _check_epoch(self, broker_id: int, broker_epoch: int) -> None:
        if broker_id not in self.epochs:
            raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
        if broker_epoch != self.epochs[broker_id]:
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH, f"the epoch is {self.epochs[broker_id]}")

    def _allocate(self, request: AllocateProducerIds) -> AllocateProducerIdsResponse:
        if self.next_id > MAX_PRODUCER_ID - DEFAULT_BLOCK_SIZE:
            raise RequestError(ErrorCode.PRODUCER_IDS_EXHAUSTED)
        block = ProducerIdBlock(self.next_id, DEFAULT_BLOCK_SIZE)
        self.next_id = block.next
        offset = len(self.submitted)
        self.history.append(
            AllocatedBlock(block.first, block.last, request.broker_id, request.broker_epoch, offset, NOW_MS)
        )
        return AllocateProducerIdsResponse(0, block.first, block.length)
