"""A quorum of controllers in memory with the real HTTP surface: enough for a broker agent, with faults on demand."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self, TypeVar

import msgspec
from aiohttp import web

from protocol.errors import ErrorCode, RequestError
from protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    Problem,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_Request = TypeVar("_Request")


class StubMember:
    """One member's address.

    `hangs`: accepts requests and never answers; `answers_after`: seconds; `names_leader`: says who leads.
    """

    def __init__(self, quorum: StubQuorum, number: int) -> None:
        self.quorum = quorum
        self.number = number
        self.hangs = False
        self.answers_after = 0.0
        self.names_leader = True
        self.requests = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; a second start takes the same port again."""
        app = web.Application()
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
            answer = quorum.answer(request.path, await request.read())
        except RequestError as error:
            return self._problem(error)
        if quorum.delays:
            await asyncio.sleep(quorum.delays.popleft())
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    def _problem(self, error: RequestError) -> web.Response:
        leader = self.quorum.leader
        problem = Problem(
            type="about:blank",
            title=error.code.meaning,
            status=error.code.http_status,
            detail=error.detail,
            code=error.code.name,
            error_code=error.code.kafka_code,
            retryable=error.code.retriable,
            leader=leader.url if leader is not None and self.names_leader else None,
            throttle_time_ms=error.throttle_time_ms,
        )
        body = msgspec.json.encode(problem)
        return web.Response(body=body, status=problem.status, content_type="application/problem+json")


class StubQuorum:
    """Members that share one state. `refusals`: raised in turn, one a request, before anything else is decided."""

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
        self.refusals: deque[RequestError] = deque()
        self.allocate_refusals: deque[RequestError | None] = deque()
        self.delays: deque[float] = deque()

    async def __aenter__(self) -> Self:
        for member in self.members:
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.stop()

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    def answer(self, path: str, body: bytes) -> msgspec.Struct:
        """Decide one request. Raises RequestError."""
        if self.refusals:
            raise self.refusals.popleft()
        if path == "/v1/producer-ids/allocate":
            return self._allocate(_decode(body, AllocateProducerIdsRequest))
        _, _, _, broker, verb = path.split("/")
        if verb == "register":
            return self._register(int(broker), _decode(body, RegisterBrokerRequest))
        if verb == "heartbeat":
            self._check_epoch(int(broker), _decode(body, BrokerHeartbeatRequest).broker_epoch)
            self.heartbeats += 1
            return BrokerHeartbeatResponse(fenced=False)
        assert verb == "unregister", path
        self._check_epoch(int(broker), _decode(body, UnregisterBrokerRequest).broker_epoch)
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
        self.offset += 1
        self.epochs[broker_id] = self.offset
        self.incarnations[broker_id] = request.incarnation_id
        return RegisterBrokerResponse(self.offset, self.cluster_id)

    def _allocate(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        self._check_cluster(request.cluster_id)
        if self.allocate_refusals and (refusal := self.allocate_refusals.popleft()) is not None:
            raise refusal
        self._check_epoch(request.broker_id, request.broker_epoch)
        self.offset += 1
        first = self.next_producer_id
        self.next_producer_id += self.block_size
        self.blocks.append((request.broker_id, first))
        return AllocateProducerIdsResponse(0, first, self.block_size)


def _decode(body: bytes, kind: type[_Request]) -> _Request:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None
