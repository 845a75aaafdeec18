"""BrokerRegistration, key 62, versions 0 to 4 (KIP-631; KIP-866, KIP-858 and KIP-966 for what came later)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from pidkeeper.service.kafka.wire.own_field import TAG
from pidkeeper.service.kafka.wire.primitives import Reader, array, int32, int64, string
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 4, first_flexible=0)

_MIGRATING_SINCE: Final = 1
_LOG_DIRECTORIES_SINCE: Final = 2
_PREVIOUS_EPOCH_SINCE: Final = 3
_NO_EPOCH: Final = -1

_LISTENER_BYTES: Final = 7
"""Of the shortest listener: two empty strings, port, security protocol, and no tagged field."""

_FEATURE_BYTES: Final = 6
"""Likewise: an empty string, two versions, and no tagged field."""

_UUID_BYTES: Final = 16

_RESPONSE: Final = struct.Struct(">ihq")


class RegistrationRequest(NamedTuple):
    """What matters here. `incarnation_id`: of the process. `own`: as in AllocateRequest."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    own: bytes | None = None


class RegistrationResponse(NamedTuple):
    """`broker_epoch`: -1 beside an error."""

    throttle_time_ms: int
    error_code: int
    broker_epoch: int
    own: bytes | None = None


def read_request(reader: Reader, version: int) -> RegistrationRequest:
    """Read the whole body. Raises WireError.

    Listeners and features are of no use here: whoever coordinates transactions here is no broker of another system.
    """
    broker_id, cluster_id, incarnation_id = reader.int32(), reader.string(flexible=True), reader.uuid()
    for _ in range(reader.array_length(flexible=True, min_element_bytes=_LISTENER_BYTES)):
        reader.string(flexible=True)
        reader.string(flexible=True)
        reader.skip(4)
        reader.skip_tags()
    for _ in range(reader.array_length(flexible=True, min_element_bytes=_FEATURE_BYTES)):
        reader.string(flexible=True)
        reader.skip(4)
        reader.skip_tags()
    reader.nullable_string(flexible=True)
    if version >= _MIGRATING_SINCE:
        reader.boolean()
    if version >= _LOG_DIRECTORIES_SINCE:
        reader.skip(_UUID_BYTES * reader.array_length(flexible=True, min_element_bytes=_UUID_BYTES))
    if version >= _PREVIOUS_EPOCH_SINCE:
        reader.int64()
    request = RegistrationRequest(broker_id, cluster_id, incarnation_id, reader.tagged(TAG))
    reader.finish()
    return request


def write_request(broker_id: int, cluster_id: str, incarnation_id: UUID, tags: bytes) -> bytes:
    """The body in the highest version, without listeners, features and log directories, but with tagged fields."""
    none = array([], flexible=True)
    return (
        int32(broker_id)
        + string(cluster_id, flexible=True)
        + incarnation_id.bytes
        + none
        + none
        + string(None, flexible=True)
        + b"\x00"
        + none
        + int64(_NO_EPOCH)
        + tags
    )


def read_response(reader: Reader) -> RegistrationResponse:
    """Read the whole body. Raises WireError."""
    response = RegistrationResponse(reader.int32(), reader.int16(), reader.int64(), reader.tagged(TAG))
    reader.finish()
    return response


def write_response(throttle_time_ms: int, error_code: int, broker_epoch: int, tags: bytes) -> bytes:
    """The body, with a section of tagged fields."""
    return _RESPONSE.pack(throttle_time_ms, error_code, broker_epoch) + tags
