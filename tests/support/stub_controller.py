"""A quorum of controllers in memory with the real HTTP surface: enough for a broker agent, with faults on demand."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from typing import Any, Literal, Self, TypeVar

import msgspec
from aiohttp import web

from pidkeeper.controller.state import requests as asked
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import PREPARED
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.ids import MAX_BLOCKS_AT_ONCE
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerDescription,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokersResponse,
    EndTxnRequest,
    FurtherBlock,
    HeldIds,
    Problem,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TransactionalInitRequest,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pidkeeper.protocol.metadata_version import BASE, LATEST, TRANSACTIONS
from pidkeeper.protocol.transactions import TopicPartitions, TransactionalBlockRecord
from tests.support.log_calls import call_log_leader
from tests.support.log_leader import FOUNDING, LogLeader

Fault = Literal["none", "answer-lost", "never-arrived", "late"]
"""What becomes of a transactional request: all but "none" break the connection. "answer-lost": it was carried out;
"late": it will be, by `StubQuorum.carry_out_late`."""

_Request = TypeVar("_Request")


class StubMember:
    """One member's address.

    `hangs`: accepts requests and never answers; `answers_after`: seconds; `names_leader`: says who leads;
    `names`: whom it names in that one's place.
    """

    def __init__(self, quorum: StubQuorum, number: int) -> None:
        self.quorum = quorum
        self.number = number
        self.hangs = False
        self.answers_after = 0.0
        self.names_leader = True
        self.names: str | None = None
        self.requests = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; a second start takes the same port again."""
        app = web.Application()
        app.router.add_get("/v1/brokers", self._brokers)
        app.router.add_post("/v1/transactions/{tail:.*}", self._transact)
        app.router.add_get("/v1/topics", self._log_call)
        app.router.add_post("/v1/{kind:objects|logs|topics}/{tail}", self._log_call)
        app.router.add_post("/v1/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections from now on, and drop those that are open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.hangs:
            await asyncio.sleep(60)
        await asyncio.sleep(self.answers_after)
        quorum = self.quorum
        try:
            if quorum.leader is not self:
                raise RequestError(ErrorCode.NOT_CONTROLLER)
            if quorum.token is not None and request.headers.get("Authorization") != f"Bearer {quorum.token}":
                raise RequestError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "bad token")
            quorum.queries.append(request.query_string)
            answer = quorum.answer(request.path, await request.read(), int(request.query.get("blocks", "1")))
        except RequestError as error:
            return self._problem(error)
        if quorum.delays:
            await asyncio.sleep(quorum.delays.popleft())
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _log_call(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.hangs:
            await asyncio.sleep(60)
        try:
            if self.quorum.leader is not self or self.quorum.logs is None:
                raise RequestError(ErrorCode.NOT_CONTROLLER)
            return web.Response(body=await call_log_leader(self.quorum.logs, request), content_type="application/json")
        except RequestError as error:
            return self._problem(error)

    async def _transact(self, request: web.Request) -> web.Response:
        quorum = self.quorum
        fault: Fault = quorum.faults.popleft() if quorum.faults and quorum.leader is self else "none"
        if fault == "none":
            return await self._handle(request)
        body = await request.read()
        if fault == "answer-lost":
            await self._handle(request)
        elif fault == "late":
            quorum.late.append((request.path, body))
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _brokers(self, _: web.Request) -> web.Response:
        self.quorum.looks += 1
        try:
            if self.quorum.brokers_refused is not None:
                raise self.quorum.brokers_refused
        except RequestError as error:
            return self._problem(error)
        return web.Response(body=msgspec.json.encode(self.quorum.brokers()), content_type="application/json")

    def _problem(self, error: RequestError) -> web.Response:
        leader = None if self.quorum.leader is None else self.quorum.leader.url
        problem = Problem(
            type="about:blank",
            title=error.code.meaning,
            status=error.code.http_status,
            detail=error.detail,
            code=error.code.name,
            error_code=error.code.kafka_code,
            retryable=error.code.retriable,
            leader=self.names or (leader if self.names_leader else None),
            throttle_time_ms=error.throttle_time_ms,
        )
        body = msgspec.json.encode(problem)
        return web.Response(body=body, status=problem.status, content_type="application/problem+json")


class StubQuorum:
    """Members that share one state. `refusals`: raised in turn, one a request, before anything else is decided.

    Transactions are decided by `controller.state`. `faults`: one for each transactional request at the leader.
    `completes`: whether an ended transaction is completed at once. `others`: brokers beside those that registered here.
    `tells`: the metadata version in the answers to registrations and heartbeats; a build before version 6 tells none.
    `founding_id`, `succession`: likewise. `held`: what the signs of life said of IDs that were held, in turn.
    `most_blocks`: in one answer, however many were asked for; earlier builds give one. `unasked`: blocks on top.
    `takes_addresses`: not so before metadata version 3 is in force; who then registers to leave one keeps its epoch.
    `logs`: what decides on partition logs, registrations and transactions; without it nothing decides on logs.
    """

    def __init__(self, members: int = 1, *, block_size: int = 1000, token: str | None = None) -> None:
        self.members = [StubMember(self, number) for number in range(members)]
        self.leader: StubMember | None = self.members[0]
        self.token = token
        self.cluster_id = "stub-cluster"
        self.checks_cluster_id = True
        self.block_size = block_size
        self.next_producer_id = 0
        self.offset = 0
        self.epochs: dict[int, int] = {}
        self.incarnations: dict[int, str] = {}
        self.blocks: list[tuple[int, int]] = []
        self.heartbeats = 0
        self.queries: list[str] = []
        self.refusals: deque[RequestError] = deque()
        self.allocate_refusals: deque[RequestError | None] = deque()
        self.delays: deque[float] = deque()
        self.kafka: dict[int, str | None] = {}
        self.stores: dict[int, uuid.UUID | None] = {}
        self.takes_addresses = True
        self.most_blocks = MAX_BLOCKS_AT_ONCE
        self.unasked = 0
        self.tells = BASE
        self.founding_id: uuid.UUID | None = None
        self.succession: Succession | None = None
        self.held: list[HeldIds | None] = []
        self.others: list[BrokerDescription] = []
        self.brokers_refused: RequestError | None = None
        self.looks = 0
        self.machine = StateMachine("stub-cluster")
        self.machine.metadata_version = TRANSACTIONS
        self.faults: deque[Fault] = deque()
        self.late: deque[tuple[str, bytes]] = deque()
        self.completes = True
        self.transactional: list[Any] = []
        self.logs: LogLeader | None = None

    async def __aenter__(self) -> Self:
        for member in self.members:
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.stop()

    def keep_logs(self, leader: LogLeader) -> None:
        """Decide by its state, and tell of its founding."""
        self.logs, self.founding_id, self.tells = leader, FOUNDING, LATEST

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    def answer(self, path: str, body: bytes, blocks: int = 1) -> msgspec.Struct:
        """Decide one request, `blocks` of its query. Raises RequestError."""
        if self.refusals:
            raise self.refusals.popleft()
        if path == "/v1/producer-ids/allocate":
            return self._allocate(
                _decode(body, AllocateProducerIdsRequest), min(blocks, self.most_blocks) + self.unasked
            )
        if path.startswith("/v1/transactions/"):
            return self._decide(_transactional(path, body))
        _, _, _, broker, verb = path.split("/")
        if verb == "register":
            return self._register(int(broker), _decode(body, RegisterBrokerRequest))
        if verb == "heartbeat":
            beat = _decode(body, BrokerHeartbeatRequest)
            self._check_epoch(int(broker), beat.broker_epoch)
            self.heartbeats += 1
            self.held.append(beat.held)
            return BrokerHeartbeatResponse(False, self.tells, self.founding_id, self.succession)
        assert verb == "unregister", path
        epoch = _decode(body, UnregisterBrokerRequest).broker_epoch
        self._check_epoch(int(broker), epoch)
        if self.logs is not None:
            self.logs.decide(asked.UnregisterBroker(int(broker), epoch))
        del self.epochs[int(broker)]
        return UnregisterBrokerResponse(int(broker))

    def _check_cluster(self, cluster_id: str | None) -> None:
        if self.checks_cluster_id and cluster_id not in (None, self.cluster_id):
            raise RequestError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is {self.cluster_id}, not {cluster_id}")

    def _check_epoch(self, broker_id: int, epoch: int) -> None:
        if broker_id not in self.epochs:
            raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if self.epochs[broker_id] != epoch:
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH)

    def _register(self, broker_id: int, request: RegisterBrokerRequest) -> RegisterBrokerResponse:
        self._check_cluster(request.cluster_id)
        kafka = request.kafka if self.takes_addresses else None
        told_more = (self.kafka.get(broker_id), self.stores.get(broker_id)) != (request.kafka, request.store_id)
        if self.incarnations.get(broker_id) != request.incarnation_id or not told_more:
            self.offset += 1
            self.epochs[broker_id] = self.offset
            self.incarnations[broker_id] = request.incarnation_id
        if self.logs is not None:
            decided = self.logs.decide(
                asked.RegisterBroker(broker_id, request.incarnation_id, request.kafka, None, request.store_id)
            )
            self.epochs[broker_id] = decided.broker_epoch
        self.kafka[broker_id] = kafka
        self.stores[broker_id] = request.store_id
        self.held.append(request.held)
        return RegisterBrokerResponse(
            self.epochs[broker_id], self.cluster_id, self.tells, self.founding_id, self.succession
        )

    def _allocate(self, request: AllocateProducerIdsRequest, blocks: int) -> AllocateProducerIdsResponse:
        self._check_cluster(request.cluster_id)
        if self.allocate_refusals and (refusal := self.allocate_refusals.popleft()) is not None:
            raise refusal
        self._check_epoch(request.broker_id, request.broker_epoch)
        self.held.append(request.held)
        self.offset += 1
        firsts = [self.next_producer_id + place * self.block_size for place in range(blocks)]
        self.next_producer_id += blocks * self.block_size
        self.blocks += [(request.broker_id, first) for first in firsts]
        more = [FurtherBlock(first, self.block_size) for first in firsts[1:]]
        return AllocateProducerIdsResponse(0, firsts[0], self.block_size, 0, self.founding_id, self.succession, more)

    def ask(self, path: str, request: msgspec.Struct) -> msgspec.Struct:
        """Decide one request as if it had come by HTTP. Raises RequestError."""
        return self.answer(path, msgspec.json.encode(request))

    def brokers(self) -> BrokersResponse:
        """Who is registered."""
        here = [
            BrokerDescription(one, epoch, False, self.kafka.get(one), store_id=self.stores.get(one))
            for one, epoch in self.epochs.items()
        ]
        return BrokersResponse(sorted(here + self.others, key=lambda one: one.broker_id))

    def carry_out_late(self) -> None:
        """Carry out the oldest request that was to come late."""
        try:
            self.answer(*self.late.popleft())
        except RequestError:
            return

    def complete(self, transactional_id: str) -> None:
        """Complete the transaction that was ended or aborted."""
        record = self.machine.transactions.get(transactional_id)
        assert record is not None, f"{transactional_id} is unknown"
        self._decide(asked.CompleteTransaction(transactional_id, record.producer_id, record.producer_epoch))

    def _decide(self, request: Any) -> msgspec.Struct:
        self.transactional.append(request)
        if self.logs is not None:
            decided: msgspec.Struct = self.logs.decide(request)
            return decided
        draft = _Draft(self)
        answer = decide(draft, request)
        self.machine.own_ids, self.next_producer_id = draft.own_ids, draft.next_producer_id
        for record in draft.records:
            self.offset += 1
            if isinstance(record, TransactionalBlockRecord):
                continue
            self.machine.transactions.replay(record, self.offset, self.next_producer_id)  # type: ignore[arg-type]
        after = self.machine.transactions.get(request.transactional_id)
        if self.completes and after is not None and after.status in PREPARED:
            self.complete(request.transactional_id)
        if isinstance(answer, RequestError):
            raise answer
        assert isinstance(answer, msgspec.Struct)
        return answer


class _Draft(Draft):
    """A decision on the stub's own brokers and blocks."""

    def __init__(self, quorum: StubQuorum) -> None:
        super().__init__(quorum.machine, 1_700_000_000_000)
        self._quorum = quorum
        self.next_producer_id = quorum.next_producer_id

    def check_broker(self, broker_id: int, broker_epoch: int) -> Any:
        self._quorum._check_epoch(broker_id, broker_epoch)


def _transactional(path: str, body: bytes) -> Any:
    """The request as the state takes it."""
    verb = path.rpartition("/")[2]
    if verb == "init-producer-id":
        init = _decode(body, TransactionalInitRequest)
        request = asked.InitProducerId(*msgspec.structs.astuple(init))
        return msgspec.structs.replace(request, may_take_block=True)
    if verb == "end":
        return asked.EndTxn(*msgspec.structs.astuple(_decode(body, EndTxnRequest)))
    assert verb == "add-partitions", path
    add = _decode(body, AddPartitionsToTxnRequest)
    topics = tuple(TopicPartitions(topic.topic, tuple(topic.partitions)) for topic in add.topics)
    producer = (add.transactional_id, add.producer_id, add.producer_epoch)
    return asked.AddPartitionsToTxn(add.broker_id, add.broker_epoch, *producer, topics)


def _decode(body: bytes, kind: type[_Request]) -> _Request:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None
