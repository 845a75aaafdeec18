"""Every file system keeps the same promises: what is there is whole, and what is absent is not what failed."""

from __future__ import annotations

import errno
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from pidkeeper.pipeline.files.location import Location, is_uri, locate, parent, system_of
from pidkeeper.pipeline.files.system import Entry, join
from tests.support.name_node import NameNode
from tests.support.s3 import BUCKET, S3

ROOMS = ("path", "file", "memory", "webhdfs", "gateway", "s3", "s3a", "copying")


@pytest.fixture
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    """A directory that is not there yet, on each kind of file system."""
    kind = str(request.param)
    name = tmp_path.name
    if kind == "path":
        yield locate(tmp_path / "room")
    elif kind == "file":
        yield locate(f"file://{tmp_path}/room")
    elif kind in {"webhdfs", "gateway"}:
        node: NameNode = request.getfixturevalue("node")
        node.gateway = kind == "gateway"
        yield locate(f"{node.uri}/room")
    elif kind in {"s3", "s3a"}:
        bucket: S3 = request.getfixturevalue("bucket")
        yield locate(f"{kind}://{BUCKET}/{name}/room{bucket.query}")
    else:
        fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
        if kind == "copying":
            register_copying()
        yield locate(f"{kind}://{name}/room")
        fsspec.filesystem("memory").rm("/", recursive=True)


def register_copying() -> None:
    """A file system of fsspec that is no object store: it shows files that are half written."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Copying(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
        protocol = "copying"

        @classmethod
        def _strip_protocol(cls, path: str) -> Any:
            return MemoryFileSystem._strip_protocol(path.replace("copying://", "memory://"))

    fsspec.register_implementation("copying", Copying, clobber=True)


every = pytest.mark.parametrize("room", ROOMS, indirect=True)


@every
def test_what_is_written_is_read_and_replaced(room: Location) -> None:
    file = room / "50% [a]" / "x=1"
    for data in (b"\x00\xff", b"", b"\xfe" * 100_000):
        file.write(data)
        assert (file.read(), file.read(3)) == (data, data[:3])
        assert (file.entry().size, file.entry().folder, file.exists()) == (len(data), False, True)
    with file.open() as opened:
        opened.seek(99_990)
        assert opened.read(20) == b"\xfe" * 10
    assert (file.parent.names(), room.names()) == (["x=1"], ["50% [a]"])


@every
def test_what_is_absent_is_told_from_what_is_there(room: Location) -> None:
    absent = room / "none"
    for call in (absent.read, absent.open, absent.entry, absent.entries, lambda: list(absent.below())):
        with pytest.raises(FileNotFoundError, match="none"):
            call()
    assert (absent.exists(), absent.stamp(), absent.names()) == (False, "-", [])
    absent.delete()
    (room / "file").write(b"1")
    assert room.entry() == Entry("room", True)
    assert (room / "file" / "below").exists() is False


@every
def test_entries_tell_what_each_file_tells_of_itself(room: Location) -> None:
    for name in ("b", "a/1", "a/deep/2"):
        (room / name).write(name.encode())
    assert room.entries() == [Entry("a", True), (room / "b").entry()]
    below = {entry.name: entry for entry in room.below()}
    assert sorted(below) == ["a/1", "a/deep/2", "b"]
    assert all((room / name).entry() == entry._replace(name=name.rpartition("/")[2]) for name, entry in below.items())
    assert [below[name].size for name in sorted(below)] == [3, 8, 1]
    before = (room / "b").stamp()
    (room / "b").write(b"cc" if room.root.startswith("s3") else b"c")  # S3 has times in seconds
    assert before != (room / "b").stamp() != "-", "written again"


@every
def test_a_name_is_taken_once(room: Location) -> None:
    file = room / "claim"
    file.create(b"first")
    with pytest.raises(FileExistsError, match="claim"):
        file.create(b"second")
    with pytest.raises(FileExistsError, match="claim"), file.writing(replace=False) as writing:
        writing.write(b"third")
    assert (file.read(), room.names()) == (b"first", ["claim"])
    with (room / "stream").writing(replace=False) as writing:
        writing.write(b"new")
    assert (room / "stream").read() == b"new"


@pytest.mark.parametrize("room", ["path", "webhdfs", "gateway", "memory"], indirect=True)
def test_of_many_who_try_at_once_one_gets_the_name(room: Location) -> None:
    file, took, together = room / "claim", list[int](), threading.Barrier(8)

    def take(number: int) -> None:
        together.wait()
        try:
            file.create(b"%d" % number * 1000)
        except FileExistsError:
            return
        took.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took) == 1
    assert (file.read(), room.names()) == (b"%d" % took[0] * 1000, ["claim"])


@every
def test_a_stream_is_there_when_it_is_whole_and_not_at_all_if_it_failed(room: Location) -> None:
    file = room / "deep" / "stream"
    with file.writing() as writing:
        writing.write(b"1" * 200_000)
        assert [name for name in file.parent.names() if not name.startswith(".")] == []
        writing.write(b"2")
    assert file.read() == b"1" * 200_000 + b"2"
    with pytest.raises(KeyError), file.writing() as writing:
        _spoil(writing)
    assert file.read()[-1:] == b"2" and file.parent.names() == ["stream"]


def _spoil(writing: BinaryIO) -> None:
    writing.write(b"3")
    raise KeyError


@every
def test_what_is_deleted_goes_with_all_that_is_in_it(room: Location) -> None:
    for name in ("x", "d[e]*/y", "d[e]*/er/z", "de/y"):
        (room / name).write(b"1")
    (room / "x").delete()
    assert room.names() == ["d[e]*", "de"]
    (room / "d[e]*").delete()
    assert room.names() == ["de"]
    room.make()
    room.delete()
    assert (room.exists(), list(room.parent.names())) == (False, [])


@every
@pytest.mark.parametrize("folder", ["tables", "[a]*?"])
def test_tables_are_written_and_read_there(room: Location, folder: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    from pidkeeper.pipeline.files.parquet import ParquetFiles, read_parquet, write_parquet

    places = [room / folder / name for name in ("b", "a")]
    tables = [pa.table({"value": [number, number + 1]}) for number in (1, 3)]
    for place, table in zip(places, tables, strict=True):
        write_parquet(place, table)
    assert read_parquet(places[0]) == tables[0]
    assert ParquetFiles(places, tables[0].schema).table() == pa.concat_tables(tables)
    with duckdb.connect() as con:
        ParquetFiles(places, tables[0].schema).show(con, "here")
        ParquetFiles([], tables[0].schema).show(con, "nowhere")
        assert con.sql("from here order by value").fetchall() == [(1,), (2,), (3,), (4,)]
        assert con.sql("from nowhere").fetchall() == []
    with pytest.raises(FileNotFoundError):
        read_parquet(room / "none")


def test_numbers_that_ascend_take_no_room(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pidkeeper.pipeline.files.parquet import read_parquet, write_parquet

    place = locate(tmp_path / "ascending.parquet")
    numbers = pa.table({"value": pa.array(range(0, 100_000_000, 1000), pa.int64()), "word": ["a", None] * 50_000})
    write_parquet(place, numbers)
    assert place.local is not None and place.local.stat().st_size < 20_000
    assert read_parquet(place) == numbers


def test_a_location_goes_to_other_processes_as_two_texts() -> None:
    place = locate("s3a://bucket/a/b c%20d/?region=eu-west-1&endpoint_override=http://127.0.0.1:1")
    root = "s3a://bucket/?region=eu-west-1&endpoint_override=http://127.0.0.1:1"
    assert place == Location(root, "s3a://bucket/a/b c%20d") == pickle.loads(pickle.dumps(place))
    assert (str(place / "x"), place.name, place.parent.name) == ("s3a://bucket/a/b c%20d/x", "b c%20d", "a")
    assert locate("out") == Location("", f"{Path.cwd()}/out")
    assert (locate("file:///a").local, locate("/a").local, place.local) == (Path("/a"), Path("/a"), None)
    assert [is_uri(path) for path in ("hdfs://h/a", "a/b", Path("/"))] == [True, False, False]


def test_a_password_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(OSError, match="name no password in a URI") as caught:
        locate("webhdfs://me:secret@host/x")
    assert "secret" not in str(caught.value)


def test_parents_of_paths_and_uris_end_at_the_top() -> None:
    assert [parent(path) for path in ("/a/b", "/a", "/")] == ["/a", "/", "/"]
    uris = ("s3://b/k/x", "s3://b/k", "s3://b", "file:///a", "file:///")
    assert [parent(uri) for uri in uris] == ["s3://b/k", "s3://b", "s3://b", "file:///", "file:///"]
    joined = [join(folder, "x") for folder in ("/", "/a", "s3://b", "file:///")]
    assert joined == ["/x", "/a/x", "s3://b/x", "file:///x"]


def test_local_files_need_no_library(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pidkeeper.pipeline.files.location import locate\n"
        "from pidkeeper.pipeline.files.finding import find_files\n"
        f"for root in ('', 'file://'):\n"
        f"    locate(root + {str(tmp_path)!r} + '/x.arc').write(b'1')\n"
        f"    assert len(find_files(root + {str(tmp_path)!r}, '.arc')) == 1\n"
        "print([name for name in ('fsspec', 'pyarrow', 'requests', 'numpy') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


# This machine.


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x" / "full").mkdir(parents=True)
    for call in (locate(tmp_path / "x").write, locate(tmp_path / "x").create):
        with pytest.raises(OSError, match="x"):
            call(b"1")
    locate(tmp_path / "y").write(b"before")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        locate(tmp_path / "y").write(b"after")
    assert locate(tmp_path / "y").read() == b"before"
    assert locate(tmp_path).names() == ["x", "y"]


def test_where_no_links_are_a_name_is_taken_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", none)
    locate(tmp_path / "x").create(b"1")
    with pytest.raises(FileExistsError):
        locate(tmp_path / "x").create(b"2")
    assert (locate(tmp_path / "x").read(), locate(tmp_path).names()) == (b"1", ["x"])


def test_a_kill_leaves_no_half_file_under_its_name(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from pidkeeper.pipeline.files.location import locate\n"
        f"with locate({str(tmp_path)!r} + '/x.arc').writing() as file:\n"
        "    file.write(b'1' * 1_000_000)\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == -9
    (left,) = locate(tmp_path).entries()
    assert left.size == 1_000_000 and left.name.startswith(".x.arc.")


def test_links_are_files_and_lead_to_no_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"123")
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "none")
    assert sorted(entry[:3] for entry in locate(tmp_path).below()) == [("link", False, 3), ("real/x", False, 3)]
    assert [entry.name for entry in locate(tmp_path).entries()] == ["link", "real", "round"]


def test_a_directory_that_may_not_be_read_is_no_empty_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    real: Callable[..., Any] = os.scandir

    def scandir(path: str) -> Any:
        if "closed" in path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for call in (lambda: list(locate(tmp_path).below()), locate(tmp_path / "closed").names):
        with pytest.raises(PermissionError, match="closed"):
            call()
    (tmp_path / "gone").mkdir()
    assert list(locate(tmp_path / "gone").below()) == []


# Systems.


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_the_schemes_of_s3_are_pyarrows(scheme: str) -> None:
    fs = pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed")
    place = locate(f"{scheme}://bucket/a/b*?region=eu-west-1&endpoint_override=127.0.0.1:1")
    system, path = place.arrow()
    assert isinstance(system, fs.S3FileSystem)
    assert (system.region, path) == ("eu-west-1", "bucket/a/b*")


def test_a_file_system_that_cannot_be_had_is_said() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for uri, reason in (
        ("nothing://host/x", "nothing://host/x cannot be read: no file system is known for nothing://"),
        ("webhdfs:///x", "webhdfs:///x cannot be read: .*name the NameNode and its HTTP port"),
        ("webhdfs://127.0.0.1:1/x", "http://127.0.0.1:1/webhdfs/v1: .*Connection refused"),
    ):
        for call in (locate(uri).read, locate(uri).names, locate(uri).exists):
            with pytest.raises(OSError, match=reason):
                call()


def test_hdfs_without_its_library_is_told_to_go_by_http(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed")

    def missing(uri: str) -> Any:
        raise OSError("Unable to load libhdfs\ndlopen failed")

    monkeypatch.setattr(fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(missing)}))
    system_of.cache_clear()
    with pytest.raises(OSError, match=r"hdfs://none:1/x cannot be read: .* libhdfs, .* webhdfs://NAMENODE:9870/PATH"):
        locate("hdfs://none:1/x").read()


class NativeHdfs:
    """As pyarrow shows HDFS by libhdfs, whose rename refuses to replace. It is a directory, for that needs a Hadoop."""

    type_name = "hdfs"

    def __init__(self, directory: Path) -> None:
        from pyarrow import fs

        self._real = fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def move(self, source: str, target: str) -> None:
        if self._real.get_file_info(target).is_file:
            raise OSError("rename failed")
        self._real.move(source, target)


def test_a_native_hdfs_shows_a_file_when_it_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pidkeeper.pipeline.files.arrow_system import ArrowSystem

    system = ArrowSystem(NativeHdfs(tmp_path), "")
    system.put("/x", io.BytesIO(b"1"), replace=False)
    system.put("/x", io.BytesIO(b"22"), replace=True)
    with pytest.raises(FileExistsError):
        system.put("/x", io.BytesIO(b"3"), replace=False)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        system.put("/folder", io.BytesIO(b"4"), replace=True)
    assert ((tmp_path / "x").read_bytes(), locate(tmp_path).names()) == (b"22", ["folder", "x"])
