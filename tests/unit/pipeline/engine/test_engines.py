"""Kernels in this process: what is given, in which order, and by whom it is judged. Record batches as bytes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.cli.local_cluster import import_root
from pidkeeper.pipeline.engine.blobs import from_blob, to_blob
from pidkeeper.pipeline.engine.duck import closed_after, connect
from pidkeeper.pipeline.engine.engine import DIRECT, Engine, Keyed, Named
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.engine.waiting import ALONE_BYTES, WaitingEngine
from pidkeeper.pipeline.gathering import AuditPlan, gather
from pidkeeper.pipeline.segments.gathering import SegmentsPlan, SegmentsTask

Sent = tuple[int, str, list[int]]
"""What a kernel puts where: bucket, name, values of the rows."""


def rows(values: Sequence[int]) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())})


def values(batch: Any) -> list[int]:
    found: list[int] = batch.column("value").to_pylist()
    return found


def read(part: list[Sent]) -> Iterator[Keyed]:
    for bucket, name, sent in part:
        yield bucket, name, rows(sent)


def judge(bucket: int, found: Iterator[Named]) -> Iterator[Named]:
    """All rows of the bucket, under its number and their name; and that it was judged."""
    yield "judged", rows([bucket])
    for name, batch in found:
        yield f"{bucket} {name}", batch


def told(found: Iterator[Named]) -> list[tuple[str, list[int]]]:
    return [(name, values(batch)) for name, batch in found]


def repeated(part: int, times: int) -> Iterator[Named]:
    for number in range(times):
        yield f"of {part}", rows([part, number])


def test_a_map_gives_all_of_every_part_in_order() -> None:
    engine: Engine = LocalEngine()
    found = told(engine.map(partial(repeated, times=2), [3, 1, 2]))
    assert found == [(f"of {part}", [part, number]) for part in (3, 1, 2) for number in range(2)]
    assert told(engine.map(partial(repeated, times=2), [])) == []


def test_a_map_reads_a_part_when_what_came_before_is_taken() -> None:
    read_parts = []

    def kernel(part: int) -> Iterator[Named]:
        read_parts.append(part)
        yield "one", rows([part])

    found = LocalEngine().map(kernel, [1, 2, 3])
    next(found)
    assert read_parts == [1]


def test_what_is_direct_comes_as_it_is_and_every_bucket_is_judged_once() -> None:
    parts: list[list[Sent]] = [
        [(2, "a", [1, 2]), (DIRECT, "now", [7]), (0, "a", [3])],
        [],
        [(2, "b", [4]), (2, "a", [5]), (DIRECT, "now", [8])],
    ]
    assert told(LocalEngine().shuffle(read, judge, parts, 4)) == [
        ("now", [7]),
        ("now", [8]),
        ("judged", [0]),
        ("0 a", [3]),
        ("judged", [1]),
        ("judged", [2]),
        ("2 a", [1, 2]),
        ("2 a", [5]),
        ("2 b", [4]),
        ("judged", [3]),
    ]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(DIRECT, 4), st.sampled_from("abc"), st.lists(st.integers(0, 99), max_size=4)),
            max_size=6,
        ),
        max_size=5,
    )
)
def test_each_bucket_gets_all_of_its_rows_in_the_order_of_the_parts(parts: list[list[Sent]]) -> None:
    found = told(LocalEngine().shuffle(read, judge, parts, 5))
    assert [sent for name, sent in found if name == "judged"] == [[bucket] for bucket in range(5)]
    for bucket in range(DIRECT, 5):
        for name in "abc":
            due = [sent for part in parts for one in part for sent in one[2] if one[:2] == (bucket, name)]
            under = name if bucket == DIRECT else f"{bucket} {name}"
            assert [value for one, sent in found if one == under for value in sent] == due
    assert sum(len(sent) for name, sent in found if name != "judged") == sum(
        len(one[2]) for part in parts for one in part
    )


def test_a_judge_need_not_look_at_all_of_its_rows() -> None:
    def careless(bucket: int, found: Iterator[Named]) -> Iterator[Named]:
        yield next(found, ("nothing", rows([bucket])))

    parts: list[list[Sent]] = [[(0, "a", [1]), (0, "a", [2]), (1, "b", [3])]]
    assert told(LocalEngine().shuffle(read, careless, parts, 3)) == [("a", [1]), ("b", [3]), ("nothing", [2])]


def test_there_may_be_more_buckets_than_open_files() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    parts: list[list[Sent]] = [[(bucket, "a", [bucket]) for bucket in range(400)]] * 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(300, before[1]), before[1]))
    try:
        found = told(LocalEngine().shuffle(read, judge, parts, 400))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [sent for name, sent in found if name != "judged"] == [[bucket] for bucket in range(400) for _ in range(2)]


def test_rows_are_whole_after_the_files_of_the_shuffle_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = list(LocalEngine().shuffle(read, judge, [[(0, "a", list(range(5000)))]], 1))
    assert list(tmp_path.iterdir()) == []
    assert told(iter(found))[1] == ("0 a", list(range(5000)))


def test_the_files_of_a_shuffle_are_gone_also_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def failing(bucket: int, found: Iterator[Named]) -> Iterator[Named]:
        yield from found
        assert list(tmp_path.iterdir()) != []
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        told(LocalEngine().shuffle(read, failing, [[(0, "a", [1])]], 1))
    assert list(tmp_path.iterdir()) == []


# Blobs.

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("large", pa.decimal128(38)),
        ("block", pa.struct([("offset", pa.int64()), ("broker_id", pa.int32())])),
        ("moments", pa.list_(pa.int64())),
    ]
)
ROWS = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(max_size=5),
        "large": st.none() | st.decimals(-(10**37), 10**37, places=0),
        "block": st.none()
        | st.fixed_dictionaries({"offset": st.none() | st.integers(0, 9), "broker_id": st.integers(-1, 9)}),
        "moments": st.none() | st.lists(st.integers(0, 9), max_size=3),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(ROWS, max_size=8), st.integers(0, 3))
def test_a_batch_is_the_same_after_the_way_as_a_blob(content: list[dict[str, Any]], start: int) -> None:
    batch = pa.RecordBatch.from_pylist(content, schema=SCHEMA)
    blob = to_blob(batch)
    assert isinstance(blob, bytes)
    back = from_blob(blob)
    assert (back.schema, back.to_pylist()) == (SCHEMA, batch.to_pylist())
    # A part of a batch goes without the rest of it.
    assert from_blob(to_blob(batch.slice(start))).to_pylist() == batch.slice(start).to_pylist()
    assert from_blob(pa.py_buffer(blob)).equals(back)


def test_a_slice_of_a_large_batch_is_a_small_blob() -> None:
    large = rows(range(100_000))
    assert len(to_blob(large.slice(50_000, 10))) < 2000 < len(to_blob(large))


# DuckDB.


def test_a_database_is_bounded_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def spilled() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    with closed_after():
        for _ in range(2):
            with connect(63) as con:
                assert con.sql("select current_setting('threads')").fetchall() == [(1,)]
                assert con.sql("select current_setting('memory_limit')").fetchall() == [("63.0 MiB",)]
                con.execute("create table large as select repeat(md5(i::varchar), 8) as text from range(600_000) r(i)")
                assert spilled() > 32 << 20
                assert con.sql("select count(*), sum(length(text)) from large").fetchall() == [(600_000, 600_000 * 256)]
            assert spilled() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_spilled_leaves_nothing_behind_its_process(tmp_path: Path) -> None:
    program = (
        "from pidkeeper.pipeline.engine.duck import connect\n"
        "with connect(63) as con:\n"
        "    con.execute('create table large as select repeat(md5(i::varchar), 8) from range(600_000) r(i)')\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(import_root())}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60.0, env=environment)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", [nullcontext(), pytest.raises(ZeroDivisionError)], ids=["well", "badly"])
def test_no_database_knows_of_another(ends: AbstractContextManager[Any]) -> None:
    with connect() as one:
        one.execute("create table mine as select 1; create temp table aside as select 2")
        with ends, connect() as other:
            assert_empty(other)
            other.execute("create table mine as select 3; create temp table aside as select 4")
            other.execute("create macro of_mine() as 4")
            if not isinstance(ends, nullcontext):
                raise ZeroDivisionError
        assert one.sql("select * from mine, aside").fetchall() == [(1, 2)]
    with connect() as con:
        assert_empty(con)
        databases = con.sql("select count(*) from duckdb_databases() where not internal").fetchall()
        assert databases == [(2,)], "the first, and its own"
        assert con.sql("select is_time(-1), day_of(0)").fetchall() == [(False, "1970-01-01")]


def assert_empty(con: Any) -> None:
    """It knows nothing that the test made in other databases."""
    for name in ("from mine", "from aside", "select of_mine()"):
        with pytest.raises(duckdb.CatalogException):
            con.sql(name).fetchall()


def test_pandas_is_there_for_whoever_asks_for_it() -> None:
    program = (
        "import sys\n"
        "from pidkeeper.pipeline.engine.no_pandas import do_without_pandas\n"
        "do_without_pandas()\n"
        "import pyarrow as pa\n"
        "table = pa.table({'value': [1, 2]})\n"
        "assert 'pandas' not in sys.modules\n"
        "assert table.to_pandas()['value'].tolist() == [1, 2]\n"
        "import pandas\n"
        "do_without_pandas()\n"
        "assert pa.array(pandas.Series([1.0, None])).to_pylist() == [1.0, None]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60.0, cwd=import_root())


def test_an_engine_that_waits_is_started_once_and_only_if_it_is_used() -> None:
    started: list[Engine] = []

    def start() -> Engine:
        started.append(LocalEngine())
        return started[-1]

    engine: Engine = WaitingEngine(start)
    assert started == []
    assert told(engine.map(partial(repeated, times=1), [1])) == [("of 1", [1, 0])]
    assert told(engine.shuffle(read, judge, [[(0, "one", [5])]], 1)) == [("judged", [0]), ("0 one", [5])]
    assert len(started) == 1


@pytest.mark.parametrize(("price", "starts"), [(ALONE_BYTES, 0), (ALONE_BYTES + 1, 1)])
def test_what_costs_little_is_gathered_without_it(price: int, starts: int) -> None:
    started: list[Engine] = []

    def start() -> Engine:
        started.append(LocalEngine())
        return started[-1]

    plan = AuditPlan(None, SegmentsPlan([SegmentsTask([])], 1), price)
    assert list(gather(WaitingEngine(start), plan)) == []
    assert len(started) == starts
