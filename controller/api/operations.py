"""What the calls do: check the caller's view of the cluster, throttle, hand over to the member, wait."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from pidkeeper.controller.api.admission import Admission, check_epoch, check_waits
from pidkeeper.controller.api.group_operations import GroupOperations
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.api.log_operations import LogOperations
from pidkeeper.controller.api.member_port import Member
from pidkeeper.controller.api.metrics import AllocationMetrics
from pidkeeper.controller.api.models import (
    AllocateQuery,
    BlocksQuery,
    BrokerPath,
    HeartbeatQuery,
    ProducerPath,
    RegisterQuery,
    TransactionQuery,
    TransactionsQuery,
    TransferLeadershipRequest,
    VoterPath,
    WhoAmIResponse,
)
from pidkeeper.controller.api.segment_operations import SegmentOperations
from pidkeeper.controller.state.requests import (
    AbortTransaction,
    AddPartitionsToTxn,
    AllocateProducerIds,
    BrokerHeartbeat,
    DismissEvidence,
    EndTxn,
    InitProducerId,
    RaiseFloor,
    RegisterBroker,
    UnregisterBroker,
)
from pidkeeper.protocol.addresses import AddressError, HostPort
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AbortTransactionRequest,
    AddPartitionsToTxnRequest,
    AddVoterRequest,
    AddVoterResponse,
    AllocatedBlocksPage,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokersResponse,
    DismissEvidenceRequest,
    DismissEvidenceResponse,
    EndTxnRequest,
    FenceBrokerRequest,
    FenceBrokerResponse,
    FinalizeMigrationRequest,
    FoundQuorumRequest,
    FoundQuorumResponse,
    FurtherBlock,
    InitProducerIdResponse,
    MigrationDescription,
    MigrationOrderRequest,
    MigrationOrderResponse,
    ProducerIdOwner,
    QuorumDescription,
    RaiseFloorRequest,
    RaiseFloorResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    RemoveVoterResponse,
    TransactionalInitRequest,
    TransactionDescription,
    TransactionResponse,
    TransactionsPage,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pidkeeper.protocol.migration import MigrationPhase
from pidkeeper.protocol.records import MAX_PEER_LENGTH
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.service.access import Access, Principal
from pidkeeper.service.authentication import check_broker, not_permitted
from pidkeeper.service.call import Call


class Operations:
    """One method for each call, whose parameters and body are validated; every method raises RequestError only."""

    def __init__(
        self,
        member: Member,
        limits: ApiLimits,
        metrics: AllocationMetrics,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._gate = Admission(member, limits, metrics, clock_ns)
        self.member: Final = member
        self.pending: Final = self._gate.pending
        self.logs: Final = LogOperations(self._gate)
        self.segments: Final = SegmentOperations(self._gate)
        self.groups: Final = GroupOperations(self._gate)

    async def allocate(
        self, call: Call[None, AllocateQuery, AllocateProducerIdsRequest]
    ) -> AllocateProducerIdsResponse:
        """Give the broker the next block, or the next few: as many as it asks for, and has tokens for."""
        request = self._checked(call)
        await self._gate.await_leader()
        first, started = self._begin_allocation(call, request)
        response: AllocateProducerIdsResponse
        if call.query.blocks == 1:
            response = await self.pending.wait(first, started)
        else:
            answers = [first, *self._submit_further(request, call.query.blocks - 1, started)]
            response = _as_one(await self.pending.wait_for_all(answers, started))
        self._gate.metrics.duration.observe(self._gate.clock_ns() - started, call.trace_id)
        return response

    def allocate_soon(
        self, call: Call[None, AllocateQuery, AllocateProducerIdsRequest], done: Callable[[Any], None]
    ) -> bool:
        """As `allocate`, without a task to wait in; False, and nothing is done, if that takes one.

        `done` gets the response, or a RequestError, in a later turn of the event loop.
        """
        if call.query.blocks != 1 or self.member.misses_leader():
            return False
        first, started = self._begin_allocation(call, self._checked(call))
        self.pending.tell(first, started, partial(self._allocated, started, done))
        return True

    def _allocated(self, started: int, done: Callable[[Any], None], outcome: Any) -> None:
        if not isinstance(outcome, RequestError):
            self._gate.metrics.duration.observe(self._gate.clock_ns() - started)
        done(outcome)

    def _checked(self, call: Call[None, AllocateQuery, AllocateProducerIdsRequest]) -> AllocateProducerIds:
        body = call.body
        self._gate.check_cluster(body.cluster_id)
        check_epoch(body.broker_epoch)
        check_broker(call.principal, body.broker_id)
        return AllocateProducerIds(body.broker_id, body.broker_epoch, held=body.held)

    def _begin_allocation(self, call: Call[Any, Any, Any], request: AllocateProducerIds) -> tuple[Awaitable[Any], int]:
        """The answer to come, and when it was asked for."""
        check_waits(call)
        started = self._gate.admit(self._gate.allocations, request.broker_id)
        return self.member.submit(request), started

    def _submit_further(self, request: AllocateProducerIds, most: int, now_ns: int) -> Iterator[Any]:
        """The same again, until a bound is met: who asked has its first block, and need not be told."""
        for _ in range(min(most, self.pending.room - 1)):
            if self._gate.allocations.admit(request.broker_id, now_ns) is not None:
                return
            try:
                yield self.member.submit(request)
            except RequestError:
                return

    async def register(self, call: Call[BrokerPath, RegisterQuery, RegisterBrokerRequest]) -> RegisterBrokerResponse:
        """Register a broker incarnation."""
        body = call.body
        self._gate.check_cluster(body.cluster_id)
        if body.held is not None and body.cluster_id is None:
            # What it holds is nothing to a cluster that it does not name.
            raise RequestError(ErrorCode.INVALID_REQUEST, "held: name the cluster_id that gave these IDs, too")
        request = RegisterBroker(
            call.path.id,
            body.incarnation_id,
            _address(body.kafka),
            body.held,
            body.store_id,
            call.query.metadata_version,
        )
        response: RegisterBrokerResponse = await self._gate.submit_for(call.path.id, call, self._gate.sessions, request)
        return response

    async def heartbeat(
        self, call: Call[BrokerPath, HeartbeatQuery, BrokerHeartbeatRequest]
    ) -> BrokerHeartbeatResponse:
        """Keep a registration unfenced."""
        check_epoch(call.body.broker_epoch)
        request = BrokerHeartbeat(call.path.id, call.body.broker_epoch, call.body.held, call.query.reserve_ids)
        sessions = self._gate.sessions
        response: BrokerHeartbeatResponse = await self._gate.submit_for(call.path.id, call, sessions, request)
        return response

    async def unregister(self, call: Call[BrokerPath, None, UnregisterBrokerRequest]) -> UnregisterBrokerResponse:
        """End a registration."""
        check_epoch(call.body.broker_epoch)
        request = UnregisterBroker(call.path.id, call.body.broker_epoch)
        sessions = self._gate.sessions
        response: UnregisterBrokerResponse = await self._gate.submit_for(call.path.id, call, sessions, request)
        return response

    async def fence(self, call: Call[BrokerPath, None, FenceBrokerRequest]) -> FenceBrokerResponse:
        """End a registration, whoever's it is: an operator's order, where `unregister` is the broker's own."""
        now, broker_id, named = self._gate.admit(None, 0), call.path.id, call.body.broker_epoch
        known = (one.broker_epoch for one in self.member.brokers().brokers if one.broker_id == broker_id)
        if (epoch := next(known, None)) is None:
            detail = f"broker {broker_id} is not registered: it has no epoch to fence"
            raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, detail)
        if named not in {None, epoch}:
            detail = f"broker {broker_id} has epoch {epoch}, not {named}: nothing was changed"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        await self._gate.submit(UnregisterBroker(broker_id, epoch), now)
        return FenceBrokerResponse(broker_id, epoch)

    async def raise_floor(self, call: Call[None, None, RaiseFloorRequest]) -> RaiseFloorResponse:
        """Raise the next producer ID. With force, far; that takes an operator who has proven to be one."""
        body = call.body
        _check_force(call.principal, body.force)
        request = RaiseFloor(body.at_least, forced=body.force)
        response: RaiseFloorResponse = await self._gate.submit(request, self._gate.admit(None, 0))
        return response

    async def blocks(self, call: Call[None, BlocksQuery, None]) -> AllocatedBlocksPage:
        """One page of the allocation history."""
        return await self.member.blocks(call.query.after, call.query.limit)

    async def owner(self, call: Call[ProducerPath, None, None]) -> ProducerIdOwner:
        """The block that holds an ID, and who has it."""
        block = await self.member.owner(call.path.id)
        if block is None:
            raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, await self.member.why_ownerless(call.path.id))
        return block

    async def brokers(self, call: Call[None, None, None]) -> BrokersResponse:
        """The registered brokers."""
        return self.member.brokers()

    async def init_producer_id(self, call: Call[None, None, TransactionalInitRequest]) -> InitProducerIdResponse:
        """Give a transactional id its newest pair."""
        body = call.body
        check_epoch(body.broker_epoch)
        request = InitProducerId(
            body.broker_id,
            body.broker_epoch,
            body.transactional_id,
            body.transaction_timeout_ms,
            body.producer_id,
            body.producer_epoch,
            body.candidate,
        )
        response: InitProducerIdResponse = await self._gate.submit_for(body.broker_id, call, self._gate.inits, request)
        return response

    async def add_partitions(self, call: Call[None, None, AddPartitionsToTxnRequest]) -> TransactionResponse:
        """Let partitions join a transaction."""
        body = call.body
        check_epoch(body.broker_epoch)
        topics = tuple(TopicPartitions(topic.topic, tuple(topic.partitions)) for topic in body.topics)
        request = AddPartitionsToTxn(
            body.broker_id, body.broker_epoch, body.transactional_id, body.producer_id, body.producer_epoch, topics
        )
        return await self._step(call, request)

    async def end_transaction(self, call: Call[None, None, EndTxnRequest]) -> TransactionResponse:
        """Commit or abort a transaction."""
        body = call.body
        check_epoch(body.broker_epoch)
        request = EndTxn(
            body.broker_id,
            body.broker_epoch,
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            body.committed,
            body.new_epoch,
        )
        return await self._step(call, request)

    async def abort_transaction(self, call: Call[None, None, AbortTransactionRequest]) -> TransactionResponse:
        """Abort a transaction and fence its producer."""
        body = call.body
        request = AbortTransaction(body.transactional_id, body.producer_id, body.producer_epoch)
        response: TransactionResponse = await self._gate.submit(request, self._gate.admit(None, 0))
        return response

    async def transactions(self, call: Call[None, TransactionsQuery, None]) -> TransactionsPage:
        """One page of the transactional ids."""
        self._gate.check_leader()
        return self.member.transactions(call.query.after, call.query.limit, call.query.state, call.query.producer_id)

    async def transaction(self, call: Call[None, TransactionQuery, None]) -> TransactionDescription:
        """One transactional id."""
        self._gate.check_leader()
        found = self.member.transaction(call.query.transactional_id)
        if found is None:
            detail = f"nothing is known of transactional id {call.query.transactional_id!r}"
            raise RequestError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, detail)
        return found

    async def migration(self, call: Call[None, None, None]) -> MigrationDescription:
        """Where the migration is, with a fresh look at the znode."""
        now = self._gate.admit(None, 0)
        description: MigrationDescription = await self.pending.wait(self.member.describe_migration(), now)
        return description

    async def start_migration(self, call: Call[None, None, MigrationOrderRequest]) -> MigrationOrderResponse:
        """Begin the migration."""
        now = self._gate.admit(None, 0)
        phase: MigrationPhase = await self.pending.wait(self.member.start_migration(), now)
        return MigrationOrderResponse(phase.name.lower())

    async def finalize_migration(self, call: Call[None, None, FinalizeMigrationRequest]) -> MigrationOrderResponse:
        """End the migration for good. With force whoever still is in ZooKeeper; that takes a proven operator."""
        _check_force(call.principal, call.body.force)
        if not call.body.agreed:
            detail = (
                "nobody agreed to it: brokers that use ZooKeeper get no ID any more and there is no way back; "
                "send agreed = true once no such broker is left"
            )
            raise RequestError(ErrorCode.MIGRATION_REFUSED, detail)
        return await self._order(MigrationPhase.FINALIZING, forced=call.body.force)

    async def roll_back_migration(self, call: Call[None, None, MigrationOrderRequest]) -> MigrationOrderResponse:
        """Hand allocation back to ZooKeeper."""
        return await self._order(MigrationPhase.ROLLING_BACK)

    async def _order(self, phase: MigrationPhase, *, forced: bool = False) -> MigrationOrderResponse:
        now = self._gate.admit(None, 0)
        order = self.member.order_migration(phase, forced=forced)
        reached: MigrationPhase = await self.pending.wait(order, now)
        return MigrationOrderResponse(reached.name.lower())

    async def who_am_i(self, call: Call[None, None, None]) -> WhoAmIResponse:
        """The caller itself."""
        return WhoAmIResponse(call.principal.name, sorted(role.value for role in call.principal.roles))

    async def quorum(self, call: Call[None, None, None]) -> QuorumDescription:
        """The quorum as this member sees it."""
        return self.member.describe()

    async def transfer(self, call: Call[None, None, TransferLeadershipRequest]) -> QuorumDescription:
        """Begin a hand-over of leadership."""
        self._gate.check_leader()
        self.member.transfer_leadership(call.body.target)
        return self.member.describe()

    async def found(self, call: Call[None, None, FoundQuorumRequest]) -> FoundQuorumResponse:
        """Found a quorum of blank members. No leader decides that, for there is none."""
        _check_force(call.principal, call.body.force)
        self.pending.check_room()
        founded: FoundQuorumResponse = await self.pending.wait(self.member.found(call.body), self._gate.clock_ns())
        return founded

    async def dismiss_evidence(self, call: Call[None, None, DismissEvidenceRequest]) -> DismissEvidenceResponse:
        """Let what a broker says it holds count no more."""
        request = DismissEvidence(call.body.broker_id, call.body.highest_producer_id)
        response: DismissEvidenceResponse = await self._gate.submit(request, self._gate.admit(None, 0))
        return response

    async def add_voter(self, call: Call[None, None, AddVoterRequest]) -> AddVoterResponse:
        """Go one step towards a new voter."""
        now = self._gate.admit(None, 0)
        response: AddVoterResponse = await self.pending.wait(self.member.add_voter(call.body), now)
        return response

    async def remove_voter(self, call: Call[VoterPath, None, None]) -> RemoveVoterResponse:
        """Remove a voter or a learner."""
        now = self._gate.admit(None, 0)
        response: RemoveVoterResponse = await self.pending.wait(self.member.remove_voter(call.path.id), now)
        return response

    async def _step(self, call: Call[Any, Any, Any], request: AddPartitionsToTxn | EndTxn) -> TransactionResponse:
        steps = self._gate.transactions
        response: TransactionResponse = await self._gate.submit_for(request.broker_id, call, steps, request)
        return response


def _as_one(answers: Sequence[AllocateProducerIdsResponse | RequestError]) -> AllocateProducerIdsResponse:
    """All blocks in one answer. Raises the first RequestError if there are none."""
    granted = [answer for answer in answers if isinstance(answer, AllocateProducerIdsResponse)]
    if not granted:
        raise next(answer for answer in answers if isinstance(answer, RequestError))
    more = [FurtherBlock(one.producer_id_start, one.producer_id_len) for one in granted[1:]]
    return replace(granted[0], more=more)


def _check_force(principal: Principal, force: bool) -> None:
    """Raises RequestError for a caller who may not go beyond a bound."""
    if force and Access.OVERRIDE not in principal.roles:
        whose = "of who brings the token of operator_token_file, or an operator's certificate"
        raise not_permitted(principal, Access.OVERRIDE, whose)


def _address(kafka: str | None) -> str | None:
    """host:port with brackets where they belong. Raises RequestError."""
    if kafka is None:
        return None
    try:
        address = str(HostPort.parse(kafka, "kafka"))
    except AddressError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{error}; nothing was changed") from error
    if len(address) > MAX_PEER_LENGTH:
        detail = f"kafka: {address!r} has {len(address)} characters, {MAX_PEER_LENGTH} are allowed"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    return address
