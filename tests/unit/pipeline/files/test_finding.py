"""What is at a path, a directory or a glob is found in one way everywhere, with its size and without opening it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pidkeeper.pipeline.files.finding import Found, find_files
from pidkeeper.pipeline.files.location import Location, locate, system_of
from tests.support.name_node import NameNode
from tests.support.s3 import BUCKET, LOCKED, S3

TREE = ("one/archive/a.arc", "one/archive/b.txt", "two/archive/a c%20d.arc", "two/deep/er/archive/c.arc")
EVERYTHING = [TREE[0], TREE[2], TREE[3]]


@pytest.fixture(params=["path", "file", "memory", "webhdfs", "s3"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """Two members' directories."""
    kind = str(request.param)
    if kind == "path":
        place = locate(tmp_path / "room")
    elif kind == "file":
        place = locate(f"file://{tmp_path}/room")
    elif kind == "webhdfs":
        node: NameNode = request.getfixturevalue("node")
        place = locate(f"{node.uri}/room")
    elif kind == "s3":
        bucket: S3 = request.getfixturevalue("bucket")
        place = locate(f"s3://{BUCKET}/{tmp_path.name}{bucket.query}")
    else:
        pytest.importorskip("fsspec", reason="fsspec is not installed")
        place = locate("memory://finding/room")
    for name in TREE:
        (place / name).write(name.encode())
    yield place
    place.delete()


def names(room: Location, glob: str) -> list[str]:
    return [one.location.path.removeprefix(f"{room.path}/") for one in find_files(at(room, glob), ".arc")]


def at(room: Location, name: str) -> str:
    """As somebody writes it on a command line."""
    query = room.root.partition("?")[2]
    return f"{room.path}/{name}" + (f"?{query}" if query else "")


def test_a_directory_is_all_that_is_below_it(room: Location) -> None:
    assert names(room, "") == EVERYTHING
    assert names(room, "one") == names(room, "one/") == EVERYTHING[:1]


def test_a_file_that_is_named_is_taken_under_whatever_name(room: Location) -> None:
    assert names(room, "one/archive/b.txt") == ["one/archive/b.txt"]
    assert names(room, "one/archive/*") == ["one/archive/a.arc"]


def test_a_wildcard_is_for_one_name(room: Location) -> None:
    assert names(room, "*/archive") == EVERYTHING[:2]
    assert names(room, "t?o/archive/*") == EVERYTHING[1:2]
    assert names(room, "[o]ne") == EVERYTHING[:1]
    assert names(room, "*") == EVERYTHING
    assert names(room, "*/none/*") == names(room, "one/archive/a.arc/*") == names(room, "none*") == []


def test_sizes_and_stamps_come_with_what_is_found(room: Location) -> None:
    for one in find_files(at(room, ""), ""):
        entry = one.location.entry()
        assert one == Found(one.location, entry.size, entry.stamp)
        assert (entry.size, one.location.read()) == (len(one.location.read()), one.location.read())


def test_a_path_at_which_nothing_is_is_said(room: Location) -> None:
    with pytest.raises(
        FileNotFoundError, match=f"^there is nothing at {re.escape(room.path)}/none: name a file, a dir"
    ):
        names(room, "none")


def test_unfinished_files_are_not_found(room: Location) -> None:
    (room / "one" / "archive" / ".x.arc.12345678").write(b"1")
    assert names(room, "one") == names(room, "one/archive/*") == EVERYTHING[:1]


def test_two_stars_are_for_paths_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.arc").write_bytes(b"")
    assert [one.location.name for one in find_files(f"{tmp_path}/**/*.arc", ".arc")] == ["x.arc"]
    with pytest.raises(OSError, match="is for paths of this machine"):
        find_files(f"file://{tmp_path}/**/x.arc", ".arc")


def test_a_name_with_signs_of_a_glob_is_taken_as_it_is_if_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a[1]" / "x.arc").write_bytes(b"")
    assert [one.location.path for one in find_files(f"{tmp_path}/a[1]", ".arc")] == [f"{tmp_path}/a[1]/x.arc"]


def test_only_names_and_no_files_are_asked_for(node: NameNode) -> None:
    room = locate(f"{node.uri}/room")
    for name in TREE:
        node.put(f"/room/{name}", b"1")
    node.calls.clear()
    assert len(find_files(str(room), ".arc")) == 3
    folders = ["/room", "/room/one", "/room/one/archive", "/room/two", "/room/two/archive", "/room/two/deep"]
    assert sorted(node.calls) == sorted(
        [("GETFILESTATUS", "/room")]
        + [("LISTSTATUS", folder) for folder in [*folders, "/room/two/deep/er", "/room/two/deep/er/archive"]]
    )


def test_what_fails_is_no_absence(node: NameNode) -> None:
    node.put("/room/a.arc", b"1")
    node.refusal = {"exception": "StandbyException", "message": "Operation category READ is not supported"}
    for path in ("room", "*/a.arc", "room/*"):
        with pytest.raises(OSError, match=r"cannot be read: .*Operation category READ"):
            find_files(f"{node.uri}/{path}", ".arc")


def test_what_s3_refuses_is_named_with_advice(bucket: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(path: str) -> str:
        with pytest.raises(OSError) as caught:
            find_files(path + bucket.query, ".arc")
        return str(caught.value)

    assert told(f"s3://{BUCKET}/none") == f"there is nothing at s3://{BUCKET}/none: name a file, a directory or a glob"
    assert "there is nothing at s3://no-bucket/x" in told("s3://no-bucket/x")
    assert re.search("^s3://no-bucket/x cannot be read: .*bucket does not exist", told("s3://no-bucket/x/*"))
    locked = told(f"s3://{LOCKED}/x")
    assert re.search(f"^s3://{LOCKED}/x cannot be read: .*ACCESS_DENIED.*; the credentials are those of AWS_", locked)
    with pytest.raises(OSError, match=r"cannot be read: Unexpected query parameter .*'endpoint_overide'"):
        find_files(f"s3://{BUCKET}/x?endpoint_overide=127.0.0.1:1", ".arc")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAWRONG")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    system_of.cache_clear()
    try:
        assert "INVALID_ACCESS_KEY_ID" in told(f"s3://{BUCKET}/*")
        assert "AWS_PROFILE" in told(f"s3://{BUCKET}/x")
    finally:
        system_of.cache_clear()


def test_what_s3_does_not_let_anybody_write_is_named(bucket: S3) -> None:
    for place, reason in ((f"s3://{LOCKED}/x", "ACCESS_DENIED.*AWS_PROFILE"), ("s3://no-bucket/x", "bucket does not")):
        for call in (locate(place + bucket.query).write, locate(place + bucket.query).create):
            with pytest.raises(OSError, match=f"{place} cannot be written: .*{reason}"):
                call(b"1")
