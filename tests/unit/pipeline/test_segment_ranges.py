"""Every batch lies in exactly one range, whatever the index says and whatever is broken."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.pipeline.formats.log_segment import ByteRange, SegmentReader
from pidkeeper.pipeline.formats.segment_ranges import split
from tests.support.segment_builder import batch

BASE = 500
SIZES = [10, 300, 20, 20, 4000, 1, 1, 700, 50, 90]
PIECES = [batch(BASE + number, [b"v" * size]) for number, size in enumerate(SIZES)]
SEGMENT = b"".join(PIECES)
STARTS = [sum(map(len, PIECES[:number])) for number in range(len(PIECES))]
GOOD_INDEX = b"".join(struct.pack(">ii", number, start) for number, start in enumerate(STARTS))


def cut(data: bytes, range_bytes: int, index: bytes = b"") -> list[ByteRange]:
    parts = split(io.BytesIO(data), len(data), base_offset=BASE, index=index, range_bytes=range_bytes)
    assert [part.start for part in parts] == [0, *[part.end for part in parts[:-1]]] and parts[-1].end == len(data)
    assert parts[-1].next_offset is None
    return parts


def read(data: bytes, parts: list[ByteRange]) -> tuple[list[int], list[str]]:
    found = [
        chunk
        for part in parts
        for chunk in SegmentReader(io.BytesIO(data), len(data), base_offset=BASE, part=part).chunks()
    ]
    return [at for chunk in found for at in chunk.positions], [each.kind for chunk in found for each in chunk.problems]


@pytest.mark.parametrize("index", [b"", GOOD_INDEX, GOOD_INDEX + bytes(803)], ids=["walk", "index", "preallocated"])
@pytest.mark.parametrize("range_bytes", [1, 100, 1000, 4000, 100_000])
def test_every_batch_is_in_one_range(range_bytes: int, index: bytes) -> None:
    parts = cut(SEGMENT, range_bytes, index)
    assert read(SEGMENT, parts) == (STARTS, [])
    assert len(parts) == {1: 10, 100: 7, 1000: 3, 4000: 2, 100_000: 1}[range_bytes], parts


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 20), st.integers(-5, len(SEGMENT) + 50)), min_size=1, max_size=20))
def test_a_lying_index_loses_no_batch(entries: list[tuple[int, int]]) -> None:
    parts = cut(SEGMENT, 100, b"".join(struct.pack(">ii", *entry) for entry in entries))
    assert read(SEGMENT, parts) == (STARTS, [])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(SEGMENT) - 1), st.integers(1, 255), st.booleans())
def test_a_broken_byte_costs_the_same_batch_in_ranges_as_in_one(at: int, mask: int, indexed: bool) -> None:
    broken = SEGMENT[:at] + bytes([SEGMENT[at] ^ mask]) + SEGMENT[at + 1 :]
    parts = cut(broken, 100, GOOD_INDEX if indexed else b"")
    positions, kinds = read(broken, parts)
    assert positions == read(broken, [ByteRange(0, len(broken))])[0]
    whole = read(broken, [ByteRange(0, len(broken))])[1]
    assert bool(kinds) == bool(whole)


def test_the_segments_of_an_unknown_base_offset_are_split_without_the_index() -> None:
    parts = split(io.BytesIO(SEGMENT), len(SEGMENT), index=GOOD_INDEX, range_bytes=1000)
    assert {part.start for part in parts} <= set(STARTS)
    assert len(parts) == 3


def test_an_index_that_points_into_a_record_is_not_believed() -> None:
    inner, other = batch(BASE + 1, [b"inside"]), batch(BASE + 3000, [b"another offset"])
    damaged = inner[:-1] + b"?"
    outer = batch(BASE, [damaged, other])
    data = outer + batch(BASE + 2)
    index = struct.pack(">iiii", 1, data.index(damaged), 1, data.index(other)) + struct.pack(">ii", 2, len(outer))
    assert [part.start for part in cut(data, 50, index)] == [0, len(outer)]
    assert read(data, cut(data, 50, index)) == ([0, len(outer)], [])


def test_a_torn_end_is_in_the_last_range() -> None:
    torn = SEGMENT[:-5]
    parts = cut(torn, 100)
    assert read(torn, parts) == (STARTS[:-1], ["torn"])
