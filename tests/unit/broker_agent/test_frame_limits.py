from __future__ import annotations

import struct

import pytest

from pidkeeper.broker_agent.coordinator.directory import Directory, Node
from pidkeeper.broker_agent.ids.reserve import BlockReserve
from pidkeeper.broker_agent.kafka.dispatch import WITH_DATA, Apis
from pidkeeper.broker_agent.kafka.frame_limits import FRAMES_WITH_RECORDS, check_length
from pidkeeper.broker_agent.kafka.responder import KafkaResponder
from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError
from pidkeeper.service.kafka.wire.versions import FETCH, INIT_PRODUCER_ID, PRODUCE


def head(length: int, key: int | None = None) -> bytes:
    return struct.pack(">I", length) + (b"" if key is None else struct.pack(">h", key))


@pytest.mark.parametrize(
    ("longer", "key", "limit"),
    [
        ({}, PRODUCE, MAX_FRAME_BYTES),
        ({}, None, MAX_FRAME_BYTES),
        (FRAMES_WITH_RECORDS, PRODUCE, MAX_PRODUCE_FRAME_BYTES),
        (FRAMES_WITH_RECORDS, None, MAX_PRODUCE_FRAME_BYTES),
        (FRAMES_WITH_RECORDS, FETCH, MAX_FRAME_BYTES),
        (FRAMES_WITH_RECORDS, INIT_PRODUCER_ID, MAX_FRAME_BYTES),
        (FRAMES_WITH_RECORDS, -1, MAX_FRAME_BYTES),
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


def test_half_a_key_tells_nothing() -> None:
    check_length(head(MAX_PRODUCE_FRAME_BYTES, INIT_PRODUCER_ID)[:5], FRAMES_WITH_RECORDS)
