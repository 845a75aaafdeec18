"""An audit of files in a bucket of S3, which pyarrow reads; Hadoop writes the state and the outputs beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from pidkeeper.pipeline.audit import AuditOptions, draw_again, run_audit
from pidkeeper.pipeline.owner import find_owner
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.verdict import read_verdict
from pidkeeper.pipeline.sources.files import find_files
from pidkeeper.pipeline.store import is_uri, open_store
from tests.pipeline.small_audits import CHECKS, SEGMENTS, comparable, grow, rows, write_files
from tests.support import s3
from tests.support.quorum_tables import tiny_tables
from tests.support.s3 import BUCKET, S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def tiny(spark: SparkSession) -> Iterator[None]:
    """Planning and compiling is all the work here."""
    with tiny_tables(spark):
        yield


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """For a state and outputs: in the bucket too, where Spark can write to it."""
    return str(tmp_path / "there") if s3.why_no_s3a() else str(request.getfixturevalue("s3a"))


@pytest.mark.usefixtures("tiny")
def test_an_audit_of_a_bucket_is_that_of_the_same_files_here(
    spark: SparkSession, bucket: S3, place: str, tmp_path: Path
) -> None:
    member = write_files(tmp_path)
    member.snapshot(50, 50)
    bucket.put(tmp_path / "data", "data")
    bucket.put(tmp_path / "kafka", "kafka")
    root = f"s3://{BUCKET}"
    there = AuditPaths([f"{root}/data/*{bucket.query}"], [f"{root}/kafka{bucket.query}"])
    here = AuditPaths([str(tmp_path / "data")], [str(tmp_path / "kafka")])
    out, state = f"{place}/out", f"{place}/state"
    first = run_audit(spark, AuditOptions(there, out, state), CHECKS)
    assert first.files_read_anew == 2 + len(SEGMENTS)
    assert [bad.file for bad in first.bad_files] == [f"{root}/kafka/torn-0/{100:020d}.log"]

    for name in grow(tmp_path, member):
        bucket.put(tmp_path / name, name)
    second = run_audit(spark, AuditOptions(there, out, state), CHECKS)
    expected = run_audit(spark, AuditOptions(here, tmp_path / "out"), CHECKS)
    assert (second.files_read_anew, second.batches) == (2, first.batches + 1)
    anew = msgspec.structs.replace(second, files_read_anew=expected.files_read_anew)
    assert comparable(anew, root) == comparable(expected, str(tmp_path))
    for name in tables.TABLES:
        assert rows(spark, out, name, root) == rows(spark, tmp_path / "out", name, str(tmp_path)), name

    assert read_verdict(out, spark) == second
    blocks = find_owner(out + bucket.query if is_uri(out) else out, 305).blocks
    assert blocks == find_owner(tmp_path / "out", 305).blocks
    assert [(block.first_id, block.members) for block in blocks] == [(300, 2)]
    left = ["batches_daily", "blocks", "files", "findings", "report.html", "verdict.json"]
    assert open_store(out, spark).names() == left
    kept = ["archive_blocks", "archive_blocks_problems", "batches", "batches_problems", "current", "state.json"]
    assert open_store(state, spark).names() == kept
    unfinished = re.compile(r"/(_temporary|\.)")
    assert not [file.path for file in find_files(root + bucket.query, "") if unfinished.search(file.path)]
    page = open_store(out, spark).read("report.html")
    open_store(out, spark).write("report.html", b"")
    assert draw_again(spark, out) == second
    assert open_store(out, spark).read("report.html") == page
