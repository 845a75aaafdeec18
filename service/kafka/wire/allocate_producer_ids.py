"""AllocateProducerIds, key 67, version 0 (KIP-730, "AllocateProducerIds RPC")."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pidkeeper.service.kafka.wire.own_field import TAG
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 0, first_flexible=0)

_REQUEST: Final = struct.Struct(">iq")
_RESPONSE: Final = struct.Struct(">ihqi")


class AllocateRequest(NamedTuple):
    """`own`: the content of the tagged field of ours, if it came along."""

    broker_id: int
    broker_epoch: int
    own: bytes | None = None


class AllocateResponse(NamedTuple):
    """A block of IDs, or an error without one. `throttle_time_ms`: how long to wait before the next request."""

    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
    own: bytes | None = None


def read_request(reader: Reader, _: int) -> AllocateRequest:
    """Read the whole body. Raises WireError."""
    request = AllocateRequest(reader.int32(), reader.int64(), reader.tagged(TAG))
    reader.finish()
    return request


def write_request(broker_id: int, broker_epoch: int, tags: bytes) -> bytes:
    """The body, with a section of tagged fields."""
    return _REQUEST.pack(broker_id, broker_epoch) + tags


def read_response(reader: Reader) -> AllocateResponse:
    """Read the whole body. Raises WireError."""
    response = AllocateResponse(reader.int32(), reader.int16(), reader.int64(), reader.int32(), reader.tagged(TAG))
    reader.finish()
    return response


def write_response(throttle_time_ms: int, error_code: int, start: int, length: int, tags: bytes) -> bytes:
    """The body, with a section of tagged fields."""
    return _RESPONSE.pack(throttle_time_ms, error_code, start, length) + tags
