"""What a bucket gives: sums of the spotless, and not too much of what is in doubt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pidkeeper.pipeline.segments.judge import JudgeSettings
from pidkeeper.pipeline.segments.plan import plan_segments
from pidkeeper.pipeline.segments.read import DAY_MS
from pidkeeper.pipeline.segments.segment_files import list_segments
from tests.unit.pipeline.segments.in_process import audit, evidence, runs, shuffled
from tests.unit.pipeline.segments.logs import START_MS, Log, compact, lawful_logs, write

P = 17
DAY = START_MS // DAY_MS


def test_a_compacted_topic_sends_no_doubt_to_the_driver(tmp_path: Path) -> None:
    import random

    chance = random.Random(3)
    logs = [log for number in range(30) for log in lawful_logs(chance, f"topic{number}", number * 10)]
    for log in logs:
        compact(chance, log)
    write(tmp_path, [log for log in logs if log.rows])
    plan = plan_segments(list_segments([str(tmp_path)]), range_bytes=300)
    names = Counter(name for name, _ in shuffled(plan, JudgeSettings(runs([(0, 999)]))))
    assert set(names) == {"segment_parts", "segment_days", "bursts", "producer_days", "producer_ids"}


def test_distinct_producers_by_day_and_which_allocated_ids_wrote(tmp_path: Path) -> None:
    first, second = Log(), Log(partition=1)
    first.run(P, 0, (0, 3))
    first.data(P + 1, 0, 0)
    first.now_ms += DAY_MS
    first.data(P, 0, 6)
    second.marker(P + 2, 0)
    second.data(900, 0, 0)
    write(tmp_path, [first, first.copy("2"), second])
    plan = plan_segments(list_segments([str(tmp_path)]))
    with evidence(plan, JudgeSettings(runs([(0, 99)]))) as con:
        days = con.execute("select partition_id, day, sum(producers) from producer_days group by all").fetchall()
        ids = con.execute("from producer_ids").fetchall()
    assert sorted(days) == [(0, DAY, 2), (0, DAY + 1, 1), (1, DAY, 2)]
    assert sorted(ids) == [(P,), (P + 1,)]


def test_doubts_beyond_the_bound_are_counted(tmp_path: Path) -> None:
    log = Log()
    for number in range(10):
        log.run(P, 0, (9 * number,))
        log.data(1000 + number, 0, 0)
    found = audit((tmp_path, [log]), settings=JudgeSettings(runs([(0, 999)]), max_rows=4), buckets=1)
    assert [(row.check, row.offset) for row in found if row.first_id == P] == [
        ("out_of_sequence", offset) for offset in (6, 12, 18, 24)
    ]
    assert [row.first_id for row in found if row.check == "unallocated" and row.first_id] == [1000, 1001, 1002, 1003]
    assert [(row.check, row.severity, row.detail) for row in found if row.subject == "all others"] == [
        ("out_of_sequence", "violation", "5 more of these were found, too many to be listed one by one"),
        ("unallocated", "violation", "6 more of these were found, too many to be listed one by one"),
    ]


def test_the_worst_doubts_are_kept(tmp_path: Path) -> None:
    log = Log().run(P, 0, (0,))
    log.now_ms += 2 * DAY_MS
    log.run(P, 0, (50,))
    log.run(P, 0, (60,))
    found = audit((tmp_path, [log]), settings=JudgeSettings(runs([(0, 999)]), max_rows=1), buckets=1)
    assert [(row.severity, row.offset) for row in found] == [("note", None), ("violation", 6)]


@pytest.mark.parametrize("buckets", [1, 2, 9])
def test_findings_do_not_depend_on_buckets_and_parts(tmp_path: Path, buckets: int) -> None:
    from tests.unit.pipeline.segments.test_checks import cases

    logs = [log.moved(f"case{n}", n * 1000) for n, (case, _) in enumerate(cases().values()) for log in case]
    write(tmp_path, logs)
    blocks = [(n * 1000, n * 1000 + 500, 1) for n in range(len(cases()))]
    assert audit(tmp_path, blocks, buckets=buckets, range_bytes=150) == audit(tmp_path, blocks)
