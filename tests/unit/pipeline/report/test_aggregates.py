"""What is fetched for the report, from tables as an audit leaves them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from pidkeeper.pipeline.verdict import Coverage, Verdict, Watermark
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")
duck = pytest.importorskip("pidkeeper.pipeline.engine.duck")
tables = pytest.importorskip("pidkeeper.pipeline.report.tables")
aggregates = pytest.importorskip("pidkeeper.pipeline.report.aggregates")

START_MS: Final = 1_700_000_000_000
NOTHING: Final = Verdict(
    verdict="clean",
    violations=0,
    warnings=0,
    notes=0,
    checks={},
    files_read=0,
    files_bad=0,
    bad_files=[],
    blocks=0,
    ids=0,
    batches=0,
    brokers=0,
    highest_id=None,
    first_ms=None,
    last_ms=None,
    watermark=Watermark(),
    coverage=Coverage(),
    pidkeeper_version="1",
)


@pytest.fixture
def con() -> Iterator[Any]:
    with duck.connect() as connection:
        for name, schema in tables.TABLES.items():
            connection.register("without_rows", schema.empty_table())
            connection.execute(f"create table {name} as from without_rows")
        yield connection


def insert(con: Any, name: str, rows: list[dict[str, Any]]) -> None:
    """`rows`: by column; those that are not named are null."""
    con.register("given", pa.Table.from_pylist(rows, schema=tables.TABLES[name]))
    con.execute(f"insert into {name} from given")


def at(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else START_MS + milliseconds


def give(con: Any, *blocks: tuple[int, int, int, int | None]) -> None:
    """`blocks`: first and last ID, broker, milliseconds after the start."""
    names = ("first_id", "last_id", "broker_id", "timestamp_ms")
    rows = [dict(zip(names, (*block[:3], at(block[3])), strict=True)) for block in blocks]
    insert(con, "blocks", rows)


def find(con: Any, *findings: tuple[str, str, str, int | None]) -> None:
    """`findings`: check, severity, subject, milliseconds after the start."""
    names = ("check", "severity", "subject", "timestamp_ms")
    insert(con, "findings", [dict(zip(names, (*one[:3], at(one[3])), strict=True)) for one in findings])


def draw(con: Any, **changes: Any) -> Any:
    return aggregates.draw_from(con, msgspec.structs.replace(NOTHING, **changes))


def test_of_empty_tables_nothing_is_drawn(con: Any) -> None:
    drawn = draw(con)
    fields = msgspec.structs.asdict(drawn)
    assert {name for name, value in fields.items() if value == []} == {
        "allocations", "lifetimes", "curve", "anomalies", "findings", "bad_files", "sources", "partitions",
    }  # fmt: skip
    assert (drawn.seen_ms, drawn.timeless, drawn.bar_ms) == ((0, 0), 0, 0)


def test_one_block_is_one_bar_that_is_still_open(con: Any) -> None:
    give(con, (0, 999, 1, 0))
    drawn = draw(con, first_ms=START_MS, last_ms=START_MS)
    assert [(row["broker_id"], row["ids"], row["blocks"]) for row in drawn.allocations] == [(1, 1000, 1)]
    (bar,) = drawn.lifetimes
    assert (bar["from_ms"], bar["to_ms"], bar["next_ms"], bar["blocks"]) == (START_MS, START_MS, None, 1)
    assert [(row["last_ms"], row["highest_id"]) for row in drawn.curve] == [(START_MS, 999)]


def test_a_bar_reaches_to_the_next_block_of_the_same_broker_and_the_last_one_to_the_end(con: Any) -> None:
    give(con, (0, 999, 1, 0), (1000, 1999, 2, 5000), (2000, 2999, 1, 7000), (3000, 3999, 2, 9000), (7, 9, 1, None))
    drawn = draw(con)
    bars = [(row["first_id"], row["from_ms"] - START_MS, row["to_ms"] - START_MS) for row in drawn.lifetimes]
    assert bars == [(0, 0, 7000), (2000, 7000, 9000), (1000, 5000, 9000), (3000, 9000, 9000)]
    assert [row["next_ms"] is None for row in drawn.lifetimes] == [False, True, False, True]
    assert sum(row["ids"] for row in drawn.allocations) == 4000


def test_the_curve_is_the_highest_id_so_far(con: Any) -> None:
    give(con, (0, 999, 1, 0), (5000, 5999, 2, 10_000), (1000, 1999, 1, 20_050), (2000, 2999, 2, 20_000))
    curve = [(row["last_ms"] - START_MS, row["highest_id"]) for row in draw(con).curve]
    assert curve == [(0, 999), (10_000, 5999), (20_050, 5999)]


def test_many_blocks_of_many_brokers_are_a_bounded_number_of_rows(con: Any) -> None:
    brokers = aggregates.MAX_BROKERS + 5
    con.execute(
        """insert into blocks by name
        select i * 1000 as first_id, i * 1000 + 999 as last_id, i % ? + if(i < 3000, 0, 1000) as broker_id,
               ? + i * 977 as timestamp_ms from range(60000) t(i)""",
        [brokers, START_MS],
    )
    drawn = draw(con)
    shown = {row["broker_id"] for row in drawn.allocations}
    assert len(shown) == aggregates.MAX_BROKERS + 1
    assert aggregates.OTHERS in shown
    assert sum(row["ids"] for row in drawn.allocations) == 60_000_000
    assert len({row["at_ms"] for row in drawn.allocations}) <= aggregates.MAX_BUCKETS
    assert aggregates.MAX_LIFETIMES / 4 < len(drawn.lifetimes) <= aggregates.MAX_LIFETIMES
    assert drawn.bar_ms > 0
    for broker in shown - {aggregates.OTHERS}:
        bars = [row for row in drawn.lifetimes if row["broker_id"] == broker]
        assert sum(row["blocks"] for row in bars) == sum(
            row["blocks"] for row in drawn.allocations if row["broker_id"] == broker
        )
        assert all(one["to_ms"] == after["from_ms"] for one, after in itertools.pairwise(bars))


def test_a_block_of_all_ids_that_two_brokers_hold_overflows_nothing(con: Any) -> None:
    give(con, (0, MAX_PRODUCER_ID, 1, 0), (0, MAX_PRODUCER_ID, 1, 1), (0, MAX_PRODUCER_ID, 2, 2))
    assert sum(row["ids"] for row in draw(con).allocations) == 3 * (MAX_PRODUCER_ID + 1)


def test_findings_of_one_check_in_one_interval_are_one_point_and_those_without_a_time_none(con: Any) -> None:
    find(con, ("gap", "note", "late", 50), ("gap", "note", "early", 40), ("gap", "note", "far", 9_000_000))
    find(
        con,
        ("overlap", "violation", "worst", 8_000_000),
        ("storm", "warning", "-", None),
        ("storm", "warning", "-", None),
    )
    drawn = draw(con, first_ms=START_MS, last_ms=START_MS + 1000)
    points = [(row["check"], row["findings"], row["first_ms"] - START_MS, row["subject"]) for row in drawn.anomalies]
    assert points == [("overlap", 1, 8_000_000, "worst"), ("gap", 2, 40, "early"), ("gap", 1, 9_000_000, "far")]
    assert drawn.timeless == 2
    assert drawn.seen_ms == (START_MS, START_MS + 9_000_000)


def test_of_a_thousand_findings_the_worst_are_in_the_table(con: Any) -> None:
    find(con, *(("gap", "note", f"n{at}", at) for at in range(1000)))
    find(con, *(("storm", "warning", f"w{at}", at) for at in range(150)), ("overlap", "violation", "v", None))
    drawn = draw(con, first_ms=START_MS, last_ms=START_MS + 1000)
    assert len(drawn.findings) == aggregates.MAX_FINDINGS
    severities = [row["severity"] for row in drawn.findings]
    assert severities == ["violation"] + ["warning"] * 150 + ["note"] * (aggregates.MAX_FINDINGS - 151)
    assert sum(row["findings"] for row in drawn.anomalies) == 1150


def test_files_are_counted_by_member_and_malformed_ones_are_listed(con: Any) -> None:
    archive: dict[str, Any] = {"source": "archive", "member": "1", "problems": 0}
    bad = {"bytes": None, "rows": 3, "problems": 2, "kinds": "torn", "first_position": 48, "detail": "so"}
    log = {"source": "log", "member": "2", "file": "c", "problems": 0}
    insert(con, "files", [archive | {"file": "a", "bytes": 10, "rows": 2}, archive | {"file": "b"} | bad, log])
    names = ("topic", "partition", "batches", "records", "first_timestamp_ms", "last_timestamp_ms")
    days = (("t", 0, 5, 50, 7, 9), ("t", 0, 5, 50, None, 12), ("t", 1, 1, 1, 8, 8))
    insert(con, "batches_daily", [dict(zip(names, day, strict=True)) for day in days])
    drawn = draw(con)
    assert drawn.sources == [
        {"source": "archive", "member": "1", "files": 2, "bytes": 10, "rows": 5, "bad": 1},
        {"source": "log", "member": "2", "files": 1, "bytes": None, "rows": None, "bad": 0},
    ]
    assert [(row["file"], row["problems"], row["first_position"]) for row in drawn.bad_files] == [("b", 2, 48)]
    assert drawn.partitions == [
        {"topic": "t", "partitions": 2, "batches": 11, "records": 101, "first_ms": 7, "last_ms": 12}
    ]


def test_times_are_cut_into_a_bounded_number_of_round_steps() -> None:
    most = aggregates.MAX_BUCKETS
    for span in (1, 1000, 59_000, 3_600_000, 10**9, 10**12, 2**62):
        step = aggregates.step_ms((START_MS, START_MS + span - 1), most)
        assert (START_MS + span - 1) // step - START_MS // step + 1 <= most
        assert step <= 10 or span / step > most / 4
