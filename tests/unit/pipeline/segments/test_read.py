"""One pass over segments: what it says of parts, days and problems, and where it puts the rows of producers."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pidkeeper.pipeline.engine.engine import DIRECT
from pidkeeper.pipeline.segments import read
from pidkeeper.pipeline.segments.plan import plan_segments
from pidkeeper.pipeline.segments.read import DAY_MS, ReadSettings, buckets_of, read_segments
from pidkeeper.pipeline.segments.segment_files import list_segments
from pidkeeper.pipeline.segments.tables import BATCHES, EVIDENCE, PARTS
from tests.support.segment_builder import batch
from tests.unit.pipeline.segments.logs import FIRST_SEGMENT, START_MS, Log, encoded, write

P = 17
DAY = START_MS // DAY_MS


def given(directory: Path, buckets: int = 4, range_bytes: int = 1 << 26) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables; each row of BATCHES with its `bucket`, PARTS once."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    schemas = EVIDENCE | {"batches": BATCHES, "parts": PARTS}
    every: list[list[Any]] = [[] for _ in range(buckets)]
    for task in plan_segments(list_segments([str(directory)]), range_bytes=range_bytes).tasks:
        for bucket, name, rows in read_segments(task, ReadSettings(buckets)):
            assert rows.schema == schemas[name]
            if name == "parts":
                every[bucket] += rows.to_pylist()
            else:
                assert (bucket == DIRECT) == (name != "batches")
                found[name] += [row | {"bucket": bucket} for row in rows.to_pylist()]
    assert all(rows == every[0] for rows in every), "every bucket has every part"
    found["parts"] = every[0]
    return found


def test_a_row_has_what_the_header_says(tmp_path: Path) -> None:
    log = Log(broker_clock=True)
    log.data(P, 3, (1 << 31) - 2, 4, transactional=True)
    log.data(-1, -1, -1)
    log.marker(P, 3)
    log.broker_clock = False
    log.data(P + 1, 0, 7)
    log.rows[3]["max_timestamp_ms"] = -1
    write(tmp_path, [log])
    rows = sorted(given(tmp_path)["batches"], key=lambda row: row["base_offset"])
    size = len(batch(0, producer=(P, 3, 0)))
    same = {"producer_id": P, "part": 0, "epoch": 3, "is_transactional": True, "missing": 0, "holes": 0}
    assert [row | {"bucket": 0, "position": 0} for row in rows] == [
        same
        | {
            "base_offset": 0, "base_sequence": (1 << 31) - 2, "last_sequence": 1, "is_control": False, "opens": True,
            "broker_clock": True, "timestamp_ms": START_MS + 1000, "seen_ms": START_MS + 1000, "bucket": 0,
            "position": 0,
        },
        same
        | {
            "base_offset": 7, "base_sequence": -1, "last_sequence": -1, "is_control": True, "opens": False,
            "broker_clock": True, "timestamp_ms": START_MS + 3000, "seen_ms": START_MS + 3000, "bucket": 0,
            "position": 0,
        },
        same
        | {
            "producer_id": P + 1, "epoch": 0, "is_transactional": False, "base_offset": 8, "base_sequence": 7,
            "last_sequence": 9, "is_control": False, "opens": False, "broker_clock": False, "timestamp_ms": None,
            "seen_ms": START_MS + 3000, "bucket": 0, "position": 0,
        },
    ]  # fmt: skip
    assert rows[0]["position"] == 0 < size <= rows[1]["position"]


@pytest.mark.parametrize("held_rows", [1 << 18, 7])
def test_a_producer_is_in_one_bucket_with_all_its_rows_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_rows: int
) -> None:
    monkeypatch.setattr(read, "HELD_ROWS", held_rows)
    monkeypatch.setattr("pidkeeper.pipeline.formats.log_segment.CHUNK_BATCHES", 5)
    logs = [Log(partition=partition) for partition in range(2)]
    for number in range(300):
        logs[number % 2].data(number * 1000 % 37_000, 0, 3 * number)
    write(tmp_path, logs)
    rows = given(tmp_path, buckets=8)["batches"]
    assert len(rows) == 300
    homes = {(row["producer_id"], row["bucket"]) for row in rows}
    assert len(homes) == 37
    assert {bucket for _, bucket in homes} == set(range(8))
    for bucket, part in {(row["bucket"], row["part"]) for row in rows}:
        offsets = [row["base_offset"] for row in rows if (row["bucket"], row["part"]) == (bucket, part)]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("step", [1, 1000, 1 << 20])
def test_buckets_are_even_however_ids_are_spaced(step: int) -> None:
    sizes = np.bincount(buckets_of(np.arange(100_000, dtype=np.int64) * step, 7), minlength=7)
    assert len(sizes) == 7
    assert sizes.min() > 100_000 / 7 * 0.8


def test_the_figures_of_parts_and_days(tmp_path: Path) -> None:
    log = Log(broker_clock=True)
    log.run(P, 0, (0, 3))
    log.broker_clock = False
    log.now_ms += 2 * DAY_MS
    log.data(-1, -1, -1, 5)
    log.data(-1, -1, -1, 1)
    log.data(P, 0, 6, 4)
    log.rows[3] |= {"max_timestamp_ms": -1, "record_count": 0}
    del log.rows[1]
    write(tmp_path, [log])
    found = given(tmp_path)
    (part,) = found["segment_parts"]
    expected = {
        "part": 0, "file_id": 0, "log_id": 0, "partition_id": 0, "topic_id": 0, "member_id": 0, "sequenced": True,
        "whole": False, "first_base": 0, "reach": 15, "missing": 3, "holes": 0, "newest_ms": log.now_ms,
        "clock_ms": START_MS + 1000, "batches": 4, "records": 12, "first_offset": 0, "last_offset": 15,
        "max_timestamp_ms": log.now_ms, "problems": 0, "first_position": 0, "first_ms": START_MS + 1000,
        "holes_first": 0, "holes_last": 0, "old": 0, "old_first": 0, "old_last": 0, "key": 0, "anew": True,
    }  # fmt: skip
    segment = (tmp_path / log.member / log.folder / FIRST_SEGMENT).read_bytes()
    last = len(segment) - len(encoded(log.rows[-1]))
    expected |= {"last_position": last, "last_crc": int.from_bytes(segment[last + 17 : last + 21])}
    assert part == expected | {"bucket": DIRECT}
    assert found["parts"] == [{name: expected[name] for name in PARTS.names}]
    columns = ("day", "batches", "records", "first_timestamp_ms", "last_timestamp_ms", "last_offset")
    days = [tuple(row[name] for name in columns) for row in found["segment_days"]]
    assert sorted(days, key=str) == [
        (DAY, 1, 3, START_MS, START_MS + 1000, 2),
        (DAY + 2, 2, 9, START_MS, log.now_ms, 15),
        (None, 1, 0, START_MS, -1, 11),
    ]


def test_days_of_a_part_are_put_together_over_its_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidkeeper.pipeline.formats.log_segment.CHUNK_BATCHES", 2)
    log = Log()
    for number in range(9):
        log.now_ms = START_MS + number % 3 * DAY_MS
        log.data(P, 0, 3 * number)
    write(tmp_path, [log])
    days = [(row["day"], row["batches"], row["records"], row["last_offset"]) for row in given(tmp_path)["segment_days"]]
    assert days == [(DAY, 3, 9, 20), (DAY + 1, 3, 9, 23), (DAY + 2, 3, 9, 26)]


def test_a_file_that_cannot_be_read_is_a_problem_and_a_hole(tmp_path: Path) -> None:
    write(tmp_path, [Log().run(P, 0, (0,))])
    (file,) = list_segments([str(tmp_path)])
    (task,) = plan_segments([file]).tasks
    Path(file.path).unlink()
    rows = {name: batch.to_pylist() for _, name, batch in read_segments(task, ReadSettings(1))}
    (problem,) = rows["problems"]
    assert (problem["file_id"], problem["kind"], problem["position"], problem["index"]) == (0, "unreadable", 0, None)
    assert "No such file" in problem["detail"]
    (part,) = rows["segment_parts"]
    assert (part["holes"], part["problems"], part["batches"], part["reach"], part["first_base"]) == (
        1,
        1,
        0,
        None,
        None,
    )


def test_many_problems_are_counted_and_the_first_of_each_kind_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_PROBLEMS", 3)
    log = Log().run(P, 0, range(0, 30, 3))
    log.damaged = [100, 400, 700, 1000, 1300]
    write(tmp_path, [log])
    (path,) = tmp_path.glob("*/*/*.log")
    path.write_bytes(path.read_bytes() + bytes(100))
    found = given(tmp_path)
    assert [row["kind"] for row in found["problems"]] == ["bad_crc", "bad_crc", "bad_crc", "zero_tail"]
    (part,) = found["segment_parts"]
    assert (part["problems"], part["holes"]) == (6, 5)


def test_empty_tables_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, [Log().run(-1, -1, (-1,))])
    assert set(given(tmp_path)) == {"parts", "segment_parts", "segment_days"}
