"""BrokerHeartbeat, key 63, versions 0 to 2 (KIP-631). What KIP-858 and KIP-1066 added are tags, skipped here."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pidkeeper.service.kafka.wire.own_field import TAG
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 2, first_flexible=0)

_REQUEST: Final = struct.Struct(">iqq??")
_RESPONSE: Final = struct.Struct(">ih???")

_NO_METADATA: Final = -1
"""The metadata offset of a broker that follows no metadata log."""


class HeartbeatRequest(NamedTuple):
    """What matters here: which broker lives, and whether it wants to end. `own`: as in AllocateRequest."""

    broker_id: int
    broker_epoch: int
    want_shut_down: bool
    own: bytes | None = None


class HeartbeatResponse(NamedTuple):
    """Whether the broker is fenced, and whether it may end."""

    throttle_time_ms: int
    error_code: int
    is_fenced: bool
    should_shut_down: bool
    own: bytes | None = None


def read_request(reader: Reader, _: int) -> HeartbeatRequest:
    """Read the whole body. Raises WireError."""
    broker_id, broker_epoch, _metadata_offset = reader.int32(), reader.int64(), reader.int64()
    _want_fence, want_shut_down = reader.boolean(), reader.boolean()
    request = HeartbeatRequest(broker_id, broker_epoch, want_shut_down, reader.tagged(TAG))
    reader.finish()
    return request


def write_request(broker_id: int, broker_epoch: int, tags: bytes, *, want_shut_down: bool = False) -> bytes:
    """The body, with a section of tagged fields."""
    return _REQUEST.pack(broker_id, broker_epoch, _NO_METADATA, False, want_shut_down) + tags


def read_response(reader: Reader) -> HeartbeatResponse:
    """Read the whole body. Raises WireError."""
    throttle_time_ms, error_code, _is_caught_up = reader.int32(), reader.int16(), reader.boolean()
    is_fenced, should_shut_down = reader.boolean(), reader.boolean()
    response = HeartbeatResponse(throttle_time_ms, error_code, is_fenced, should_shut_down, reader.tagged(TAG))
    reader.finish()
    return response


def write_response(
    throttle_time_ms: int, error_code: int, tags: bytes, *, is_fenced: bool, should_shut_down: bool
) -> bytes:
    """The body, with a section of tagged fields. There is no metadata here that a broker could be behind of."""
    caught_up = error_code == 0
    return _RESPONSE.pack(throttle_time_ms, error_code, caught_up, is_fenced, should_shut_down) + tags
