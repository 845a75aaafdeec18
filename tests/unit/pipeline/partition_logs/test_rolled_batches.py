"""What is told of one segment: each fault once, and nothing of what nobody knows."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.pipeline.partition_logs.rolled_batches import KNOWN, Named, columns_of, find_faults
from tests.support.segment_builder import START_MS, batch, marker

PAIR = (20, 0)
PIECES = (
    batch(5, [b"v"] * 2, producer=(7, 0, 0)),
    batch(7, [b"v"], producer=(*PAIR, 3), transactional=True),
    marker(8, PAIR, commit=False),
    batch(9, [b"v"] * 3),
)
TOLD = (
    {"base_offset": 5, "records": 2, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0},
    {"base_offset": 7, "records": 1, "max_timestamp": START_MS, "transactional": True},
    {"base_offset": 8, "records": 1, "producer_id": 20, "producer_epoch": 0, "base_sequence": -1, "committed": False},
    {"base_offset": 9, "records": 3, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1},
)


def faults(*pieces: bytes, told: Any = (), latest: int = START_MS) -> list[str]:
    content = b"".join(pieces)
    known = to_blob(pa.RecordBatch.from_pylist(list(told), schema=KNOWN)) if told else b""
    named = Named(0, 5, 12, len(content), 0, latest, known)
    (chunk,) = SegmentReader(io.BytesIO(content), len(content), base_offset=5).chunks()
    return [fault.detail for fault in find_faults(named, len(content), chunk.problems, columns_of(chunk))]


def test_a_sound_segment_has_no_fault() -> None:
    assert faults(*PIECES, told=TOLD) == faults(*PIECES) == []


def test_offsets_of_a_damaged_batch_are_not_told_again() -> None:
    damaged = PIECES[1][:-1] + b"?"
    (detail,) = faults(PIECES[0], damaged, *PIECES[2:], told=TOLD)
    assert detail.startswith("bad_crc")


@pytest.mark.parametrize(
    ("pieces", "detail"),
    [
        (PIECES[1:], "a batch begins at offset 7, and what stands before ends at 5: records are missing"),
        (PIECES[:3], "it should reach up to 12, and what stands before ends at 9: records are missing"),
        ((*PIECES, batch(12)), "it should reach up to 12, and what stands before ends at 13: offsets are in it twice"),
    ],
)
def test_a_segment_has_the_offsets_of_its_record(pieces: tuple[bytes, ...], detail: str) -> None:
    assert faults(*pieces) == [detail]


@pytest.mark.parametrize(
    ("row", "change", "detail"),
    [
        (0, {"records": 3}, "records 2, not 3"),
        (0, {"producer_epoch": 4}, "epoch 0, not 4"),
        (1, {"max_timestamp": 5}, f"latest timestamp {START_MS}, not 5"),
        (1, {"transactional": False}, "transactional True, not False"),
        (1, {"committed": True}, "it is no control batch"),
        (2, {"committed": True}, "commit False, not True"),
        (2, {"committed": None}, "it is a control batch"),
        (3, {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}, "producer -1, not 9; epoch -1, not 0; seq"),
    ],
)
def test_batches_are_what_members_tell(row: int, change: dict[str, Any], detail: str) -> None:
    told = [dict(one) for one in TOLD]
    told[row] |= change
    (found,) = faults(*PIECES, told=told)
    assert found.startswith(f"it has something else than the quorum let join there: {detail}")


def test_where_a_batch_should_begin_none_goes_on() -> None:
    told = [*TOLD[:3], {"base_offset": 10, "records": 2}]
    assert faults(*PIECES, told=told) == ["the quorum let a batch join at offset 10, which is within it"]


def test_offsets_and_records_are_as_many() -> None:
    compacted = batch(9, [b"v"] * 2, last_offset_delta=2)
    assert faults(*PIECES[:3], compacted) == ["a batch of 2 records takes 3 offsets"]


def test_markers_have_no_time_that_counts() -> None:
    assert faults(*PIECES, latest=START_MS + 1) == [
        f"its latest record is of {START_MS} ms, and it was committed with {START_MS + 1}"
    ]
