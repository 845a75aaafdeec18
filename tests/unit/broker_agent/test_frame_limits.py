from __future__ import annotations

import struct

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA, Apis, GroupCall
from pidkeeper.broker_agent.kafka.frame_limits import LONGER_FRAMES, check_length
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES
from pidkeeper.broker_agent.kafka.wire.groups.frames import (
    MAX_JOIN_FRAME_BYTES,
    MAX_OFFSETS_FRAME_BYTES,
    MAX_SYNC_FRAME_BYTES,
)
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError
from pidkeeper.service.kafka.wire.versions import (
    FETCH,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    OFFSET_COMMIT,
    PRODUCE,
    SYNC_GROUP,
)


def head(length: int, key: int | None = None) -> bytes:
    return struct.pack(">I", length) + (b"" if key is None else struct.pack(">h", key))


@pytest.mark.parametrize(
    ("longer", "key", "limit"),
    [
        ({}, PRODUCE, MAX_FRAME_BYTES),
        ({}, None, MAX_FRAME_BYTES),
        (LONGER_FRAMES, PRODUCE, MAX_PRODUCE_FRAME_BYTES),
        (LONGER_FRAMES, None, MAX_PRODUCE_FRAME_BYTES),
        (LONGER_FRAMES, FETCH, MAX_FRAME_BYTES),
        (LONGER_FRAMES, JOIN_GROUP, MAX_JOIN_FRAME_BYTES),
        (LONGER_FRAMES, SYNC_GROUP, MAX_SYNC_FRAME_BYTES),
        (LONGER_FRAMES, OFFSET_COMMIT, MAX_OFFSETS_FRAME_BYTES),
        (LONGER_FRAMES, HEARTBEAT, MAX_FRAME_BYTES),
        (LONGER_FRAMES, INIT_PRODUCER_ID, MAX_FRAME_BYTES),
        (LONGER_FRAMES, -1, MAX_FRAME_BYTES),
    ],
)
def test_a_frame_is_as_long_as_its_api_may_be(longer: dict[int, int], key: int | None, limit: int) -> None:
    apis = Apis(WITH_DATA.dispatch, longer)
    responder = KafkaResponder(BlockReserve(), Directory(Node(1, "h", 1)), lambda: None, apis=apis)
    for good in (limit, 0):
        check_length(head(good, key), longer)
    assert responder.respond(head(limit, key)) == (b"", 0)
    for length in (limit + 1, 2**31 - 1, 2**32 - 1):
        with pytest.raises(WireError, match=f"a frame of {length} bytes is larger than {limit}"):
            responder.respond(head(length, key))


def test_a_long_subscription_is_read() -> None:
    responder = KafkaResponder(BlockReserve(), Directory(Node(1, "h", 1)), lambda: None, apis=WITH_DATA)
    metadata = bytes(3 * MAX_FRAME_BYTES)
    texts = [struct.pack(f">h{len(one)}s", len(one), one) for one in (b"c", b"g", b"", b"consumer", b"range")]
    body = texts[1] + bytes(4) + texts[2] + texts[3] + struct.pack(">i", 1) + texts[4]
    frame = struct.pack(">hhi", JOIN_GROUP, 0, 5) + texts[0] + body + struct.pack(">i", len(metadata)) + metadata
    call, used = responder.respond(struct.pack(">i", len(frame)) + frame)
    assert isinstance(call, GroupCall) and used == len(frame) + 4
    assert call.request.protocols[0].metadata == metadata


def test_half_a_key_tells_nothing() -> None:
    check_length(head(MAX_PRODUCE_FRAME_BYTES, INIT_PRODUCER_ID)[:5], LONGER_FRAMES)
