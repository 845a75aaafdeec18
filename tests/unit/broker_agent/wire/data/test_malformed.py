"""What is no lawful request is refused with WireError and nothing else, before memory is taken for it."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES, RecordsReader
from pidkeeper.broker_agent.kafka.wire.data.produce import MAX_PARTITIONS
from pidkeeper.service.kafka.wire.primitives import MAX_FRAME_BYTES, WireError
from tests.support.data_codecs import read
from tests.support.data_frames import valid_frames

FRAMES: Final = [pytest.param(frame, id=f"{api}-{version}") for (api, version), frame in valid_frames().items()]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_truncation_and_any_extra_byte_is_refused(frame: bytes) -> None:
    read(frame)
    for size in range(len(frame)):
        with pytest.raises(WireError):
            read(frame[:size])
    with pytest.raises(WireError, match="left over"):
        read(frame + b"\x00")


@settings(max_examples=300)
@given(
    st.sampled_from([param.values[0] for param in FRAMES]),
    st.lists(st.tuples(st.integers(8, 120), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_a_mutated_frame_is_read_or_refused_and_nothing_else(frame: bytes, changes: list[tuple[int, int]]) -> None:
    mutated = bytearray(frame)
    for position, value in changes:
        mutated[position % len(mutated)] = value
    try:
        read(bytes(mutated))
    except WireError:
        return


def head(key: int, version: int, *, flexible: bool = False) -> bytes:
    return struct.pack(">hhih", key, version, 0, -1) + b"\x00" * flexible


HUGE: Final = struct.pack(">i", 2**31 - 1)
HUGE_COMPACT: Final = b"\xff\xff\xff\xff\x0f"
PRODUCE_3: Final = head(0, 3) + struct.pack(">hhi", -1, -1, 0)
PRODUCE_9: Final = head(0, 9, flexible=True) + b"\x00" + struct.pack(">hi", -1, 0)
FETCH_7: Final = head(1, 7) + struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
FETCH_12: Final = head(1, 12, flexible=True) + struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1)
ONE: Final = struct.pack(">ih1s", 1, 1, b"t")
ONE_COMPACT: Final = b"\x02\x02t"


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (PRODUCE_3 + HUGE, "array of 2147483647"),
        (PRODUCE_3 + ONE + HUGE, "array of 2147483647"),
        (PRODUCE_3 + ONE + struct.pack(">ii", 1, 0) + HUGE, "2147483647 bytes wanted"),
        (PRODUCE_3 + ONE + struct.pack(">iii", 1, 0, -2), "records of -2 bytes"),
        (PRODUCE_3 + struct.pack(">i", -1), "must not be null"),
        (PRODUCE_9 + HUGE_COMPACT, "array of 4294967294"),
        (PRODUCE_9 + ONE_COMPACT + HUGE_COMPACT, "array of 4294967294"),
        (PRODUCE_9 + ONE_COMPACT + b"\x02" + bytes(4) + HUGE_COMPACT, "4294967294 bytes wanted"),
        (FETCH_7 + HUGE, "array of 2147483647"),
        (FETCH_7 + ONE + HUGE, "array of 2147483647"),
        (FETCH_7 + bytes(4) + ONE + HUGE, "array of 2147483647"),
        (FETCH_12 + HUGE_COMPACT, "array of 4294967294"),
        (FETCH_12 + b"\x01" + ONE_COMPACT + HUGE_COMPACT, "array of 4294967294"),
        (head(1, 4) + struct.pack(">iiiib", -1, 0, 0, 0, 2), "isolation level 2"),
        (head(2, 2) + struct.pack(">ib", -1, -1), "isolation level -1"),
        (head(2, 1) + struct.pack(">i", -1) + ONE + HUGE, "array of 2147483647"),
        (head(2, 6, flexible=True) + struct.pack(">ib", -1, 0) + HUGE_COMPACT, "array of 4294967294"),
        (head(19, 2) + ONE + struct.pack(">ih", 1, 1) + HUGE + bytes(20), "array of 2147483647"),
        (head(19, 2) + ONE + struct.pack(">ihii", 1, 1, 1, 0) + HUGE, "array of 2147483647"),
        (head(19, 2) + ONE + struct.pack(">ihi", 1, 1, 0) + HUGE + bytes(20), "array of 2147483647"),
        (head(20, 1) + HUGE, "array of 2147483647"),
        (head(20, 6, flexible=True) + HUGE_COMPACT, "array of 4294967294"),
        (head(20, 6, flexible=True) + b"\x02\x00" + bytes(17) + bytes(5), "by name or by id"),
        (head(20, 6, flexible=True) + b"\x02\x02t" + b"\x01" * 16 + b"\x00" + bytes(5), "by name or by id"),
        (head(21, 0) + ONE + HUGE, "array of 2147483647"),
        (head(32, 1) + struct.pack(">ibh1s", 1, 2, 1, b"t") + HUGE, "array of 2147483647"),
        (head(0, 13), "version 13 of API key 0"),
        (head(1, 13), "version 13 of API key 1"),
        (head(1, 3), "version 3 of API key 1"),
    ],
)
def test_malformed(frame: bytes, message: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=message):
            read(frame)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def many_partitions(topics: list[int]) -> bytes:
    """A Produce with so many empty partitions of each topic."""
    body = b"".join(struct.pack(">h1si", 1, b"t", count) + bytes(8 * count) for count in topics)
    return PRODUCE_3 + struct.pack(">i", len(topics)) + body


def test_a_request_has_so_many_partitions_at_most_over_all_its_topics() -> None:
    most = read(many_partitions([MAX_PARTITIONS - 5, 5]))[1]
    assert sum(len(topic.partitions) for topic in most.topics) == MAX_PARTITIONS
    with pytest.raises(WireError, match="6 partitions of topic 't', and at most 4096"):
        read(many_partitions([MAX_PARTITIONS - 5, 6]))


def test_a_frame_of_records_may_be_larger_than_others() -> None:
    records = bytes(MAX_PRODUCE_FRAME_BYTES - len(PRODUCE_3) - len(ONE) - 12)
    frame = PRODUCE_3 + ONE + struct.pack(">iii", 1, 0, len(records)) + records
    assert len(frame) == MAX_PRODUCE_FRAME_BYTES > MAX_FRAME_BYTES
    tracemalloc.start()
    try:
        (topic,) = read(frame)[1].topics
        assert tracemalloc.get_traced_memory()[1] < len(frame) + 100_000, "the records were copied twice"
    finally:
        tracemalloc.stop()
    assert len(topic.partitions[0].records) == len(records)
    with pytest.raises(WireError, match="larger than"):
        RecordsReader(frame + b"\x00")
