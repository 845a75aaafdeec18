"""The tables that the checks of segments share: running figures over the files of a log, and who is looked at."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from pidkeeper.pipeline.checks.segments.files import segment_files
from pidkeeper.pipeline.checks.segments.producers import (
    log_ends,
    log_rows,
    producer_rows,
    with_missing,
)
from pidkeeper.pipeline.checks.segments.streams import PRODUCER_ID_EXPIRATION_MS, faults_among, sequence_faults
from tests.pipeline.segment_rows import START_MS, Log, Row, compact, inputs, kept, lawful_logs
from tests.support.quorum_tables import tiny_tables

P: Final = 17
FOLDER: Final = "/kafka/1/orders-0"


@pytest.fixture(scope="module", autouse=True)
def _tiny(spark: SparkSession) -> Iterator[None]:
    with tiny_tables(spark):
        yield


def moved(row: Row, base: int | None, name: str | None = None, folder: str = FOLDER) -> Row:
    """The row in another segment."""
    return row | {"file": f"{folder}/{name or f'{base:020}.log'}", "segment_base_offset": base}


def damage(base: int, position: int | None, folder: str = FOLDER) -> Row:
    return {"member": "1", "file": f"{folder}/{base:020}.log", "kind": "torn", "position": position, "detail": "torn"}


def in_order(rows: list[Row], problems: list[Row]) -> list[Row]:
    """Batches and problems of one log by segment, file and byte, nulls first."""
    named = [row | {"segment_base_offset": int(row["file"][-24:-4])} for row in problems]

    def key(row: Row) -> tuple[Any, ...]:
        base, position = row["segment_base_offset"], row["position"]
        return (-1 if base is None else base, row["file"], -1 if position is None else position, "kind" in row)

    return sorted([*rows, *named], key=key)


def expected(rows: list[Row], problems: list[Row]) -> dict[tuple[str, int], tuple[int, int, int | None]]:
    """missing, holes and seen_ms of each batch of a producer, one batch after the other."""
    reached, missing, holes, seen = -1, 0, 0, -1
    found: dict[tuple[str, int], tuple[int, int, int | None]] = {}
    for row in in_order(rows, problems):
        if "kind" in row:
            holes += 1
            continue
        if reached >= 0 and row["base_offset"] > reached:
            missing += row["base_offset"] - reached - 1
        reached = max(reached, row["last_offset"]) if row["base_offset"] >= 0 else reached
        seen = max(seen, row["max_timestamp_ms"])
        if row["producer_id"] >= 0:
            found[row["file"], row["position"]] = (missing, holes, seen if seen >= 0 else None)
    return found


def figures(spark: SparkSession, rows: list[Row], problems: list[Row]) -> dict[tuple[str, int], tuple[int, int, int]]:
    given = kept(inputs(spark, rows, problems=problems), segment_files, log_rows)
    names = {row.file_id: row.file for row in given.kept["segment_files"].collect()}
    placed = with_missing(producer_rows(given), given).collect()
    return {(names[row.file_id], row.position): (row.missing, row.holes, row.seen_ms) for row in placed}


def test_running_figures_go_on_over_the_files_of_a_log(spark: SparkSession) -> None:
    """Five segments, given last first: a file without a readable batch, a gap between files, old times, no producer."""
    log = Log()
    for producer in (P, P, P, -1, P, P, P):
        log.data(producer, 0, 0)
    rows = [moved(row, base) for row, base in zip(log.rows, (0, 0, 3, 9, 12, 12, 18), strict=True)]
    rows[4]["max_timestamp_ms"] = START_MS
    del rows[1]
    problems = [damage(0, 50), damage(6, None), damage(12, 1250)]
    assert figures(spark, rows[::-1], problems) == {
        (f"{FOLDER}/{0:020}.log", 0): (0, 0, START_MS + 1000),
        (f"{FOLDER}/{3:020}.log", 600): (3, 1, START_MS + 3000),
        (f"{FOLDER}/{12:020}.log", 1200): (3, 2, START_MS + 4000),
        (f"{FOLDER}/{12:020}.log", 1500): (3, 3, START_MS + 6000),
        (f"{FOLDER}/{18:020}.log", 1800): (3, 3, START_MS + 7000),
    }
    assert expected(rows, problems) == figures(spark, rows, problems)


def test_the_end_of_a_log_counts_what_lies_behind_its_last_producer(spark: SparkSession) -> None:
    log = Log()
    for producer in (P, -1, -1):
        log.data(producer, 0, 0)
    rows = [moved(log.rows[0], 0), moved(log.rows[2], 6)]
    given = kept(inputs(spark, rows, problems=[damage(9, 0)]), segment_files, log_rows)
    assert [(row.end_missing, row.end_holes) for row in log_ends(given).collect()] == [(3, 1)]


def cut(chance: random.Random, log: Log, folder: str) -> tuple[list[Row], list[Row]]:
    """The log in several segments, some without a base offset in their names, some over one another, with damage."""
    rows, problems = [], []
    base: int | None = 0
    name: str | None = None
    for row in log.rows:
        if chance.random() < 0.2:
            base, name = row["base_offset"], None
            if chance.random() < 0.2:
                base, name = None, f"{chance.choice('abc')}.log"
            elif chance.random() < 0.2:
                base = chance.randrange(row["base_offset"] + 1)
            if chance.random() < 0.3:
                problems.append(damage(chance.randrange(200), chance.choice((None, 0, 350)), folder))
        if chance.random() < 0.9:
            rows.append(moved(row, base, name, folder))
        if chance.random() < 0.1:
            rows[-1:] = [each | {"base_offset": -5} for each in rows[-1:]]
    return rows, problems


def test_running_figures_are_those_of_one_pass_over_the_log(spark: SparkSession) -> None:
    chance = random.Random(7)
    every: list[Row] = []
    all_problems: list[Row] = []
    wanted: dict[tuple[str, int], tuple[int, int, int | None]] = {}
    for number in range(40):
        log = lawful_logs(chance, f"topic{number}", number * 10)[0]
        log.rows += [row | {"producer_id": -1, "position": row["position"] + 1} for row in log.rows[::7]]
        rows, problems = cut(chance, log, f"/kafka/1/topic{number}-0")
        wanted |= expected(rows, problems)
        every += rows
        all_problems += problems
    chance.shuffle(every)
    assert figures(spark, every, all_problems) == wanted
    assert len({file for file, _ in wanted}) > 100


def spoil(chance: random.Random, log: Log) -> None:
    """Up to three faults in any batches."""
    for _ in range(chance.randrange(4)):
        if not log.rows:
            return
        row, other = chance.choice(log.rows), chance.choice(log.rows)
        sequences = ("producer_epoch", "base_sequence", "last_sequence")
        match chance.randrange(7):
            case 0:
                log.rows.remove(row)
            case 1:
                log.rows.append(dict(row))
                log.close_up()
            case 2:
                row["producer_epoch"] = max(0, row["producer_epoch"] + chance.choice((-1, 1)))
            case 3:
                silence = chance.choice((PRODUCER_ID_EXPIRATION_MS, PRODUCER_ID_EXPIRATION_MS - 20_000))
                for each in log.rows[log.rows.index(row) :]:
                    each["max_timestamp_ms"] += silence
            case 4:
                row["base_sequence"] = chance.choice((-1, 0, row["last_sequence"]))
            case 5:
                row["last_sequence"] = chance.choice((0, None, (row["last_sequence"] or 0) // 2))
            case _:
                held = {name: row[name] for name in sequences}
                row |= {name: other[name] for name in sequences}
                other |= held


def edges(topic: str, producer: int) -> Log:
    """Markers where data is compacted away: what begins behind them, and where, decides. Some are lawful."""
    log = Log(topic)
    log.marker(producer, 0)
    log.data(producer, 0, 5)
    for follower, first_epoch, sequence in ((1, 0, 5), (2, 1, 5), (3, 0, 0)):
        log.marker(producer + follower, first_epoch)
        log.marker(producer + follower, 1)
        log.data(producer + follower, 1, sequence)
    log.data(producer + 4, 0, 0)
    log.marker(producer + 4, 1)
    log.data(producer + 4, 1, 3)
    return log


def test_no_fault_is_lost_with_producers_that_are_not_looked_at(spark: SparkSession) -> None:
    chance = random.Random(11)
    logs = [edges("edges", 5000)]
    for number in range(120):
        made = lawful_logs(chance, f"topic{number}", number * 10, steps=20)
        copies = [log.copy("2") for log in made if chance.random() < 0.2]
        for log in (*made, *copies):
            if chance.random() < 0.3:
                compact(chance, log)
            spoil(chance, log)
        logs += [*made, *copies]
    given = kept(inputs(spark, [row for log in logs for row in log.rows]), segment_files, log_rows)
    rows = with_missing(producer_rows(given), given)
    every = sorted(map(repr, faults_among(rows).collect()))
    assert sorted(map(repr, sequence_faults(given).collect())) == every
    assert len(every) > 100, "too few faults"
    spared = rows.where("NOT suspect").select("log_id", "producer_id", "fenced_by").distinct().collect()
    assert len(spared) > 100, "too few producers were spared"
    assert all(row.fenced_by is None for row in spared)
