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
from pidkeeper.pipeline.sources import files
from pidkeeper.pipeline.sources.files import find_files
from pidkeeper.pipeline.store import is_uri, open_store
from tests.pipeline.small_audits import CHECKS, SEGMENTS, comparable, grow, rows, write_files
from tests.support import s3
from tests.support.quorum_tables import tiny_tables
from tests.support.s3 import BUCKET, KEPT, LOCKED, S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bucket(aws_credentials: Path) -> Iterator[S3]:
    """With the user's key where pyarrow finds it, here and in Spark's workers."""
    if (reason := s3.why_unavailable()) is not None:
        pytest.skip(reason)
    server = S3()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(aws_credentials))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            environment.delenv(name, raising=False)
        try:
            server.start(aws_credentials)
            yield server
        finally:
            server.close()


@pytest.fixture(scope="module")
def s3a(spark: SparkSession, bucket: S3) -> Iterator[str]:
    """Where Hadoop writes."""
    if (reason := s3.why_no_s3a()) is not None:
        pytest.skip(reason)
    for name, value in bucket.settings.items():
        spark.conf.set(name, value)
    yield f"s3a://{BUCKET}"
    for name in bucket.settings:
        spark.conf.unset(name)


@pytest.fixture
def tiny(spark: SparkSession) -> Iterator[None]:
    """Planning and compiling is all the work here."""
    with tiny_tables(spark):
        yield


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """For a state and outputs: in the bucket too, where Spark can write to it."""
    return str(tmp_path / "there") if s3.why_no_s3a() else str(request.getfixturevalue("s3a"))


def test_what_is_in_a_bucket_is_found(bucket: S3, tmp_path: Path) -> None:
    for name in ("1/a.arc", "1/b c%20d.arc", "2/a.arc", "2/a.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    bucket.put(tmp_path, "found")

    def named(path: str) -> list[str]:
        return [file.path.removeprefix(f"s3://{BUCKET}/found/") for file in find_files(path + bucket.query, ".arc")]

    everything = ["1/a.arc", "1/b c%20d.arc", "2/a.arc"]
    assert named(f"s3://{BUCKET}/found") == named(f"s3://{BUCKET}/found/?/") == named(f"s3://{BUCKET}/f*") == everything
    assert named(f"s3://{BUCKET}/found/*/a.*") == ["1/a.arc", "2/a.arc"]
    assert named(f"s3://{BUCKET}/found/2/a.log") == ["2/a.log"]
    assert named(f"s3://{BUCKET}/found/none/*") == []
    [place] = find_files(f"s3a://{BUCKET}/found/1/b*{bucket.query.replace('=127', '=http://127')}", ".arc")
    with files.open_file(*place) as file:
        assert file.read() == b"1/b c%20d.arc"
    before = files.stamp(*place)
    (tmp_path / "1" / "b c%20d.arc").write_text("grown")
    bucket.put(tmp_path / "1", "found/1")
    assert files.stamp(*place) != before != "-"


def test_what_cannot_be_read_is_named(bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(path: str) -> str:
        with pytest.raises(OSError) as caught:
            find_files(path, ".arc")
        return str(caught.value)

    missing = f"s3://{BUCKET}/none"
    assert told(missing + bucket.query) == f"there is nothing at {missing}: name a file, a directory or a glob"
    assert "there is nothing at s3://no-bucket/x" in told(f"s3://no-bucket/x{bucket.query}")
    glob = f"s3://no-bucket/x/*{bucket.query}"
    assert re.search(f"^{re.escape(glob)} cannot be read: .*The specified bucket does not exist", told(glob))
    locked = f"s3://{LOCKED}/x{bucket.query}"
    assert re.search(f"^{re.escape(locked)} cannot be read: .*ACCESS_DENIED.*; the credentials are those", told(locked))
    misspelt = f"s3://{BUCKET}/x?endpoint_overide=127.0.0.1:1"
    assert re.search("cannot be read: Unexpected query parameter .*'endpoint_overide'", told(misspelt))

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONG")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    files._system.cache_clear()
    try:
        assert "INVALID_ACCESS_KEY_ID" in told(f"s3://{BUCKET}/*{bucket.query}")
        assert "AWS_PROFILE" in told(f"s3://{BUCKET}/x{bucket.query}")
    finally:
        files._system.cache_clear()


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


def test_a_file_is_replaced_where_nothing_may_be_deleted(spark: SparkSession, s3a: str) -> None:
    store = open_store(f"{s3a}/{KEPT}", spark)
    store.make()
    for data in (b"\x00\xff", b"", b"\xfe" * 100_000):
        store.write("deep/x", data)
        assert store.read("deep/x") == data
    assert (store.names(), store.names("deep"), store.names("none")) == (["deep"], ["x"], [])
    assert store.exists("deep/x") and not store.exists("x")
    with pytest.raises(OSError, match=f"{s3a}/{KEPT}/deep/x cannot be used: .*Access Denied"):
        store.delete("deep/x")


def test_a_folder_goes_with_all_that_is_in_it(spark: SparkSession, s3a: str, bucket: S3) -> None:
    store = open_store(f"{s3a}/gone", spark)
    for name in ("x", "deep/y", "deep/z"):
        store.write(name, b"1")
    store.delete("deep")
    assert bucket.names("gone") == store.names() == ["x"]
    with pytest.raises(FileNotFoundError, match=f"there is nothing at {s3a}/gone/deep/y"):
        store.read("deep/y")
    store.delete("deep")


def test_what_cannot_be_written_is_named(spark: SparkSession, s3a: str) -> None:
    setting = "fs.s3a.bucket.wrong-key.secret.key"
    spark.conf.set(setting, "wrong")
    try:
        for place, reason in (
            (f"s3a://{LOCKED}/x", "Access Denied"),
            ("s3a://no-bucket/x", "bucket does not exist"),
            ("s3a://wrong-key/x", "signature we calculated does not match"),
        ):
            with pytest.raises(OSError, match=f"{place} cannot be used: .*{reason}"):
                open_store(place, spark).make()
    finally:
        spark.conf.unset(setting)
