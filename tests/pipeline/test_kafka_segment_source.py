"""The data source in a real Spark session: golden segments, real ones, and options that are none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pidkeeper.pipeline.formats.record_batch import COMPRESSIONS, MARKERS, TIMESTAMP_TYPES, last_sequence
from tests.pipeline.write_golden_segments import GOLDEN

pytestmark = pytest.mark.timeout(400)
EXPECTED = {path.parent.name: json.loads(path.read_text()) for path in sorted(GOLDEN.glob("*/*.json"))}


def load(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("kafka_segment").options(**options).load(str(path))


def row_of(topic: str, batch: dict[str, Any]) -> dict[str, Any]:
    """A row of the table as the expectation next to a golden segment has it."""
    bits = batch["attributes"]
    same = ("position", "base_offset", "batch_length", "partition_leader_epoch", "magic", "crc", "attributes")
    producer = ("producer_id", "producer_epoch", "base_sequence", "record_count", "coordinator_epoch")
    return {name: batch[name] for name in same + producer} | {
        "topic": topic,
        "partition": 0,
        "segment_base_offset": 100,
        "last_offset": batch["base_offset"] + batch["last_offset_delta"],
        "compression": COMPRESSIONS[bits & 7],
        "timestamp_type": TIMESTAMP_TYPES[bits >> 3 & 1],
        "is_transactional": bool(bits & 16),
        "is_control": bool(bits & 32),
        "has_delete_horizon": bool(bits & 64),
        "base_timestamp_ms": batch["base_timestamp"],
        "max_timestamp_ms": batch["max_timestamp"],
        "last_sequence": last_sequence(batch["base_sequence"], batch["last_offset_delta"]),
        "marker": None if batch["marker_type"] is None else MARKERS[batch["marker_type"]],
        "member": str(GOLDEN),
        "file": str(GOLDEN / f"{topic}-0" / "00000000000000000100.log"),
    }


def test_golden_batches_are_rows(spark: SparkSession) -> None:
    rows = [row.asDict() for row in load(spark, GOLDEN).orderBy("file", "position").collect()]
    expected = [row_of(name.removesuffix("-0"), each) for name, case in EXPECTED.items() for each in case["batches"]]
    assert rows == sorted(expected, key=lambda row: (row["file"], row["position"]))


def test_golden_problems_are_rows(spark: SparkSession) -> None:
    rows = load(spark, GOLDEN, table="problems").select("file", "kind", "position").collect()
    assert sorted((Path(row.file).parent.name, row.kind, row.position) for row in rows) == sorted(
        (name, kind, position) for name, case in EXPECTED.items() for kind, position in case["problems"]
    )


def test_every_golden_file_is_summed_up(spark: SparkSession) -> None:
    rows = {Path(row.file).parent.name: row for row in load(spark, GOLDEN, table="files").collect()}
    assert set(rows) == set(EXPECTED)
    for name, case in EXPECTED.items():
        row, batches = rows[name], case["batches"]
        assert (row.batches, row.problems) == (len(batches), len(case["problems"])), name
        assert row.records == sum(each["record_count"] for each in batches), name
        assert row.first_offset == (batches[0]["base_offset"] if batches else None), name
        assert row.bytes == (GOLDEN / name / "00000000000000000100.log").stat().st_size, name


def test_what_a_real_broker_wrote_is_read_as_its_node(spark: SparkSession, kafka_logs: Path) -> None:
    rows = load(spark, kafka_logs).where("topic = 'transactions'").collect()
    assert {row.member for row in rows} == {"1"}
    assert {row.marker for row in rows} == {None, "commit", "abort"}
    assert all((row.marker is not None) == row.is_control for row in rows)
    assert {row.kind for row in load(spark, kafka_logs, table="problems").collect()} <= {"empty"}


def test_a_bad_file_ends_the_reading_only_if_asked_to(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"bad-crc-0/00000000000000000100\.log, byte 75: bad_crc"):
        load(spark, GOLDEN / "bad-crc-0", on_bad_file="fail").collect()
    assert load(spark, GOLDEN / "plain-0", on_bad_file="fail").count() == 2


def test_a_glob_reads_several_topics(spark: SparkSession, tmp_path: Path) -> None:
    for topic in ("one-0", "two-0"):
        shutil.copytree(GOLDEN / "transactional-0", tmp_path / topic)
    assert load(spark, tmp_path / "*-0").groupBy("topic").count().orderBy("topic").collect() == [("one", 4), ("two", 4)]


@pytest.mark.parametrize(
    ("path", "options", "says"),
    [
        (GOLDEN, {"table": "records"}, "there is no table"),
        (GOLDEN, {"on_bad_file": "ignore"}, "on_bad_file is report or fail"),
        (GOLDEN / "nowhere", {}, "there is nothing at"),
    ],
)
def test_an_option_that_is_none_is_refused(spark: SparkSession, path: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(PySparkException, match=says):
        load(spark, path, **options).collect()


def test_every_column_has_a_comment() -> None:
    from pidkeeper.pipeline.schemas import BATCHES_TABLES

    assert all(field.metadata["comment"] for table in BATCHES_TABLES.values() for field in table.fields)
