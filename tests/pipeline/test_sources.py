"""The sources through Spark itself: rows, damage, and a stream over merges and a restart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pidkeeper.controller.storage.archive import MAX_SMALL_FILES
from pidkeeper.pipeline.schemas import ARCHIVE_TABLES, LOG_TABLES
from pidkeeper.pipeline.sources import register
from pidkeeper.pipeline.sources.write_ahead_log import LogSource
from pidkeeper.protocol.messages import AllocatedBlock
from tests.support.member_files import MemberFiles, blocks
from tests.support.source_rows import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def load(session: SparkSession, source: str, path: Path, name: str, **options: str) -> DataFrame:
    return session.read.format(source).option("table", name).options(**options).load(str(path))


def as_blocks(frame: DataFrame) -> list[AllocatedBlock]:
    return [
        AllocatedBlock(row.first_id, row.last_id, row.broker_id, row.broker_epoch, row["offset"], row.timestamp_ms)
        for row in frame.orderBy("member", "offset").collect()
    ]


def test_blocks_come_with_the_bytes_that_they_stand_at(session: SparkSession, tmp_path: Path) -> None:
    for node in (1, 2):
        MemberFiles(tmp_path / str(node), node).archive((0, 400), (400, 1000), (1200, 1210))
    frame = load(session, "pidkeeper_archive", tmp_path, "blocks")
    expected = [*blocks(0, 1000), *blocks(1200, 1210)]
    assert as_blocks(frame) == expected * 2
    for row in frame.collect()[::20]:
        data = Path(row.file).read_bytes()[row.position :]
        assert int.from_bytes(data[:8]) == row.first_id
        assert int.from_bytes(data[16:24]) == row["offset"]
    assert {row.member for row in frame.select("member").distinct().collect()} == {"1", "2"}


def test_every_table_has_the_schema_that_it_names(session: SparkSession, tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 40))
    member.log(60, 60)
    member.snapshot(50, 50)
    for source, tables in (("pidkeeper_archive", ARCHIVE_TABLES), ("pidkeeper_log", LOG_TABLES)):
        for name, schema in tables.items():
            frame = load(session, source, tmp_path, name)
            assert frame.schema.fieldNames() == schema.fieldNames()
            assert (frame.count() > 0) == (name != "problems")


def test_records_are_those_that_the_source_reads_without_a_session(session: SparkSession, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").log(60, 50)
    rows = load(session, "pidkeeper_log", tmp_path, "records").orderBy("index").collect()
    assert [row.asDict() for row in rows] == table(LogSource, tmp_path, "records")


def test_bad_files_are_named_and_the_others_are_read(session: SparkSession, tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 8), (8, 9), (9, 12))
    damaged, empty, torn, _ = member.found("archive")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    empty.write_bytes(b"")
    torn.write_bytes(torn.read_bytes()[:150])
    (member.path / "archive" / "notes.arc").write_bytes(b"notes")
    assert as_blocks(load(session, "pidkeeper_archive", tmp_path, "blocks")) == blocks(9, 12)
    found = load(session, "pidkeeper_archive", tmp_path, "problems").collect()
    assert {(row.file, row.kind) for row in found} == {
        (str(damaged), "bad_crc"),
        (str(empty), "empty"),
        (str(torn), "torn"),
        (str(member.path / "archive" / "notes.arc"), "foreign"),
    }
    with pytest.raises(Exception, match=damaged.name):
        load(session, "pidkeeper_archive", damaged, "blocks", on_bad_file="fail").collect()


def test_a_stream_gives_every_block_once_over_merges_and_restarts(session: SparkSession, tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    total = 0
    for size in (5, 1, MAX_SMALL_FILES - 4, 7, 2 * MAX_SMALL_FILES):
        member.archive(*[(start, start + 1) for start in range(total, total + size)])
        total += size
        drain(session, member.path, out, checkpoint)
        drain(session, member.path, out, checkpoint)
        assert as_blocks(session.read.parquet(str(out))) == blocks(0, total)
    # As after a kill between the writing of a batch and the note that it is done: the batch is read again.
    newest = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    for path in (checkpoint / "commits").glob(f"*{newest}*"):
        path.unlink()
    drain(session, member.path, out, checkpoint)
    assert as_blocks(session.read.parquet(str(out))) == blocks(0, total)
    shutil.rmtree(checkpoint)


def drain(session: SparkSession, path: Path, out: Path, checkpoint: Path) -> None:
    stream: Any = session.readStream.format("pidkeeper_archive").load(str(path))
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(100)
    finally:
        query.stop()
