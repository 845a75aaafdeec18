"""The registration of a broker at Kafka's controllers, which give blocks to nobody else. The broker is none."""

from __future__ import annotations

import io
import socket
import uuid
from typing import Final

from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest, Feature, Listener
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64, u16

from bench.peers.nodes import HOST

ANSWER_SECONDS: Final = 10.0
FEATURES: Final = {
    "metadata.version": 7,
    "kraft.version": 0,
    "transaction.version": 0,
    "group.version": 0,
    "eligible.leader.replicas.version": 0,
    "share.version": 0,
    "streams.version": 0,
}
"""The lowest levels that exist. Kafka's controllers take no broker that lacks a feature of its cluster."""

_HIGHEST_LEVEL: Final = 1000
_API: Final = 62
_VERSION: Final = 4


def register(port: int, broker_id: int, cluster_id: str) -> int:
    """The epoch of the broker, for ever: it sends no heartbeats, so it stays fenced, which blocks do not ask about.

    Raises OSError, and RuntimeError for a refusal.
    """
    listener = Listener(name="PLAINTEXT", host=HOST, port=u16(1), security_protocol=i16(0))
    request = BrokerRegistrationRequest(
        broker_id=BrokerId(broker_id),
        cluster_id=cluster_id,
        incarnation_id=uuid.uuid4(),
        listeners=(listener,),
        features=tuple(
            Feature(name=name, min_supported_version=i16(level), max_supported_version=i16(_HIGHEST_LEVEL))
            for name, level in FEATURES.items()
        ),
        rack=None,
        is_migrating_zk_broker=False,
        log_dirs=(uuid.uuid4(),),
        previous_broker_epoch=i64(-1),
    )
    answer = _read(_exchange(port, _framed(request)))
    if answer.error_code:
        raise RuntimeError(f"Kafka refused to register broker {broker_id}: {answer.error_code!r}")
    return answer.broker_epoch


def _framed(request: BrokerRegistrationRequest) -> bytes:
    header = RequestHeader(
        request_api_key=i16(_API), request_api_version=i16(_VERSION), correlation_id=i32(1), client_id="bench"
    )
    buffer = io.BytesIO()
    entity_writer(RequestHeader)(buffer, header)
    entity_writer(BrokerRegistrationRequest)(buffer, request)
    return len(buffer.getvalue()).to_bytes(4, "big") + buffer.getvalue()


def _exchange(port: int, frame: bytes) -> bytes:
    with socket.create_connection((HOST, port), ANSWER_SECONDS) as one, one.makefile("rb") as stream:
        one.sendall(frame)
        return stream.read(int.from_bytes(stream.read(4), "big"))


def _read(frame: bytes) -> BrokerRegistrationResponse:
    _, size = entity_reader(ResponseHeader)(frame, 0)
    return entity_reader(BrokerRegistrationResponse)(frame, size)[0]
