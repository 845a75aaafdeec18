"""Holes between offsets: what is one where nothing compacts a topic, and what explains it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from pidkeeper.pipeline.segments import read
from pidkeeper.pipeline.segments.plan import is_whole
from tests.support.segment_builder import batch, old_message
from tests.unit.pipeline.segments.in_process import Finding, audit
from tests.unit.pipeline.segments.logs import FIRST_SEGMENT, Log, damaged_bytes, write

P: Final = 17
SMALL: Final = 200
"""Bytes of a range: two batches."""


def ordered(*sequences: int, topic: str = "orders", member: str = "1") -> Log:
    return Log(topic, member=member).run(P, 0, sequences)


def without(log: Log, *places: int) -> Log:
    log.rows = [row for place, row in enumerate(log.rows) if place not in places]
    return log


def short(found: list[Finding]) -> list[tuple[str, str, int | None]]:
    return [(row.check, row.severity, row.offset) for row in found]


@pytest.mark.parametrize("range_bytes", [1 << 26, SMALL])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("delete", [("missing_batches", "violation", 6), ("out_of_sequence", "violation", 12)]),
        ("compact", []),
        ("compact,delete", []),
        (None, []),
    ],
)
def test_a_hole_is_a_violation_where_nothing_compacts_the_topic(
    tmp_path: Path, policy: str | None, expected: list[tuple[str, str, int]], range_bytes: int
) -> None:
    log = without(ordered(0, 3, 6, 9, 12), 2, 3)
    log.rows = [row | {"name": FIRST_SEGMENT} for row in log.rows]
    found = audit((tmp_path, [log]), policies={"orders": policy}, range_bytes=range_bytes)
    assert short(found) == expected
    for row in found[:1]:
        place = (log.rows[2]["max_timestamp_ms"], "1", str(tmp_path / "1" / "orders-0" / FIRST_SEGMENT))
        assert row[2:-1] == ("orders-0", None, None, None, 6, "orders", 0, *place, found[1].position)
        assert row.detail == (
            "offsets 6 to 11 have no batch, and batches stand before and behind them: nothing compacts this topic, so "
            "records were lost"
        )


def test_a_segment_that_is_not_there_is_a_hole(tmp_path: Path) -> None:
    log = ordered(0, 3, 6, 9, 12)
    for row, base in zip(log.rows, (0, 0, 6, 9, 9), strict=True):
        row["name"] = f"{base:020}.log"
    found = audit((tmp_path, [without(log, 2)]), policies={"orders": "delete"})
    assert short(found) == [("missing_batches", "violation", 6), ("out_of_sequence", "violation", 9)]
    assert (found[0].file, found[0].position) == (str(tmp_path / "1" / "orders-0" / f"{9:020}.log"), 0)


def test_what_retention_removed_from_the_start_is_no_hole(tmp_path: Path) -> None:
    assert audit((tmp_path, [without(ordered(0, 3, 6, 9), 0, 1)]), policies={"orders": "delete"}) == []


def test_aborted_transactions_leave_no_hole(tmp_path: Path) -> None:
    log = Log().run(P, 0, (0, 3), transactional=True)
    log.marker(P, 1, "abort")
    log.run(P, 1, (0, 3), transactional=True)
    log.marker(P, 1)
    assert audit((tmp_path, [log]), policies={"orders": "delete"}) == []


@pytest.mark.parametrize(("range_bytes", "chunk"), [(1 << 26, 1 << 16), (1 << 26, 1), (SMALL, 1 << 16)])
@pytest.mark.parametrize(("damaged", "severity"), [(100, "violation"), (700, "warning"), (1400, "violation")])
def test_damage_in_a_hole_explains_it_and_elsewhere_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: int, severity: str, range_bytes: int, chunk: int
) -> None:
    monkeypatch.setattr("pidkeeper.pipeline.formats.log_segment.CHUNK_BATCHES", chunk)
    log = without(ordered(0, 3, 6, 9, 12), 2, 3)
    log.damaged = [damaged]
    log.data(-1, -1, -1)
    write(tmp_path, [log])
    found = audit(tmp_path, policies={"orders": "delete"}, range_bytes=range_bytes)
    assert [(row.check, row.severity) for row in found] == [
        ("missing_batches", severity),
        ("out_of_sequence", severity),
    ]


@pytest.mark.parametrize("cuts", [(), (1,), (3,), (1, 3)])
def test_old_messages_may_fill_a_hole(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    """In a segment with the batches around them, or cut off from those."""
    data = [batch(0, [b"v"] * 3), old_message(1, 3), old_message(1, 4), *(batch(5 + n) for n in range(4))]
    (tmp_path / "orders-0").mkdir()
    bounds = (0, *cuts, len(data))
    for start, end in pairwise(bounds):
        base = (0, 3, 4, 5)[start]
        (tmp_path / "orders-0" / f"{base:020}.log").write_bytes(b"".join(data[start:end]))
    assert audit(tmp_path, policies={"orders": "delete"}) == []


def test_without_them_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / FIRST_SEGMENT).write_bytes(batch(0, [b"v"] * 3) + old_message(1, 3) + batch(4) + batch(9))
    assert short(audit(tmp_path, policies={"orders": "delete"})) == [("missing_batches", "violation", 5)]


def test_a_file_that_is_all_damage_explains_the_hole_that_it_leaves(tmp_path: Path) -> None:
    write(tmp_path, [without(ordered(0, 3, 6), 1, 2)])
    (tmp_path / "1" / "orders-0" / f"{3:020}.log").write_bytes(damaged_bytes())
    later = ordered(0, 3, 6)
    (tmp_path / "1" / "orders-0" / f"{6:020}.log").write_bytes(b"".join(without(later, 0, 1).segments().values()))
    found = audit(tmp_path, policies={"orders": "delete"})
    assert short(found) == [("missing_batches", "warning", 3), ("out_of_sequence", "warning", 6)]


def test_a_hole_in_several_copies_is_one_finding_the_worst(tmp_path: Path) -> None:
    logs = [without(ordered(0, 3, 6, 9, member=str(member)), 2) for member in range(1, 4)]
    logs[0].damaged = [700]
    found = audit((tmp_path, logs), policies={"orders": "delete"})
    assert [(row.check, row.severity, row.member) for row in found] == [
        ("missing_batches", "violation", "2"),
        ("out_of_sequence", "violation", "2"),
    ]


def test_holes_beyond_the_bound_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "MAX_OFFSET_HOLES", 2)
    log = Log()
    for _ in range(12):
        log.data(-1, -1, -1)
    log.rows = log.rows[::2]
    log.damaged = [2700]
    found = audit((tmp_path, [log]), policies={"orders": "delete"})
    assert sorted((row.severity, row.offset or -1, row.detail.split(",")[0]) for row in found) == [
        ("violation", -1, "2 more of these were found"),
        ("violation", 3, "offsets 3 to 5 have no batch"),
        ("violation", 9, "offsets 9 to 11 have no batch"),
        ("warning", -1, "1 more of these were found"),
    ]


@pytest.mark.parametrize(
    ("policy", "whole"),
    [("delete", True), ("compact", False), ("compact,delete", False), ("delete, compact", False), (None, False)],
)
def test_a_topic_is_whole_unless_it_may_be_compacted(policy: str | None, whole: bool) -> None:
    assert is_whole(policy) is whole
