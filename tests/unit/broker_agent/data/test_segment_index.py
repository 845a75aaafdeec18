"""Segments are put together from batches, and their indices lead to offsets and times."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.data.segment_building import (
    BrokenSegmentError,
    BuiltSegment,
    SegmentBuilder,
    following,
    taken_in,
    verified,
)
from pidkeeper.broker_agent.data.segment_index import IndexDamagedError, decode_index
from pidkeeper.broker_agent.data.store.port import MAX_NAME_BYTES, MAX_SEGMENT_BYTES, check_name
from pidkeeper.protocol.ids import MAX_BROKER_ID
from pidkeeper.protocol.log_messages import AbortedTransaction
from pidkeeper.protocol.logs import MAX_INT64, MAX_PARTITIONS, ObjectId
from pidkeeper.protocol.segment_messages import StoredSegment
from pidkeeper.protocol.segments import SegmentName, index_path
from tests.support.log_leader import FOUNDING
from tests.support.segment_builder import START_MS, batch, marker
from tests.support.split_batches import split_batches

Sizes = list[tuple[int, int, int]]
"""Of each batch its records, the bytes of one, and its time."""

SIZES = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([1, 50, 900, 3000, 9000]), st.integers(0, 30)), min_size=1, max_size=40
)


def built(sizes: Sizes, base_offset: int = 7, pieces: int = 1) -> BuiltSegment:
    """A segment of such batches, given to the builder in pieces."""
    builder = SegmentBuilder(base_offset)
    offset, made = base_offset, []
    for count, size, time in sizes:
        made.append(batch(offset, (b"x" * size,) * count, base_timestamp=START_MS + time))
        offset += count
    for start in range(0, len(made), pieces):
        builder.add(b"".join(made[start : start + pieces]))
    return builder.finish([])


@given(SIZES, st.sampled_from([1, 3, 100]), st.integers(0, 20_000))
def test_every_offset_is_found(sizes: Sizes, pieces: int, max_bytes: int) -> None:
    segment = built(sizes, pieces=pieces)
    data = b"".join(segment.pieces)
    assert len(data) == segment.size
    index = decode_index(segment.sparse)
    assert (index.base_offset, index.end_offset, index.size) == (7, segment.end_offset, segment.size)
    headers = split_batches(data)
    ends = {header.position for header in headers} | {segment.size}
    for header in headers:
        for offset in (header.base_offset, header.last_offset):
            span = index.span(offset, max_bytes)
            assert span.start in ends and span.end in ends
            assert span.start <= header.position and header.end <= span.end, "the batch is in it"
            assert header.position - span.start < 4096 or header.position == span.start
            assert span.size <= max(max_bytes, 4096, header.size)


@given(SIZES, st.integers(-1, 31))
def test_every_time_is_found(sizes: Sizes, time: int) -> None:
    segment = built(sizes)
    data = b"".join(segment.pieces)
    index = decode_index(segment.sparse)
    wanted = START_MS + time
    first = next((header for header in split_batches(data) if header.max_timestamp >= wanted), None)
    assert segment.max_timestamp == START_MS + max(one[2] for one in sizes)
    if first is not None:
        span = next(iter(index.spans_at(wanted, 0)))
        assert span.start <= first.position and first.end <= span.end
        spans = list(index.spans_at(wanted, first.base_offset))
        assert spans[0].start <= first.position
        assert spans[-1].end == segment.size and all(one.end == two.start for one, two in pairwise(spans))


def test_markers_have_no_time() -> None:
    builder = SegmentBuilder(3)
    builder.add(marker(3, (9, 0), commit=True))
    assert builder.finish([]).max_timestamp == -1
    builder.add(batch(4, base_timestamp=5) + marker(5, (9, 0), commit=False))
    assert builder.finish([]).max_timestamp == 5


def test_what_does_not_follow_is_refused() -> None:
    for piece in (batch(4), batch(3) + batch(3), batch(3)[:-1], b"\0" * 70):
        with pytest.raises(BrokenSegmentError):
            SegmentBuilder(3).add(piece)
    broken = bytearray(batch(3))
    broken[-1] ^= 1
    assert len(list(following(bytes(broken), 3))) == 1
    with pytest.raises(BrokenSegmentError, match="CRC"):
        list(verified(bytes(broken), 3))


def test_aborted_transactions_of_a_segment() -> None:
    builder = SegmentBuilder(10)
    for offset in range(10, 20):
        builder.add(batch(offset))
    before, into, within, across, out, behind = (
        AbortedTransaction(number, *offsets)
        for number, offsets in enumerate(((1, 9), (2, 10), (11, 13), (5, 25), (19, 20), (20, 22)))
    )
    index = decode_index(builder.finish([before, into, within, across, out, behind]).sparse)
    assert index.aborted == [into, within, out, across]
    assert index.aborted_between(10, 10) == [into, across]
    assert index.aborted_between(11, 18) == [within, across]
    assert index.aborted_between(13, 13) == [within, across]
    assert index.aborted_between(14, 19) == [out, across]


def test_a_damaged_index_is_none() -> None:
    sparse = built([(2, 3000, 5), (1, 50, 1), (1, 9000, 3)]).sparse
    for at in range(len(sparse)):
        for changed in (sparse[:at], sparse[:at] + bytes([sparse[at] ^ 1]) + sparse[at + 1 :]):
            with pytest.raises(IndexDamagedError):
                decode_index(changed)


@given(st.lists(st.integers(1, 100), max_size=8), st.integers(1, 100), st.integers(1, 300))
def test_small_segments_before_it_are_taken_in(sizes: list[int], size: int, limit: int) -> None:
    segments = [StoredSegment(number, number + 1, number, one, 9, 0) for number, one in enumerate(sizes)]
    found = taken_in(segments, len(sizes), size, limit)
    assert found == segments[len(segments) - len(found) :]
    assert not found or size + sum(one.size for one in found) <= limit
    for number, one in enumerate(found):
        assert one.size <= 2 * (size + sum(after.size for after in found[number + 1 :]))
    assert taken_in(segments, len(sizes) + 1, size, limit) == [], "they do not reach to it"


def test_each_byte_is_written_again_a_logarithm_of_times() -> None:
    segments: list[StoredSegment] = []
    written = 0
    for end in range(1, 1025):
        taken = taken_in(segments[-8:], end - 1, 1, 1 << 20)
        del segments[len(segments) - len(taken) :]
        size = 1 + sum(one.size for one in taken)
        segments.append(StoredSegment(end - size, end, 0, size, 9, 0))
        written += size
    assert written <= 1024 * 12
    assert len(segments) <= 11


def test_the_longest_name_is_one_of_an_object() -> None:
    name = SegmentName("t" * 249, MAX_PARTITIONS - 1, MAX_INT64)
    path = name.path(ObjectId(MAX_BROKER_ID, MAX_INT64, MAX_INT64), FOUNDING)
    for one in (path, index_path(path)):
        check_name(one)
        assert len(one) < MAX_NAME_BYTES
        assert max(map(len, one.split("/"))) == 254 <= MAX_SEGMENT_BYTES
