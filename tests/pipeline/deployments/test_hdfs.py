"""An audit whose files, state and outputs are on a real HDFS: read over HTTP, written by Spark and by Hadoop."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pidkeeper.cli.main import cli
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline.audit import AuditOptions, draw_again, run_audit
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.verdict import read_verdict
from pidkeeper.pipeline.store import open_store
from pidkeeper.pipeline.stream import StreamOptions, run_stream
from pidkeeper.protocol.messages import AllocatedBlock
from tests.pipeline.small_audits import CHECKS, SEGMENTS, comparable, grow, rows, write_files
from tests.pipeline.stand_ins import overlap
from tests.support import hdfs
from tests.support.hdfs import SUPERUSER, Hdfs
from tests.support.member_files import CLUSTER, MemberFiles
from tests.support.quorum_tables import tiny_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def tiny(spark: SparkSession) -> Iterator[None]:
    """Planning and compiling is all the work here."""
    with tiny_tables(spark):
        yield


@pytest.fixture(scope="module")
def dfs(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Hdfs]:
    """With a directory of the user that runs the tests, and one that this user may not touch."""
    if (reason := hdfs.why_unavailable()) is not None:
        pytest.skip(reason)
    system = Hdfs(tmp_path_factory.mktemp("hdfs"))
    try:
        system.start()
        system.make("/audit", getpass.getuser(), 0o755)
        system.make("/locked", SUPERUSER, 0o700)
        yield system
    finally:
        system.close()


def test_an_audit_on_hdfs_is_that_of_the_same_files_here(spark: SparkSession, dfs: Hdfs, tmp_path: Path) -> None:
    member = write_files(tmp_path)
    dfs.put(tmp_path / "data", "/audit/data")
    dfs.put(tmp_path / "kafka", "/audit/kafka")
    web, out, state = f"{dfs.web}/audit", f"{dfs.uri}/audit/out", f"{dfs.uri}/audit/state"
    there = AuditPaths([f"{web}/data/*"], [f"{web}/kafka"])
    here = AuditPaths([str(tmp_path / "data")], [str(tmp_path / "kafka")])

    expected = run_audit(spark, AuditOptions(here, tmp_path / "out"), CHECKS)
    first = run_audit(spark, AuditOptions(there, out, state), CHECKS)
    assert comparable(first, web) == comparable(expected, str(tmp_path))
    assert first.files_read_anew == 2 + len(SEGMENTS)
    assert [bad.file for bad in first.bad_files] == [f"{web}/kafka/torn-0/{100:020d}.log"]
    for name in tables.TABLES:
        found = rows(spark, out, name, web)
        assert found == rows(spark, tmp_path / "out", name, str(tmp_path)), name

    for name in grow(tmp_path, member):
        dfs.put(tmp_path / name, f"/audit/{name}")
    second = run_audit(spark, AuditOptions(there, out, state), CHECKS)
    assert (second.files_read_anew, second.batches) == (2, first.batches + 1)
    assert (first.watermark.log_offsets["1"], second.files_read) == (50, first.files_read + 1)
    assert read_verdict(out, spark) == second
    assert dfs.names("/audit/out") == ["batches_daily", "blocks", "files", "findings", "report.html", "verdict.json"]
    kept = ["archive_blocks", "archive_blocks_problems", "batches", "batches_problems", "current", "state.json"]
    assert dfs.names("/audit/state") == kept

    page = open_store(out, spark).read("report.html")
    open_store(out, spark).write("report.html", b"")
    assert draw_again(spark, out) == second
    assert open_store(out, spark).read("report.html") == page


def ask(out: str | Path, producer_id: int) -> tuple[int, Any]:
    """The exit code and the answer of `pidkeeper audit owner`."""
    ran = CliRunner().invoke(cli, ["audit", "owner", str(producer_id), "--out", str(out), "-o", "json"])
    assert ran.stdout, ran.stderr
    return ran.exit_code, json.loads(ran.stdout)


def test_an_audit_on_hdfs_is_asked_for_owners_over_http(spark: SparkSession, dfs: Hdfs, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "data" / "1").archive((0, 5))
    second = MemberFiles(tmp_path / "data" / "2", 2)
    again = [AllocatedBlock(25, 34, 8, 3, 9, 1_700_000_000_000), AllocatedBlock(60, 69, 8, 3, 10, 1_701_000_000_000)]
    AllocationArchive(second.files, second.path / "archive", CLUSTER).append(again, 5, 11)
    paths = AuditPaths([str(tmp_path / "data")])
    expected = run_audit(spark, AuditOptions(paths, tmp_path / "out"), CHECKS)
    assert expected.checks["overlap"].violations > 0
    run_audit(spark, AuditOptions(paths, f"{dfs.uri}/audit/owned"), CHECKS)
    places = {12: "owned", 27: "owned_twice", 65: "owned", 55: "between", 70: "above"}
    for producer_id, place in places.items():
        found = ask(f"{dfs.web}/audit/owned", producer_id)
        assert found == ask(tmp_path / "out", producer_id)
        assert found[1]["place"] == place
    for where, reason in (
        ("/audit/none", "is not there"),
        ("/locked/out", "Permission denied"),
    ):
        ran = CliRunner().invoke(cli, ["audit", "owner", "5", "--out", f"{dfs.web}{where}"])
        assert (ran.exit_code, reason in ran.stderr) == (1, True), ran.output


def test_without_a_state_the_stage_is_beside_the_output_and_goes(
    spark: SparkSession, dfs: Hdfs, tmp_path: Path
) -> None:
    MemberFiles(tmp_path / "1").archive((0, 5))
    (tmp_path / "1" / "archive" / f"{5:020d}-{6:020d}.arc").write_bytes(b"PID")
    dfs.put(tmp_path / "1", "/audit/bad/1")
    paths = AuditPaths([f"{dfs.web}/audit/bad"])
    with pytest.raises(LoadingError, match=re.escape(f"{dfs.web}/audit/bad/1/archive/{5:020d}-{6:020d}.arc, byte")):
        run_audit(spark, AuditOptions(paths, f"{dfs.uri}/audit/failed", fail=True), CHECKS)
    assert dfs.names("/audit/failed") == []


def test_a_directory_that_may_not_be_touched_is_named(spark: SparkSession, dfs: Hdfs, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").archive((0, 5))
    locked = f"{dfs.uri}/locked/out"
    with pytest.raises(OSError, match=f"{locked} cannot be used: .*Permission denied"):
        run_audit(spark, AuditOptions(AuditPaths([str(tmp_path)]), locked), CHECKS)
    with pytest.raises(LoadingError, match="Permission denied"):
        run_audit(spark, AuditOptions(AuditPaths([f"{dfs.web}/locked/x"]), tmp_path / "out"), CHECKS)
    with pytest.raises(LoadingError, match="there is nothing at"):
        run_audit(spark, AuditOptions(AuditPaths([f"{dfs.web}/none"]), tmp_path / "out"), CHECKS)


@pytest.mark.parametrize("setting", ["org.apache.hadoop.fs.Hdfs", ""])
def test_a_file_is_replaced_with_and_without_a_rename_that_replaces(
    spark: SparkSession, dfs: Hdfs, setting: str
) -> None:
    name = "fs.AbstractFileSystem.hdfs.impl"
    spark.conf.set(name, setting)
    try:
        store = open_store(f"{dfs.uri}/audit/replaced{len(setting)}/", spark)
        store.make()
        for data in (b"\x00\xff", b"", b"\xfe" * 100_000):
            store.write("deep/x", data)
            assert store.read("deep/x") == data
        assert (store.names(), store.names("deep"), store.names("none")) == (["deep"], ["x"], [])
        assert store.exists("deep/x") and not store.exists("x")
        store.delete("deep")
        with pytest.raises(FileNotFoundError, match=f"there is nothing at {dfs.uri}/audit/replaced"):
            store.read("deep/x")
        store.write("y", b"1")
        with pytest.raises(OSError, match="/y"):
            store.write("y/z", b"1")
        assert store.names() == ["y"]
    finally:
        spark.conf.unset(name)


def test_a_stream_keeps_its_place_on_hdfs(spark: SparkSession, dfs: Hdfs, tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5))
    dfs.put(tmp_path / "1", "/audit/stream/1")
    said: list[str] = []
    options = StreamOptions([f"{dfs.web}/audit/stream"], f"{dfs.uri}/audit/seen", once=True)
    assert run_stream(spark, options, {"overlap": overlap}, said.append) == 0
    member.archive((5, 7))
    dfs.put(member.found("archive")[-1], f"/audit/stream/1/archive/{member.found('archive')[-1].name}")
    assert run_stream(spark, options, {"overlap": overlap}, said.append) == 0
    assert [line.partition(":")[2] for line in said if line.startswith("batch")] == [
        " 5 copies of blocks from 1 member, IDs 0 to 49: no new findings",
        " 2 copies of blocks from 1 member, IDs 50 to 69: no new findings",
    ]
