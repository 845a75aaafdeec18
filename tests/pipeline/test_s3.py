"""Files in a bucket of S3, which pyarrow reads and Hadoop writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pidkeeper.pipeline.sources import files
from pidkeeper.pipeline.sources.files import find_files
from pidkeeper.pipeline.store import open_store
from tests.support.s3 import BUCKET, KEPT, LOCKED, S3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
