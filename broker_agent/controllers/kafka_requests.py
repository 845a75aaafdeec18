"""Requests to the controllers in Kafka's protocol: KIP-730's where it has words for them, and ours where it has none.

What the client of the controllers asks is a path and a body, whatever carries them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple
from urllib.parse import parse_qs
from uuid import UUID

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from pidkeeper.service.kafka.wire import allocate_producer_ids, broker_heartbeat, broker_registration, own_call
from pidkeeper.service.kafka.wire.own_call import OwnCall
from pidkeeper.service.kafka.wire.own_field import Answered, Asked, read_answered, tagged
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import (
    ALLOCATE_PRODUCER_IDS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    Versions,
)
from pidkeeper.service.problems import problem_document

_BROKER: Final = re.compile(r"/v1/brokers/([0-9]+)/(register|heartbeat|unregister)")
_ALLOCATE: Final = "/v1/producer-ids/allocate"


class KafkaRequest(NamedTuple):
    """One request. `read` takes the body of its response to status and content, as over HTTP, and raises ValueError."""

    key: int
    versions: Versions
    body: bytes
    read: Callable[[Reader], tuple[int, bytes]]


def kafka_request(method: str, path: str, body: bytes | None) -> KafkaRequest:
    """The request for a call."""
    bare, _, query = path.partition("?")
    asked = {name: int(values[0]) for name, values in parse_qs(query).items()} if body is not None else {}
    if body is not None and bare == _ALLOCATE:
        return _allocate(msgspec.json.decode(body, type=AllocateProducerIdsRequest), **asked)
    if body is not None and (found := _BROKER.fullmatch(bare)) is not None:
        return _BROKER_CALLS[found[2]](int(found[1]), body, **asked)
    call = OwnCall(method, path, body or b"")
    return KafkaRequest(own_call.KEY, own_call.VERSIONS, own_call.write_request(call), own_call.read_response)


def _allocate(request: AllocateProducerIdsRequest, blocks: int = 1) -> KafkaRequest:
    tags = tagged(Asked(held=request.held, cluster_id=request.cluster_id, blocks=blocks))
    body = allocate_producer_ids.write_request(request.broker_id, request.broker_epoch, tags)

    def read(reader: Reader) -> tuple[int, bytes]:
        throttle_time_ms, error, start, length, own = allocate_producer_ids.read_response(reader)
        told = read_answered(own)
        told_of_quorum = told.founding_id, told.succession
        answer = AllocateProducerIdsResponse(0, start, length, throttle_time_ms, *told_of_quorum, told.more)
        return _answer(error, throttle_time_ms, told, answer)

    return KafkaRequest(ALLOCATE_PRODUCER_IDS, allocate_producer_ids.VERSIONS, body, read)


def _register(broker_id: int, content: bytes, metadata_version: int | None = None) -> KafkaRequest:
    request = msgspec.json.decode(content, type=RegisterBrokerRequest)
    asked = Asked(request.kafka, request.held, store_id=request.store_id, metadata_version=metadata_version)
    tags = tagged(asked)
    cluster_id, incarnation_id = request.cluster_id or "", UUID(request.incarnation_id)
    body = broker_registration.write_request(broker_id, cluster_id, incarnation_id, tags)

    def read(reader: Reader) -> tuple[int, bytes]:
        throttle_time_ms, error, epoch, own = broker_registration.read_response(reader)
        told = read_answered(own)
        answer = RegisterBrokerResponse(
            epoch, told.cluster_id or "", told.metadata_version, told.founding_id, told.succession
        )
        return _answer(error, throttle_time_ms, told, answer)

    return KafkaRequest(BROKER_REGISTRATION, broker_registration.VERSIONS, body, read)


def _heartbeat(broker_id: int, content: bytes, reserve_ids: int | None = None) -> KafkaRequest:
    request = msgspec.json.decode(content, type=BrokerHeartbeatRequest)
    tags = tagged(Asked(held=request.held, reserve_ids=reserve_ids))
    body = broker_heartbeat.write_request(broker_id, request.broker_epoch, tags)

    def read(reader: Reader) -> tuple[int, bytes]:
        throttle_time_ms, error, fenced, _, own = broker_heartbeat.read_response(reader)
        told = read_answered(own)
        answer = BrokerHeartbeatResponse(fenced, told.metadata_version, told.founding_id, told.succession)
        return _answer(error, throttle_time_ms, told, answer)

    return KafkaRequest(BROKER_HEARTBEAT, broker_heartbeat.VERSIONS, body, read)


def _unregister(broker_id: int, content: bytes) -> KafkaRequest:
    request = msgspec.json.decode(content, type=UnregisterBrokerRequest)
    body = broker_heartbeat.write_request(broker_id, request.broker_epoch, tagged(Asked()), want_shut_down=True)

    def read(reader: Reader) -> tuple[int, bytes]:
        throttle_time_ms, error, _, _, own = broker_heartbeat.read_response(reader)
        return _answer(error, throttle_time_ms, read_answered(own), UnregisterBrokerResponse(broker_id))

    return KafkaRequest(BROKER_HEARTBEAT, broker_heartbeat.VERSIONS, body, read)


_BROKER_CALLS: Final[dict[str, Callable[..., KafkaRequest]]] = {
    "register": _register,
    "heartbeat": _heartbeat,
    "unregister": _unregister,
}


def _answer(error: int, throttle_time_ms: int, told: Answered, granted: msgspec.Struct) -> tuple[int, bytes]:
    """Status and content as over HTTP."""
    if error == ErrorCode.NONE.kafka_code:
        return ErrorCode.NONE.http_status, msgspec.json.encode(granted)
    return refusal(_code(error, told), told.detail, throttle_time_ms, told.leader)


def refusal(code: ErrorCode, detail: str, throttle_time_ms: int = 0, leader: str | None = None) -> tuple[int, bytes]:
    """A problem document, and its status."""
    named = None if leader is None else (0, leader)
    problem = problem_document(RequestError(code, detail, throttle_time_ms=throttle_time_ms), named)
    return problem.status, msgspec.json.encode(problem)


def _code(error: int, told: Answered) -> ErrorCode:
    """What it is in our table. Raises ValueError."""
    found = ErrorCode.__members__.get(told.code)
    if found is None or found.kafka_code != error:
        raise ValueError(f"error {error} is called {told.code!r}")
    return found
