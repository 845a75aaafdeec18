"""What the builder encodes comes back field by field, as objects and as columns."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.pipeline.formats.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    FIELDS,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    Chunk,
    last_sequence,
    read_marker,
)
from tests.support.segment_builder import batch, marker, record

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
SPECS = st.fixed_dictionaries(
    {
        "payload": st.binary(max_size=200),
        "record_count": INT32,
        "last_offset_delta": st.integers(0, 1000),
        "producer": st.tuples(INT64, INT16, INT32),
        "transactional": st.booleans(),
        "compression": st.integers(0, 7),
        "log_append_time": st.booleans(),
        "delete_horizon": st.booleans(),
        "leader_epoch": INT32,
        "base_timestamp": INT64,
        "max_timestamp": INT64,
    }
)


def read(data: bytes, base_offset: int | None = 0) -> Chunk:
    (chunk,) = SegmentReader(io.BytesIO(data), len(data), base_offset=base_offset).chunks()
    return chunk


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1000), SPECS), min_size=1, max_size=8))
def test_batches_come_back_field_by_field(spaced: list[tuple[int, dict[str, Any]]]) -> None:
    data, offset, offsets, positions = b"", 0, [], []
    for gap, spec in spaced:
        offsets.append(offset + gap)
        positions.append(len(data))
        data += batch(offsets[-1], **spec)
        offset = offsets[-1] + spec["last_offset_delta"] + 1
    chunk = read(data)
    assert not chunk.problems and not chunk.markers
    for header, at, base_offset, (_, spec) in zip(chunk.batches(), positions, offsets, spaced, strict=True):
        assert (header.position, header.base_offset, header.magic) == (at, base_offset, 2)
        assert header.batch_length == 49 + len(spec["payload"])
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == spec["producer"]
        assert header.attributes & COMPRESSION_MASK == spec["compression"]
        flags = {"log_append_time": TIMESTAMP_TYPE, "transactional": TRANSACTIONAL, "delete_horizon": DELETE_HORIZON}
        assert {name: bool(header.attributes & bit) for name, bit in flags.items()} == {n: spec[n] for n in flags}
        assert not header.attributes & CONTROL
        same = ("record_count", "last_offset_delta", "base_timestamp", "max_timestamp")
        assert {name: getattr(header, name) for name in same} == {name: spec[name] for name in same}
        assert header.partition_leader_epoch == spec["leader_epoch"]


@settings(max_examples=50, deadline=None)
@given(st.lists(SPECS, min_size=1, max_size=8))
def test_columns_hold_what_the_objects_hold(specs: list[dict[str, Any]]) -> None:
    chunk = read(b"".join(batch(2000 * number, **spec) for number, spec in enumerate(specs)))
    batches = list(chunk.batches())
    assert {name: list(chunk.column(name)) for name in FIELDS} == {
        name: [getattr(each, name) for each in batches] for name in FIELDS
    }


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (0, 0, 0),
        (5, 4, 9),
        (2147483647, 0, 2147483647),
        (2147483647, 1, 0),
        (2147483638, 19, 9),
        (-1, 0, -1),
        (-1, 9, -1),
    ],
)
def test_the_last_sequence_wraps_to_0_and_no_sequence_stays_none(base: int, delta: int, last: int) -> None:
    assert last_sequence(base, delta) == last


@given(st.booleans(), INT32, st.integers(0, (1 << 63) - 1), INT16)
def test_a_marker_says_its_type_and_coordinator_epoch(commit: bool, epoch: int, producer: int, bumped: int) -> None:
    chunk = read(b"".join([batch(0), marker(1, (producer, bumped), commit=commit, coordinator_epoch=epoch), batch(2)]))
    plain, control, after = chunk.batches()
    assert not chunk.problems
    assert (control.marker_type, control.coordinator_epoch) == (int(commit), epoch)
    assert (control.producer_id, control.producer_epoch, control.base_sequence) == (producer, bumped, -1)
    assert (plain.marker_type, after.marker_type) == (None, None)


def test_a_control_record_of_the_quorum_has_no_coordinator_epoch() -> None:
    assert read_marker(marker(0, (-1, -1), commit=False, kind=2)) == (2, None)


@pytest.mark.parametrize("delta", [-1, 0, 63, 64, 8191, 8192, (1 << 62), -(1 << 63)])
def test_a_marker_is_found_behind_varints_of_any_length(delta: int) -> None:
    content = record(0, b"\0\0\0\0\0\x09", b"\0\0\0\1", timestamp_delta=delta)
    assert read_marker(batch(0, payload=content)) == (1, 9)


@pytest.mark.parametrize(
    "records",
    [b"\x01", b"\xff" * 20, record(0, b"", b"\0\0"), record(0, b"\0\0", b"\0\0\0\1"), b"", record(0, b"v")],
    ids=["cut off", "endless varint", "short key", "short value", "nothing", "no key"],
)
def test_a_control_batch_without_a_control_record_is_named_and_still_read(records: bytes) -> None:
    chunk = read(batch(0, control=True, payload=records, record_count=1) + batch(1))
    assert [(each.kind, each.position) for each in chunk.problems] == [("bad_control", 0)]
    assert [(each.base_offset, each.marker_type) for each in chunk.batches()] == [(0, None), (1, None)]


def test_a_control_batch_that_compaction_emptied_is_no_problem() -> None:
    chunk = read(batch(0, control=True, transactional=True, payload=b"", record_count=0, producer=(1, 0, -1)))
    assert not chunk.problems and [each.marker_type for each in chunk.batches()] == [None]
