"""The way from simulated agents to simulated members: what a client of the controllers takes for HTTP.

A body becomes the request that the controllers' HTTP interface would make of it, and the answer becomes bytes again.
Every exchange, so every attempt of a call, is an operation of the history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    EndTxnRequest,
    Problem,
    RegisterBrokerRequest,
    TransactionalInitRequest,
)
from pidkeeper.protocol.transactions import TopicPartitions
from tests.simulation.client_link import ELSEWHERE, ClientLink
from tests.simulation.history import NOBODY, Operation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

PRODUCER: Final[ContextVar[int]] = ContextVar("PRODUCER", default=NOBODY)
"""The number of the transactional producer that an exchange is made for."""

_Answer = asyncio.Future[tuple[int, bytes]]


def url(node: int) -> str:
    """The base URL of a member."""
    return f"http://member-{node}"


class AgentTransport:
    """The transport of one agent. `observe(operation)` is called when one is invoked, and when it is answered."""

    def __init__(self, cluster: Cluster, rng: random.Random, observe: Callable[[Operation], None]) -> None:
        self._cluster = cluster
        self._link = ClientLink(cluster, rng)
        self._observe = observe
        self._nodes = {url(node): node for node in cluster.members}

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """As `Transport.exchange`."""
        answer: _Answer = asyncio.get_running_loop().create_future()
        node = self._nodes[base_url]
        if body is None:
            assert path == "/v1/brokers", f"no agent reads {path}"
            self._link.look(node, _brokers, partial(_deliver, answer))
        else:
            self._invoke(node, _request(path, body), answer)
        async with asyncio.timeout(timeout_seconds):
            return await answer

    def _invoke(self, node: int, request: requests.Request, answer: _Answer) -> None:
        if isinstance(request, requests.AllocateProducerIds) and not self._cluster.may_allocate():
            # As operators have it: what brokers ask for is kept from the quorum until the migration begins.
            self._link.travel(_deliver, answer, None)
            return
        operation = self._cluster.history.invoke(request, PRODUCER.get())
        self._observe(operation)
        self._link.ask(node, operation, partial(self._answered, operation, answer))

    def _answered(
        self, operation: Operation, answer: _Answer, leader: int | None, result: Any, error: RequestError | None
    ) -> None:
        if answer.done():
            return
        if result is not None:
            self._cluster.history.acknowledge(operation, result)
            self._observe(operation)
            _deliver(answer, (200, msgspec.json.encode(result)))
        elif error is None:
            _deliver(answer, None)
        else:
            if error.code not in ELSEWHERE:
                self._cluster.history.refuse(operation, error)
            _deliver(answer, _problem(error, leader))


def _deliver(answer: _Answer, content: tuple[int, bytes] | None) -> None:
    """Hand an answer over, if it is still waited for; without `content` there was nobody to give one."""
    if answer.done():
        return
    if content is None:
        answer.set_exception(ConnectionRefusedError("nobody listens there"))
    else:
        answer.set_result(content)


def _brokers(process: Process) -> tuple[int, bytes]:
    return 200, msgspec.json.encode(process.interface.brokers())


def _problem(error: RequestError, leader: int | None) -> tuple[int, bytes]:
    """Status and body of a refusal, as the controllers' HTTP interface makes them."""
    code = error.code
    problem = Problem(
        type="about:blank",
        title=code.meaning,
        status=code.http_status,
        detail=error.detail,
        code=code.name,
        error_code=code.kafka_code,
        retryable=code.retriable,
        leader=None if leader is None or code is not ErrorCode.NOT_CONTROLLER else url(leader),
        throttle_time_ms=error.throttle_time_ms,
    )
    return problem.status, msgspec.json.encode(problem)


def _request(path: str, body: bytes) -> requests.Request:
    """What the controllers' HTTP interface makes of a call."""
    if path == "/v1/producer-ids/allocate":
        allocate = msgspec.json.decode(body, type=AllocateProducerIdsRequest)
        return requests.AllocateProducerIds(allocate.broker_id, allocate.broker_epoch)
    if path == "/v1/transactions/init-producer-id":
        init = msgspec.json.decode(body, type=TransactionalInitRequest)
        return requests.InitProducerId(*msgspec.structs.astuple(init))
    if path == "/v1/transactions/add-partitions":
        add = msgspec.json.decode(body, type=AddPartitionsToTxnRequest)
        topics = tuple(TopicPartitions(topic.topic, tuple(topic.partitions)) for topic in add.topics)
        producer = (add.transactional_id, add.producer_id, add.producer_epoch)
        return requests.AddPartitionsToTxn(add.broker_id, add.broker_epoch, *producer, topics)
    if path == "/v1/transactions/end":
        return requests.EndTxn(*msgspec.structs.astuple(msgspec.json.decode(body, type=EndTxnRequest)))
    _, _, _, broker_id, verb = path.split("/")
    if verb == "register":
        register = msgspec.json.decode(body, type=RegisterBrokerRequest)
        return requests.RegisterBroker(int(broker_id), register.incarnation_id, register.kafka)
    assert verb == "heartbeat", f"no agent calls {path}"
    return requests.BrokerHeartbeat(int(broker_id), msgspec.json.decode(body, type=BrokerHeartbeatRequest).broker_epoch)
