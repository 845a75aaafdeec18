"""Names that agents give to objects, and names that only look so."""

from __future__ import annotations

import uuid

import pytest

from pidkeeper.broker_agent.data.object_names import ObjectName, parsed
from pidkeeper.protocol.ids import MAX_BROKER_ID
from pidkeeper.protocol.logs import MAX_INT64, MAX_PARTITIONS, ObjectId
from pidkeeper.protocol.segments import SegmentName, index_path

FOUNDING = uuid.UUID("0f0e0d0c-0b0a-4908-8706-050403020100")
IDS = (ObjectId(0, 0, 0), ObjectId(7, 42, 1), ObjectId(MAX_BROKER_ID, MAX_INT64, MAX_INT64))
SEGMENTS = (SegmentName("t", 0, 0), SegmentName("a-1.b_2", MAX_PARTITIONS - 1, MAX_INT64), SegmentName("x" * 180, 1, 9))
WAL = f"wal/{FOUNDING}/7/42/00000000000000000001"
SEGMENT = f"segments/{FOUNDING}/7/42/00000000000000000001/t-0/00000000000000000009.log"


@pytest.mark.parametrize("object_id", IDS)
def test_what_agents_call_objects_is_read_back(object_id: ObjectId) -> None:
    assert parsed(object_id.path(FOUNDING)) == ObjectName(FOUNDING, False, object_id)
    for segment in SEGMENTS:
        path = segment.path(object_id, FOUNDING)
        assert parsed(path) == parsed(index_path(path)) == ObjectName(FOUNDING, True, object_id)


@pytest.mark.parametrize(
    ("good", "old", "new"),
    [
        (WAL, "wal", "Wal"),
        (WAL, "wal", "segments"),
        (WAL, "/7/", "/07/"),
        (WAL, "/7/", "/-7/"),
        (WAL, "/7/", f"/{MAX_BROKER_ID + 1}/"),
        (WAL, "/42/", f"/{MAX_INT64 + 1}/"),
        (WAL, "/42/", "/4_2/"),
        (WAL, "00000000000000000001", "0000000000000000001"),
        (WAL, "00000000000000000001", "1"),
        (WAL, "00000000000000000001", "9" * 20),
        (WAL, "00000000000000000001", "00000000000000000001/x"),
        (WAL, "00000000000000000001", "00000000000000000001.log"),
        (WAL, str(FOUNDING), str(FOUNDING).upper()),
        (WAL, str(FOUNDING), FOUNDING.hex),
        (WAL, str(FOUNDING), "x"),
        (SEGMENT, ".log", ".index"),
        (SEGMENT, ".log", ""),
        (SEGMENT, ".log", ".log.log"),
        (SEGMENT, "t-0", "t"),
        (SEGMENT, "t-0", "-0"),
        (SEGMENT, "t-0", ".-0"),
        (SEGMENT, "t-0", "t-00"),
        (SEGMENT, "t-0", f"t-{MAX_PARTITIONS}"),
        (SEGMENT, "00000000000000000009", "9"),
        (SEGMENT, "00000000000000000009", "9" * 20),
        (SEGMENT, "segments", "wal"),
    ],
)
def test_what_is_not_exactly_so_is_somebody_elses(good: str, old: str, new: str) -> None:
    assert parsed(good) is not None
    assert parsed(good.replace(old, new)) is None


@pytest.mark.parametrize(
    "name", ["", "/", "wal", "wal/", "store.json", "wal/a/b/c/d", "segments/" + "/".join("abcdef")]
)
def test_nothing_like_it(name: str) -> None:
    assert parsed(name) is None
