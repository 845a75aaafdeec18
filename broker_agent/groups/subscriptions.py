"""Which topics a consumer is subscribed to, as it tells the group (KIP-54: `ConsumerProtocolSubscription`). Pure."""

from __future__ import annotations

from pidkeeper.broker_agent.kafka.wire.groups.frames import MAX_JOIN_FRAME_BYTES
from pidkeeper.service.kafka.wire.primitives import Reader, WireError


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a member's metadata of protocol type `consumer`; None if it cannot be read.

    All versions begin alike; what later ones have behind the topics is left unread.
    """
    reader = Reader(metadata, MAX_JOIN_FRAME_BYTES)
    try:
        reader.int16()
        count = reader.array_length(flexible=False, min_element_bytes=2)
        return frozenset(reader.string(flexible=False) for _ in range(count))
    except WireError:
        return None
