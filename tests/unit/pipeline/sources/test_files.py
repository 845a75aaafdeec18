"""Files are found, named and opened by URI as they are by path, whichever library knows the file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pidkeeper.pipeline.formats.problems import TORN
from pidkeeper.pipeline.sources import files
from pidkeeper.pipeline.sources.files import (
    FilePlace,
    data_files,
    file_names,
    find_files,
    join,
    open_file,
    parent,
    place_of,
    stamp,
)
from pidkeeper.pipeline.sources.listing import Folder, list_folders
from pidkeeper.pipeline.sources.segment_files import list_segments, plan, read_part
from tests.support.segment_builder import batch

MEMORY = "memory://audit/"


@pytest.fixture
def memory() -> Iterator[Any]:
    """An fsspec file system that pyarrow does not know, with two folders of archives."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    system = fsspec.filesystem("memory")
    for name in ("one/archive/a.arc", "one/archive/b.txt", "two/archive/a.arc", "two/deep/er/archive/c.arc"):
        system.pipe_file(f"/audit/{name}", b"1234")
    yield system
    system.rm("/audit", recursive=True)


def names(uri: str) -> list[str]:
    return [file.path.removeprefix(MEMORY) for file in find_files(uri, ".arc")]


def test_what_pyarrow_does_not_know_is_found_by_fsspec(memory: Any) -> None:
    everything = ["one/archive/a.arc", "two/archive/a.arc", "two/deep/er/archive/c.arc"]
    assert names(MEMORY) == names("memory://audit") == everything
    assert names(f"{MEMORY}one/archive/b.txt") == ["one/archive/b.txt"]
    assert names(f"{MEMORY}one") == names(f"{MEMORY}one/") == everything[:1]
    assert find_files(f"{MEMORY}one", ".arc") == [FilePlace(MEMORY, f"{MEMORY}one/archive/a.arc")]


def test_a_wildcard_is_for_one_name_as_it_is_here(memory: Any) -> None:
    assert names(f"{MEMORY}*/archive") == ["one/archive/a.arc", "two/archive/a.arc"]
    assert names(f"{MEMORY}t?o/archive/*") == ["two/archive/a.arc"]
    assert names(f"{MEMORY}[o]ne") == ["one/archive/a.arc"]
    assert names(f"{MEMORY}*/none/*") == names(f"{MEMORY}one/archive/a.arc/*") == []
    with pytest.raises(OSError, match="is for paths of this machine"):
        names(f"{MEMORY}**/archive")


def test_files_are_opened_named_and_stamped_by_uri(memory: Any) -> None:
    path = f"{MEMORY}one/archive/a.arc"
    with open_file(MEMORY, path) as file:
        file.seek(1)
        assert file.read(2) == b"23"
    assert file_names(MEMORY, f"{MEMORY}one/archive") == ["a.arc", "b.txt"]
    before = stamp(MEMORY, path)
    assert before == stamp(MEMORY, path) != "-"
    memory.pipe_file("/audit/one/archive/a.arc", b"4321")
    assert stamp(MEMORY, path) != before, "of the same length, but written again"
    assert stamp(MEMORY, f"{path}.none") == "-"
    for call in (open_file, file_names):
        with pytest.raises(FileNotFoundError):
            call(MEMORY, f"{MEMORY}none")
    with pytest.raises(IsADirectoryError):
        open_file(MEMORY, f"{MEMORY}one")


def test_members_and_brokers_are_known_by_uri(memory: Any) -> None:
    memory.pipe_file("/audit/one/meta.json", b'{"cluster_id":"c","node_id":4,"directory_id":"%s"}' % (b"0" * 32))
    first, *_ = list_folders({"path": MEMORY}, ".arc")
    assert (first.folder, first.member, first.cluster_id) == (Folder(MEMORY, f"{MEMORY}one/archive"), "4", "c")
    assert first.folder.beside("wal").path == f"{MEMORY}one/wal"
    memory.pipe_file("/audit/logs/meta.properties", b"node.id=3\n")
    memory.pipe_file(f"/audit/logs/a-topic-5/{7:020d}.log", (batch(7) + batch(8))[:-1])
    (segment,) = list_segments([f"{MEMORY}logs"])
    assert (segment.member, segment.topic, segment.partition, segment.base_offset) == ("3", "a-topic", 5, 7)
    chunks = [chunk for task in plan([segment]) for part in task for chunk in read_part(part)]
    assert [each.base_offset for chunk in chunks for each in chunk.batches()] == [7]
    assert [each.kind for chunk in chunks for each in chunk.problems] == [TORN]


def test_what_spark_wrote_is_told_to_pyarrow_without_its_marks(memory: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    odd = tmp_path / "50% [a]?b=c"
    for name in ("day=2/b", "day=1/a", "day=1/.a.crc", "_SUCCESS", "_temporary/0/x", "day=1/.hidden/x"):
        memory.pipe_file(f"/audit/_out/table/{name}", name.encode())
        (odd / "table" / name).parent.mkdir(parents=True, exist_ok=True)
        (odd / "table" / name).write_bytes(name.encode())
    there, uri, here = place_of(f"{MEMORY}_out/"), place_of(f"file://{tmp_path}/."), place_of(str(odd))
    assert (there, here) == (FilePlace(MEMORY, f"{MEMORY}_out"), FilePlace("", str(odd)))
    for root, path in (there, FilePlace(uri.root, join(uri.path, odd.name)), here):
        system, paths = data_files(root, join(path, "table"))
        assert [system.open_input_file(path).read() for path in paths] == [b"day=1/a", b"day=2/b"]
        with pytest.raises(FileNotFoundError):
            data_files(root, join(path, "none"))
        with pytest.raises(NotADirectoryError):
            data_files(root, join(path, "table/day=1/a"))


def test_files_that_were_found_are_not_looked_up_again(memory: Any) -> None:
    odd = FilePlace(MEMORY, f"{MEMORY}one/a[1].arc")
    options = {"paths": f'[["{odd.root}", "{odd.path}"], "{MEMORY}two/archive"]'}
    assert [(one.folder.path, one.names) for one in list_folders(options, ".arc")] == [
        (f"{MEMORY}one", ["a[1].arc"]),
        (f"{MEMORY}two/archive", ["a.arc"]),
    ]


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_the_schemes_of_s3_are_pyarrows(scheme: str) -> None:
    fs = pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed")
    root, path = files._split(f"{scheme}://bucket/a/b*?region=eu-west-1&endpoint_override=127.0.0.1:1")
    assert (root, path) == (
        f"{scheme}://bucket/?region=eu-west-1&endpoint_override=127.0.0.1:1",
        f"{scheme}://bucket/a/b*",
    )
    system: Any = files._system(root)
    assert isinstance(system._system, fs.S3FileSystem)
    assert system._system.region == "eu-west-1"
    assert files._inner(root, f"{scheme}://bucket/a/b") == "bucket/a/b"


def test_a_file_system_that_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for uri, reason in (
        ("nothing://host/x", "no file system is known for nothing://"),
        ("webhdfs:///x", "name the NameNode and its HTTP port"),
        ("webhdfs://127.0.0.1:1/x", "http://127.0.0.1:1/webhdfs/v1: .*Connection refused"),
        ("webhdfs://me:secret@host/x", "name no password in a URI"),
    ):
        with pytest.raises(OSError, match=reason) as caught:
            find_files(uri, ".arc")
        assert "secret" not in str(caught.value)


def test_hdfs_without_its_library_is_told_to_go_by_http(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed")

    def missing(uri: str) -> Any:
        raise OSError("Unable to load libhdfs\ndlopen failed")

    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(missing)}))
    with pytest.raises(OSError, match=r"hdfs://none:1/ cannot be read: .* libhdfs, .* webhdfs://NAMENODE:9870/PATH"):
        find_files("hdfs://none:1/x", ".arc")


def test_parents_of_paths_and_uris_end_at_the_top() -> None:
    assert [parent(path) for path in ("/a/b", "/a", "/")] == ["/a", "/", "/"]
    uris = ("s3://b/k/x", "s3://b/k", "s3://b", "file:///a", "file:///")
    assert [parent(uri) for uri in uris] == ["s3://b/k", "s3://b", "s3://b", "file:///", "file:///"]
    assert [join(folder, "x") for folder in ("/", "/a", "s3://b", "file:///")] == [
        "/x",
        "/a/x",
        "s3://b/x",
        "file:///x",
    ]
