"""InitProducerId, key 22, versions 0 to 5 (KIP-98, KIP-360)."""

from __future__ import annotations

import struct
from typing import Final

from pidkeeper.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 5, first_flexible=2)
"""Version 6 is left out: it means two-phase commit (KIP-939)."""

CLASSIC_FRAME: Final = struct.Struct(">i4sihqh")
"""Length, correlation id, throttle time in ms, error code, producer id, producer epoch."""

FLEXIBLE_FRAME: Final = struct.Struct(">i4sBihqhB")
"""The same with the empty tag sections of the header and of the body."""


def read_init_producer_id_request(reader: Reader, version: int) -> InitProducerIdRequest:
    """Read the whole body; what version 3 added is -1 before it. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    request = InitProducerIdRequest(
        reader.nullable_string(flexible=flexible),
        reader.int32(),
        reader.int64() if version >= 3 else -1,
        reader.int16() if version >= 3 else -1,
    )
    if flexible:
        reader.skip_tags()
    reader.finish()
    return request


def init_producer_id_frame(version: int, correlation_id: bytes, response: InitProducerIdResponse) -> bytes:
    """The whole response frame, length field included. `correlation_id` is the four bytes of the request."""
    answer = (response.throttle_time_ms, response.error_code, response.producer_id, response.producer_epoch)
    if VERSIONS.is_flexible(version):
        return FLEXIBLE_FRAME.pack(FLEXIBLE_FRAME.size - 4, correlation_id, 0, *answer, 0)
    return CLASSIC_FRAME.pack(CLASSIC_FRAME.size - 4, correlation_id, *answer)
