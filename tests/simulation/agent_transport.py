"""The way from simulated agents to simulated members: what a client of the controllers takes for HTTP.

A request is served by the member's HTTP interface from the dispatcher on: only aiohttp and its sockets are left out.
Every exchange, so every attempt of a call, is an operation of the history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace
from multidict import CIMultiDict
from yarl import URL

from pidkeeper.controller.state import requests
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import (
    AddPartitionsToTxnRequest,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EndTxnRequest,
    InitProducerIdResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    TransactionalInitRequest,
    TransactionResponse,
)
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.transactions import TopicPartitions
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from tests.simulation.client_link import ELSEWHERE, ClientLink, refusal_in
from tests.simulation.history import NOBODY, Operation
from tests.simulation.liar import Liar
from tests.simulation.member import base_url
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

PRODUCER: Final[ContextVar[int]] = ContextVar("PRODUCER", default=NOBODY)
"""The number of the transactional producer that an exchange is made for."""

HEADERS: Final = CIMultiDict({"Content-Type": "application/json"})

UNANSWERED: Final = ELSEWHERE | {ErrorCode.REQUEST_TIMED_OUT}
"""With these the client goes on to another member, and the outcome stays unknown."""

_RESPONSES: Final[Mapping[type, type]] = {
    requests.AddPartitionsToTxn: TransactionResponse,
    requests.AllocateProducerIds: AllocateProducerIdsResponse,
    requests.BrokerHeartbeat: BrokerHeartbeatResponse,
    requests.EndTxn: TransactionResponse,
    requests.InitProducerId: InitProducerIdResponse,
    requests.RegisterBroker: RegisterBrokerResponse,
}

_KNOWS: Final = "?metadata_version="
_OF_LOGS: Final = ("/v1/objects/", "/v1/logs/", "/v1/topics/", "/v1/segments/", "/v1/groups/")
_WANTS_IDS: Final = requests.AllocateProducerIds | requests.InitProducerId
_Answer = asyncio.Future[tuple[int, bytes]]


class AgentTransport:
    """The transport of one agent. `observe(operation)` is called when one is invoked, and when it is answered.

    `earlier`: it is of a build that does not say which metadata versions it knows.
    """

    def __init__(self, cluster: Cluster, rng: random.Random, observe: Callable[[Operation], None]) -> None:
        self._cluster = cluster
        self._link = ClientLink(cluster, rng)
        self._observe = observe
        self.earlier = False
        self._liar = Liar(cluster, rng)
        self._nodes = {base_url(node): node for node in cluster.members}

    async def exchange(
        self, method: str, base_url: str, path: str, body: bytes | None, timeout_seconds: float
    ) -> tuple[int, bytes]:
        """As `Transport.exchange`."""
        answer: _Answer = asyncio.get_running_loop().create_future()
        if self.earlier:
            path = path.removesuffix(_KNOWS + str(LATEST))
        body, lied = self._liar.told(path, body)
        request = HttpRequest(method, URL(path), HEADERS, body or b"")
        wanted = None if body is None else _request(path, body)
        if isinstance(wanted, _WANTS_IDS) and not self._cluster.may_allocate():
            # As operators have it: what brokers ask for is kept from the quorum until the migration begins.
            self._link.travel(_deliver, answer, None)
        else:
            self._send(self._nodes[base_url], request, wanted, answer, lied)
        async with asyncio.timeout(timeout_seconds):
            return await answer

    def _send(
        self, node: int, request: HttpRequest, wanted: requests.Request | None, answer: _Answer, lied: bool
    ) -> None:
        if wanted is None:
            self._link.exchange(node, request, (), partial(_deliver, answer))
            return
        history, times = self._cluster.history, int(request.url.query.get("blocks", "1"))
        operations = [history.invoke(wanted, PRODUCER.get()) for _ in range(times)]
        if not lied:
            for operation in operations:
                self._observe(operation)
        self._link.exchange(node, request, operations, partial(self._answered, operations, answer))

    def _answered(self, operations: list[Operation], answer: _Answer, response: HttpResponse | None) -> None:
        if answer.done():
            return
        if response is not None and response.status == ErrorCode.NONE.http_status:
            result: object = msgspec.json.decode(response.body, type=_RESPONSES[type(operations[0].request)])
            parts = _one_by_one(result)
            if len(parts) > len(operations):
                raise Violation("more-than-asked", f"{len(operations)} blocks were asked for, the answer is {result}")
            for operation, part in zip(operations, parts, strict=False):
                self._cluster.history.acknowledge(operation, part)
                self._observe(operation)
        elif response is not None and (error := refusal_in(response)).code not in UNANSWERED:
            for operation in operations:
                self._cluster.history.refuse(operation, error)
        _deliver(answer, response)


def _one_by_one(result: object) -> list[object]:
    """An answer with several blocks as if each had come in one of its own."""
    if not isinstance(result, AllocateProducerIdsResponse):
        return [result]
    further = (
        replace(result, producer_id_start=one.producer_id_start, producer_id_len=one.producer_id_len, more=[])
        for one in result.more
    )
    return [replace(result, more=[]), *further]


def _deliver(answer: _Answer, response: HttpResponse | None) -> None:
    """Hand an answer over, if it is still waited for; without `response` there was nobody to give one."""
    if answer.done():
        return
    if response is None:
        answer.set_exception(ConnectionRefusedError("nobody listens there"))
    else:
        answer.set_result((response.status, response.body))


def _request(path: str, body: bytes) -> requests.Request | None:
    """What the controllers are to make of a call, by the book of their HTTP interface and not by its code.

    None for those about partition logs, which are judged by what the logs hold.
    """
    path, _, query = path.partition("?")
    if path == "/v1/producer-ids/allocate":
        allocate = msgspec.json.decode(body, type=AllocateProducerIdsRequest)
        return requests.AllocateProducerIds(allocate.broker_id, allocate.broker_epoch, held=allocate.held)
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
    if path.startswith(_OF_LOGS):
        return None
    _, _, _, broker_id, verb = path.split("/")
    if verb == "register":
        register = msgspec.json.decode(body, type=RegisterBrokerRequest)
        said = (register.incarnation_id, register.kafka, register.held, register.store_id)
        knows = int(query.removeprefix(_KNOWS[1:])) if query else None
        return requests.RegisterBroker(int(broker_id), *said, knows)
    assert verb == "heartbeat", f"no agent calls {path}"
    beat = msgspec.json.decode(body, type=BrokerHeartbeatRequest)
    return requests.BrokerHeartbeat(
        int(broker_id), beat.broker_epoch, beat.held, int(query.removeprefix("reserve_ids="))
    )
