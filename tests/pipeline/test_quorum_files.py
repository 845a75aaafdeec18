"""The checks of the quorum's own data from files that the product's own storage classes wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pidkeeper.snapshots.archive_format import decode_archive, encode_archive
from tests.support.member_files import CLUSTER, MemberFiles
from tests.support.quorum_tables import Row, run, tiny_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark")

from pidkeeper.pipeline.checks.quorum import QUORUM_CHECKS
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.pipeline.schemas import BATCHES, PROBLEMS


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with tiny_tables(spark) as tiny:
        yield tiny


def findings(session: SparkSession, path: Path) -> list[Row]:
    def load(source: str, name: str) -> DataFrame:
        return session.read.format(source).option("table", name).load(str(path)).localCheckpoint()

    inputs = AuditInputs(
        archive_blocks=load("pidkeeper_archive", "blocks"),
        archive_files=load("pidkeeper_archive", "files"),
        snapshots=load("pidkeeper_archive", "snapshots"),
        log_records=load("pidkeeper_log", "records"),
        log_files=load("pidkeeper_log", "files"),
        batches=session.createDataFrame([], BATCHES),
        problems=session.createDataFrame([], PROBLEMS),
    )
    return [row for row in run(QUORUM_CHECKS, inputs) if row["severity"] != "note"]


def names(rows: list[Row]) -> set[tuple[str, int | None, int | None]]:
    return {(row["check"], row.get("offset"), row.get("first_id")) for row in rows}


AS_WRITTEN = {("storm", None, 40), ("gap", 4, 0)}
"""Of offsets from 4 on, a block in each millisecond: a storm, and nothing is there that could explain IDs 0 to 39."""


def write_members(path: Path) -> None:
    for node in (1, 2, 3):
        member = MemberFiles(path / str(node), node)
        member.archive((4, 60), (60, 90))
        member.snapshot(90, 90)


def spoil(file: Path, offset: int, **columns: int) -> int:
    """Write an archive file anew with another block at one offset; the byte position of its row."""
    header, rows = decode_archive(file.read_bytes())
    changed = [msgspec.structs.replace(row, **columns) if row.offset == offset else row for row in rows]
    file.write_bytes(encode_archive(CLUSTER, header.from_offset, header.to_offset, changed))
    return 128 + 48 * (offset - header.from_offset)


@pytest.mark.timeout(300)
def test_faults_in_files_are_found_where_they_stand(session: SparkSession, tmp_path: Path) -> None:
    write_members(tmp_path)
    assert names(findings(session, tmp_path)) == AS_WRITTEN

    second = tmp_path / "2" / "archive" / "00000000000000000004-00000000000000000060.arc"
    position = spoil(second, 30, broker_id=9)
    (row,) = [row for row in findings(session, tmp_path) if row["check"] not in {"storm", "gap"}]
    assert (row["check"], row["member"], row["file"], row["position"]) == (
        "replicas_disagree",
        "2",
        str(second),
        position,
    )


@pytest.mark.timeout(300)
def test_an_id_that_two_files_give_out_is_found(session: SparkSession, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").archive((4, 60), (60, 90))
    first = tmp_path / "1" / "archive" / "00000000000000000004-00000000000000000060.arc"
    spoil(first, 59, last=600)
    rows = findings(session, tmp_path)
    assert names(rows) == AS_WRITTEN | {("overlap", 60, 600)}
    (row,) = [row for row in rows if row["check"] == "overlap"]
    assert (row["severity"], row["subject"], row["position"]) == ("violation", "ID 600", 128)
    assert f"(member 1, {first}, byte {128 + 48 * 55})" in row["detail"]


@pytest.mark.timeout(300)
def test_a_log_beside_its_archive(session: SparkSession, tmp_path: Path) -> None:
    """The log's records of offsets 1 to 3 name epoch 3, which their offsets are not above."""
    member = MemberFiles(tmp_path / "1")
    member.archive((4, 60))
    member.log(90, 80)
    member.snapshot(60, 60)
    rows = findings(session, tmp_path)
    impossible = {("stale_epoch", offset, 10 * offset) for offset in (1, 2, 3)}
    assert names(rows) == impossible | {("storm", None, 10), ("gap", 1, 0)}
    (gap,) = [row for row in rows if row["check"] == "gap"]
    assert "no record between offsets -1 and 1 explains it" in gap["detail"]
