"""The APIs of Kafka's that a broker needs for its IDs: what each asks of the operations, and how it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from pidkeeper.controller.api.models import AllocateQuery, BrokerPath, HeartbeatQuery, RegisterQuery
from pidkeeper.controller.api.operations import Operations
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
from pidkeeper.service.access import Principal
from pidkeeper.service.call import Call
from pidkeeper.service.kafka.wire import allocate_producer_ids, broker_heartbeat, broker_registration
from pidkeeper.service.kafka.wire.allocate_producer_ids import AllocateRequest
from pidkeeper.service.kafka.wire.broker_heartbeat import HeartbeatRequest
from pidkeeper.service.kafka.wire.broker_registration import RegistrationRequest
from pidkeeper.service.kafka.wire.own_field import Answered, Asked
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import (
    ALLOCATE_PRODUCER_IDS,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    Versions,
)

_NONE: Final = -1
"""The epoch, or the first ID, of an answer that has none."""


class KafkaCaller(NamedTuple):
    """Who asks, from which host, and whether it has hung up."""

    principal: Principal
    has_hung_up: Callable[[], bool]
    host: str = "an unknown host"


class BrokerApi(NamedTuple):
    """One API. `read` takes a body in a version and raises WireError. `ask` raises RequestError. `grant` and `refuse`
    make the body of the answer, with a section of tagged fields; `tell` is what ours says in it. `ask_soon`: as
    `ask`, like `Operations.allocate_soon`.
    """

    name: str
    versions: Versions
    read: Callable[[Reader, int], Any]
    ask: Callable[[Operations, KafkaCaller, Any, Asked], Awaitable[Any]]
    tell: Callable[[Any], Answered]
    grant: Callable[[Any, bytes], bytes]
    refuse: Callable[[RequestError, bytes], bytes]
    ask_soon: Callable[[Operations, KafkaCaller, Any, Asked, Callable[[Any], None]], bool] | None = None


def _allocate(
    operations: Operations, caller: KafkaCaller, request: AllocateRequest, asked: Asked
) -> Awaitable[AllocateProducerIdsResponse]:
    return operations.allocate(_allocation(caller, request, asked))


def _allocate_soon(
    operations: Operations, caller: KafkaCaller, request: AllocateRequest, asked: Asked, done: Callable[[Any], None]
) -> bool:
    return operations.allocate_soon(_allocation(caller, request, asked), done)


def _allocation(
    caller: KafkaCaller, request: AllocateRequest, asked: Asked
) -> Call[None, AllocateQuery, AllocateProducerIdsRequest]:
    broker_id = _checked(request.broker_id)
    body = AllocateProducerIdsRequest(broker_id, request.broker_epoch, asked.cluster_id, asked.held)
    return Call(caller.principal, None, AllocateQuery(asked.blocks), body, caller.has_hung_up)


def _tell_allocated(answer: AllocateProducerIdsResponse) -> Answered:
    return Answered(founding_id=answer.founding_id, succession=answer.succession, more=answer.more)


def _allocated(answer: AllocateProducerIdsResponse, tags: bytes) -> bytes:
    block = answer.producer_id_start, answer.producer_id_len
    return allocate_producer_ids.write_response(answer.throttle_time_ms, answer.error_code, *block, tags)


def _not_allocated(error: RequestError, tags: bytes) -> bytes:
    return allocate_producer_ids.write_response(error.throttle_time_ms, error.code.kafka_code, _NONE, 0, tags)


def _register(
    operations: Operations, caller: KafkaCaller, request: RegistrationRequest, asked: Asked
) -> Awaitable[RegisterBrokerResponse]:
    # A new process of ours knows of no cluster yet; a broker of another system has been told which it is of.
    cluster_id = request.cluster_id if request.own is None else request.cluster_id or None
    body = RegisterBrokerRequest(str(request.incarnation_id), cluster_id, asked.kafka, asked.held, asked.store_id)
    path, query = BrokerPath(_checked(request.broker_id)), RegisterQuery(asked.metadata_version)
    return operations.register(Call(caller.principal, path, query, body, caller.has_hung_up))


def _tell_registered(answer: RegisterBrokerResponse) -> Answered:
    return Answered(
        cluster_id=answer.cluster_id,
        metadata_version=answer.metadata_version,
        founding_id=answer.founding_id,
        succession=answer.succession,
    )


def _registered(answer: RegisterBrokerResponse, tags: bytes) -> bytes:
    return broker_registration.write_response(0, ErrorCode.NONE.kafka_code, answer.broker_epoch, tags)


def _not_registered(error: RequestError, tags: bytes) -> bytes:
    return broker_registration.write_response(error.throttle_time_ms, error.code.kafka_code, _NONE, tags)


def _heartbeat(
    operations: Operations, caller: KafkaCaller, request: HeartbeatRequest, asked: Asked
) -> Awaitable[BrokerHeartbeatResponse | UnregisterBrokerResponse]:
    """One that wants to shut down is let go: it has no partitions here that others would have to take over."""
    path = BrokerPath(_checked(request.broker_id))
    if request.want_shut_down:
        end = UnregisterBrokerRequest(request.broker_epoch)
        return operations.unregister(Call(caller.principal, path, None, end, caller.has_hung_up))
    query, body = HeartbeatQuery(asked.reserve_ids), BrokerHeartbeatRequest(request.broker_epoch, asked.held)
    return operations.heartbeat(Call(caller.principal, path, query, body, caller.has_hung_up))


def _tell_heard(answer: BrokerHeartbeatResponse | UnregisterBrokerResponse) -> Answered:
    if isinstance(answer, UnregisterBrokerResponse):
        return Answered()
    return Answered(
        metadata_version=answer.metadata_version, founding_id=answer.founding_id, succession=answer.succession
    )


def _heard(answer: BrokerHeartbeatResponse | UnregisterBrokerResponse, tags: bytes) -> bytes:
    ended = isinstance(answer, UnregisterBrokerResponse)
    fenced = isinstance(answer, UnregisterBrokerResponse) or answer.fenced
    return broker_heartbeat.write_response(0, 0, tags, is_fenced=fenced, should_shut_down=ended)


def _not_heard(error: RequestError, tags: bytes) -> bytes:
    return broker_heartbeat.write_response(
        error.throttle_time_ms, error.code.kafka_code, tags, is_fenced=True, should_shut_down=False
    )


def _checked(broker_id: int) -> int:
    if broker_id < 0:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"broker id {broker_id} is below 0; nothing was changed")
    return broker_id


BROKER_APIS: Final[Mapping[int, BrokerApi]] = {
    BROKER_REGISTRATION: BrokerApi(
        "BrokerRegistration",
        broker_registration.VERSIONS,
        broker_registration.read_request,
        _register,
        _tell_registered,
        _registered,
        _not_registered,
    ),
    BROKER_HEARTBEAT: BrokerApi(
        "BrokerHeartbeat",
        broker_heartbeat.VERSIONS,
        broker_heartbeat.read_request,
        _heartbeat,
        _tell_heard,
        _heard,
        _not_heard,
    ),
    ALLOCATE_PRODUCER_IDS: BrokerApi(
        "AllocateProducerIds",
        allocate_producer_ids.VERSIONS,
        allocate_producer_ids.read_request,
        _allocate,
        _tell_allocated,
        _allocated,
        _not_allocated,
        _allocate_soon,
    ),
}
