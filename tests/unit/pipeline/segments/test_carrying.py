"""Running figures go on over the parts of a log, however it is cut into segments and parts of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.engine import DIRECT
from pidkeeper.pipeline.segments.carrying import MOST, carry
from pidkeeper.pipeline.segments.judge import load
from pidkeeper.pipeline.segments.plan import plan_segments
from pidkeeper.pipeline.segments.read import ReadSettings, read_segments
from pidkeeper.pipeline.segments.segment_files import list_segments
from pidkeeper.pipeline.segments.tables import PARTS
from tests.unit.pipeline.segments.logs import FIRST_SEGMENT, START_MS, Log, Row, lawful_logs, write

P: Final = 17
LARGE: Final = 1 << 26
FIGURES: Final = """
select
    path, (count(*) over (partition by path order by position) - 1)::integer as row,
    (batches.missing + missing_before)::bigint as missing, batches.holes + holes_before as holes,
    greatest(seen_ms, seen_before) as seen_ms
from batches join carried using (part) join files using (file_id)
"""

Figures = dict[tuple[str, int], tuple[int, int, int | None]]


def moved(row: Row, name: str) -> Row:
    """The row in another segment."""
    return row | {"name": name}


def damage(name: str) -> Row:
    return {"damage": True, "name": name, "position": 0}


def segment(base: int) -> str:
    return f"{base:020}.log"


def loaded(con: Any, directory: Path, range_bytes: int = LARGE) -> None:
    """`batches` of one bucket, with `carried`, `log_ends` and `files`."""
    plan = plan_segments(list_segments([str(directory)]), range_bytes=range_bytes)
    given = [each for task in plan.tasks for each in read_segments(task, ReadSettings(1))]
    load(con, ((name, rows) for bucket, name, rows in given if bucket != DIRECT))
    con.register("files", plan.files)


def figures(directory: Path, range_bytes: int = LARGE) -> Figures:
    """missing, holes and seen_ms of each batch of a producer, by member/folder/segment and number in the segment."""
    with connect() as con:
        loaded(con, directory, range_bytes)
        rows = con.execute(FIGURES).fetchall()
    return {("/".join(path.split("/")[-3:]), row): tuple(found) for path, row, *found in rows}


def expected(log: Log, *, one_pass: bool = True) -> Figures:
    """The same, one batch after the other. If not in one pass, each segment as if it were alone, and then its seam."""
    in_order: dict[str, list[Row]] = {}
    for row in log.rows:
        in_order.setdefault(row["name"], []).append(row)
    reached, missing, holes, seen = -1, 0, 0, -1
    found: Figures = {}
    for name in sorted(in_order, key=lambda name: (name[0].isdigit(), name)):
        rows = in_order[name]
        alone = reached
        if not one_pass:
            first = next((row["base_offset"] for row in rows if row.get("base_offset", -1) >= 0), -1)
            missing += max(0, first - reached - 1) if reached >= 0 else 0
            alone = -1
        number = 0
        for row in rows:
            if row.get("damage"):
                holes += 1
                continue
            if alone >= 0 and row["base_offset"] > alone:
                missing += row["base_offset"] - alone - 1
            alone = max(alone, row["last_offset"]) if row["base_offset"] >= 0 else alone
            seen = max(seen, row["max_timestamp_ms"])
            if row["producer_id"] >= 0:
                key = (f"{log.member}/{log.folder}/{name}", number)
                found[key] = (missing, holes, seen if seen >= 0 else None)
                number += 1
        reached = max(reached, alone)
    return found


def test_running_figures_go_on_over_the_files_of_a_log(tmp_path: Path) -> None:
    """Five segments: one without a readable batch, a gap between files, old times, no producer."""
    log = Log()
    for producer in (P, P, P, -1, P, P, P):
        log.data(producer, 0, 0)
    rows = [moved(row, segment(base)) for row, base in zip(log.rows, (0, 0, 3, 9, 12, 12, 18), strict=True)]
    rows[4]["max_timestamp_ms"] = START_MS
    log.rows = [rows[0], damage(segment(0)), rows[2], damage(segment(6)), *rows[3:5], damage(segment(12)), *rows[5:]]
    write(tmp_path, [log])
    wanted = {
        (f"1/orders-0/{segment(0)}", 0): (0, 0, START_MS + 1000),
        (f"1/orders-0/{segment(3)}", 0): (3, 1, START_MS + 3000),
        (f"1/orders-0/{segment(12)}", 0): (3, 2, START_MS + 4000),
        (f"1/orders-0/{segment(12)}", 1): (3, 3, START_MS + 6000),
        (f"1/orders-0/{segment(18)}", 0): (3, 3, START_MS + 7000),
    }
    assert figures(tmp_path) == wanted == expected(log)


def test_the_end_of_a_log_counts_what_lies_behind_its_last_producer(tmp_path: Path) -> None:
    log = Log()
    for producer in (P, -1, -1):
        log.data(producer, 0, 0)
    log.rows = [log.rows[0], moved(log.rows[2], segment(6)), damage(segment(9))]
    write(tmp_path, [log])
    with connect() as con:
        loaded(con, tmp_path)
        found = con.execute("select end_missing, end_holes, now_ms from log_ends").fetchall()
    assert found == [(3, 1, START_MS + 3000)]


def test_the_time_of_a_log_is_that_of_any_broker_clock_of_its_member(tmp_path: Path) -> None:
    quiet, elsewhere, stamped = Log("quiet"), Log("elsewhere", member="2"), Log("stamped", broker_clock=True)
    for hours, log in enumerate((quiet, stamped, elsewhere)):
        log.now_ms += hours * 3_600_000
        log.data(P, 0, 0)
    elsewhere.marker(P, 0)
    write(tmp_path, [quiet, stamped, elsewhere])
    with connect() as con:
        loaded(con, tmp_path)
        found = con.execute("select now_ms from log_ends order by log_id").fetchall()
    assert found == [(stamped.now_ms,), (stamped.now_ms,), (elsewhere.now_ms,)]


def cut(chance: random.Random, log: Log, *, over_one_another: bool = False) -> None:
    """The log in several segments with damage.

    Or some with no offset in their names, some named below their offsets, and with offsets that are no such numbers.
    """
    name = FIRST_SEGMENT
    rows = []
    for row in log.rows:
        if chance.random() < 0.2:
            name = segment(row["base_offset"])
            if over_one_another:
                name = chance.choice(
                    (name, f"{chance.choice('abc')}.log", segment(chance.randrange(row["base_offset"] + 1)))
                )
            rows += [damage(name)] * (chance.random() < 0.3)
        if chance.random() < 0.9:
            rows.append(moved(row, name))
            rows += [damage(name)] * (chance.random() < 0.1)
            if over_one_another and chance.random() < 0.1:
                rows[-1] = moved(row, name) | {"base_offset": -5, "last_offset": -3}
    log.rows = rows


@pytest.mark.parametrize("chunk", [1 << 16, 2])
@pytest.mark.parametrize(("over_one_another", "range_bytes"), [(False, LARGE), (False, 600), (True, LARGE)])
def test_running_figures_are_those_of_one_pass_over_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_one_another: bool, range_bytes: int, chunk: int
) -> None:
    monkeypatch.setattr("pidkeeper.pipeline.formats.log_segment.CHUNK_BATCHES", chunk)
    chance = random.Random(7)
    logs = []
    for number in range(40):
        log = lawful_logs(chance, f"topic{number}", number * 10)[0]
        for row in log.rows[::7]:
            row["producer_id"] = -1
        for row in log.rows[3::5]:
            row["max_timestamp_ms"] -= 20_000
        cut(chance, log, over_one_another=over_one_another)
        logs.append(log)
    write(tmp_path, logs)
    wanted: Figures = {}
    for log in logs:
        wanted |= expected(log, one_pass=not over_one_another)
    assert figures(tmp_path, range_bytes) == wanted
    assert len({file for file, _ in wanted}) > 100
    assert {holes for _, holes, _ in wanted.values()} > {0, 1, 2, 3}


def test_no_number_of_offsets_is_too_large(tmp_path: Path) -> None:
    """Parts that each claim nearly all offsets there are."""
    ends = [dict.fromkeys(PARTS.names) | {"part": n, "log_id": 1, "member_id": 1} for n in range(4)]
    for row in ends:
        row |= {"first_base": 0, "reach": (1 << 63) - 1, "missing": (1 << 63) - 2, "holes": 0}
    with connect() as con:
        con.register("parts", pa.Table.from_pylist(ends, schema=PARTS))
        carry(con)
        assert con.execute("select end_missing from log_ends").fetchall() == [(MOST,)]
