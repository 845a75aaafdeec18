"""How long the frame of a request may be: of which API it is tells its head."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES
from pidkeeper.broker_agent.kafka.wire.groups.frames import (
    MAX_JOIN_FRAME_BYTES,
    MAX_OFFSETS_FRAME_BYTES,
    MAX_SYNC_FRAME_BYTES,
)
from pidkeeper.service.kafka.application import HEAD_BYTES
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError
from pidkeeper.service.kafka.wire.versions import (
    JOIN_GROUP,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)

LONGER_FRAMES: Final[Mapping[int, int]] = MappingProxyType(
    {
        PRODUCE: MAX_PRODUCE_FRAME_BYTES,
        OFFSET_COMMIT: MAX_OFFSETS_FRAME_BYTES,
        OFFSET_FETCH: MAX_OFFSETS_FRAME_BYTES,
        TXN_OFFSET_COMMIT: MAX_OFFSETS_FRAME_BYTES,
        JOIN_GROUP: MAX_JOIN_FRAME_BYTES,
        SYNC_GROUP: MAX_SYNC_FRAME_BYTES,
    }
)
"""What may be longer than MAX_FRAME_BYTES where partitions are kept, in bytes after the length field."""


def check_length(head: bytes, longer: Mapping[int, int]) -> None:
    """Raise WireError if the frame that begins with `head`, of four bytes at least, is longer than its API may be.
    Before the API key is there, any of `longer` may come."""
    length = int.from_bytes(head[:4], "big")
    if len(head) < HEAD_BYTES:
        limit = max(longer.values(), default=MAX_FRAME_BYTES)
    else:
        limit = longer.get(int.from_bytes(head[4:HEAD_BYTES], "big"), MAX_FRAME_BYTES)
    if length > limit:
        raise WireError(f"a frame of {length} bytes is larger than {limit}")
