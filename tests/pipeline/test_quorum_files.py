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


def archives(path: Path) -> list[Path]:
    return sorted((path / "archive").iterdir())


def write_members(path: Path) -> None:
    """Of offsets from 4 on there are archives, of all to 79 logs, whose end is not committed."""
    for node in (1, 2, 3):
        member = MemberFiles(path / str(node), node)
        member.archive((4, 84), (84, 110))
        member.log(90, 80)
        member.snapshot(110, 110)


def spoil(file: Path, offset: int, **columns: int) -> int:
    """Write an archive file anew with another block at one offset; the byte position of its row."""
    header, rows = decode_archive(file.read_bytes())
    changed = [msgspec.structs.replace(row, **columns) if row.offset == offset else row for row in rows]
    file.write_bytes(encode_archive(CLUSTER, header.from_offset, header.to_offset, changed))
    return 128 + 48 * (offset - header.from_offset)


AS_WRITTEN = {("storm", None, 10), ("gap", 1, 0), *(("stale_epoch", offset, 10 * offset) for offset in (1, 2, 3))}
"""A block in each millisecond: a storm. Nothing is there that could explain IDs 0 to 9, and the log's records of
offsets 1 to 3 name epoch 3, which their offsets are not above."""


@pytest.mark.timeout(300)
def test_faults_in_files_are_found_where_they_stand(session: SparkSession, tmp_path: Path) -> None:
    """A copy with another broker in one member, and in all an ID that two archive files give out."""
    write_members(tmp_path)
    first, second = (archives(tmp_path / node)[0] for node in "12")
    position = spoil(second, 30, broker_id=9)
    for node in "123":
        end = spoil(archives(tmp_path / node)[0], 83, last=840)
    rows = findings(session, tmp_path)
    assert names(rows) == AS_WRITTEN | {("replicas_disagree", 30, 300), ("overlap", 84, 840)}
    assert len(rows) == len(names(rows))
    of = {row["check"]: row for row in rows}
    assert (
        of["replicas_disagree"]["member"],
        of["replicas_disagree"]["file"],
        of["replicas_disagree"]["position"],
    ) == (
        "2",
        str(second),
        position,
    )
    overlap = of["overlap"]
    assert (overlap["severity"], overlap["subject"], overlap["position"]) == ("violation", "ID 840", 128)
    assert end == 128 + 48 * 79 and f"(member 1, {first}, byte {end})" in overlap["detail"]
    assert "no record between offsets -1 and 1 explains it" in of["gap"]["detail"]
