"""The audit's own decoder of segments' indices, on what agents write and on what nobody should have written."""

from __future__ import annotations

from typing import Any

import google_crc32c
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.data.segment_building import SegmentBuilder
from pidkeeper.pipeline.formats.sparse_index import NO_TIME, decode_sparse_index
from pidkeeper.protocol.log_messages import AbortedTransaction
from tests.support.segment_builder import START_MS, batch

STORED = [0, 5, 8, 200, [5], [0], [NO_TIME], [20], [5], [9]]


def framed(stored: Any) -> bytes:
    covered = msgspec.msgpack.encode(stored)
    crc: int = google_crc32c.value(covered)
    return crc.to_bytes(4, "big") + covered


def changed(**columns: Any) -> bytes:
    places = {"version": 0, "end_offset": 2, "offsets": 4, "positions": 5, "first_offsets": 8}
    stored = list(STORED)
    for name, value in columns.items():
        stored[places[name]] = value
    return framed(stored)


def test_an_index_of_an_agent_is_read() -> None:
    builder = SegmentBuilder(5)
    for offset in (5, 6, 7):
        builder.add(batch(offset, [b"v" * 5000], max_timestamp=START_MS + offset))
    built = builder.finish([AbortedTransaction(20, 3, 6), AbortedTransaction(21, 8, 9)])
    index = decode_sparse_index(built.sparse)
    assert (index.base_offset, index.end_offset, index.size) == (5, 8, built.size)
    third = built.size // 3
    assert (index.offsets, index.positions) == ([5, 6, 7], [0, third, 2 * third])
    assert index.latest == [NO_TIME, START_MS + 5, START_MS + 6]
    assert (index.producer_ids, index.first_offsets, index.marker_offsets) == ([20], [3], [6])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"abc", "3 bytes are no index"),
        (b"\0\0\0\0" + framed(STORED)[4:], "the CRC-32C of its bytes is"),
        (framed({"version": 0}), "it makes no sense"),
        (changed(version=1), "it makes no sense"),
        (changed(end_offset=1 << 63), "it makes no sense"),
        (changed(offsets=[], positions=[]), "0 offsets, 0 positions, 1 times"),
        (changed(positions=[0, 100]), "1 offsets, 2 positions, 1 times"),
        (changed(first_offsets=[]), "columns of aborted transactions have different lengths"),
    ],
)
def test_what_is_none_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_sparse_index(data)


@given(st.binary(max_size=80), st.booleans())
def test_nothing_else_is_raised(data: bytes, right_crc: bool) -> None:
    crc: int = google_crc32c.value(data)
    with pytest.raises(ValueError, match=r"no index|CRC-32C|no sense"):
        decode_sparse_index((crc.to_bytes(4, "big") if right_crc else b"") + data)
