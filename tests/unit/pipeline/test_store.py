"""The store of a local directory, and the addresses that Spark gets; that of Hadoop is tested on a real HDFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.store import first_line, is_uri, join_place, locate, open_store


def test_a_local_directory_needs_no_session(tmp_path: Path) -> None:
    store = open_store(tmp_path / "out")
    assert store.names() == [] and not store.exists("x")
    store.make()
    store.make()
    with pytest.raises(FileNotFoundError):
        store.read("x")
    store.write("x", b"1")
    store.write("x", b"2")
    assert (store.read("x"), store.names(), store.exists("x")) == (b"2", ["x"], True)
    (tmp_path / "out" / "a" / "b").mkdir(parents=True)
    store.write("a/b/y", b"3")
    assert store.names("a/b") == ["y"]
    store.delete("a")
    store.delete("none")
    assert store.names() == ["x"]
    store.delete()
    assert not (tmp_path / "out").exists()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    (tmp_path / "x" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="x"):
        store.write("x", b"1")
    assert store.names() == ["x"] and store.names("x") == ["full"]


def test_spark_gets_addresses_that_no_default_file_system_changes(tmp_path: Path) -> None:
    assert locate(tmp_path, "blocks") == f"file://{tmp_path}/blocks"
    assert locate("out", "blocks") == f"file://{Path.cwd()}/out/blocks"
    assert open_store(tmp_path).location() == f"file://{tmp_path}"
    assert [is_uri(place) for place in ("hdfs://h/a", "a/b", tmp_path)] == [True, False, False]
    for place in ("s3a://bucket", "s3a://bucket/", "s3a://bucket//"):
        assert locate(place, "x") == join_place(place, "x") == "s3a://bucket/x"
    assert join_place("hdfs:///", "x") == "hdfs:///x"
    assert join_place("hdfs://h:1/a/", "x") == "hdfs://h:1/a/x"
    assert join_place(tmp_path, "x") == tmp_path / "x"


def test_what_java_says_comes_without_its_packages() -> None:
    denied = "org.apache.hadoop.security.AccessControlException: Permission denied: user=me\n\tat org.apache"
    for text in (denied, f"An error occurred while calling o92.parquet.\n: {denied}"):
        assert first_line(RuntimeError(text)) == "AccessControlException: Permission denied: user=me"
    assert first_line(RuntimeError("")) == "RuntimeError"
