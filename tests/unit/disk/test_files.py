from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath

import pytest

from pidkeeper.disk.files import Files, OsFiles, remove_temporary, sync_tree, write_durably
from tests.support.memory_files import MemoryFiles, PowerCut, fail_at
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture(params=[OsFiles, MemoryFiles])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, PurePath]:
    files: Files = request.param()
    files.make_directory(tmp_path / "a" / "b")
    files.make_directory(tmp_path / "a" / "b")
    return files, tmp_path / "a" / "b"


def test_bytes_written_are_read_back(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    handle = files.open(directory / "x", create=True)
    files.pwrite(handle, b"world", 6)
    files.pwrite(handle, b"hello ", 0)
    files.fdatasync(handle)
    assert files.fdatasyncs == 1
    assert files.pread(handle, 5, 4) == b"o wor"
    assert files.pread(handle, 100, 9) == b"ld"
    assert files.pread(handle, 100, 50) == b""
    files.close(handle)
    assert files.read_bytes(directory / "x") == b"hello world"
    assert files.size(directory / "x") == 11


def test_pieces_are_written_one_behind_another(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    pieces = [bytes([number % 251]) * (number % 7) for number in range(2500)]
    handle = files.open(directory / "x", create=True)
    files.write_synced(handle, pieces)
    files.close(handle)
    assert files.read_bytes(directory / "x") == b"".join(pieces)
    assert files.fdatasyncs == 1


def test_pieces_are_written_to_their_end_where_the_kernel_takes_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = OsFiles()
    handle = files.open(tmp_path / "x", create=True)
    synced: list[bytes] = []
    monkeypatch.setattr(os, "pwritev", lambda file, pieces, offset, _: os.pwrite(file, pieces[0][:2], offset))
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.pread(file, 99, 0)))
    files.write_synced(handle, [b"hello", b" world"])
    files.close(handle)
    assert synced == [b"hello world"]


def test_pieces_are_written_where_the_kernel_cannot_forget_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, real, flags = OsFiles(), os.pwritev, []

    def pwritev(file: int, pieces: Sequence[bytes], offset: int, flag: int) -> int:
        flags.append(flag)
        if flag != os.RWF_DSYNC:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real(file, pieces, offset, flag)

    monkeypatch.setattr(os, "pwritev", pwritev)
    for name in ("x", "y"):
        handle = files.open(tmp_path / name, create=True)
        files.write_synced(handle, [b"hello", b" world"])
        files.close(handle)
        assert files.read_bytes(tmp_path / name) == b"hello world"
    assert len(flags) == 3
    assert all(flag & os.RWF_DSYNC for flag in flags)


def test_several_threads_find_out_that_the_kernel_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, real, both = OsFiles(), os.pwritev, threading.Barrier(2)

    def pwritev(file: int, pieces: Sequence[bytes], offset: int, flag: int) -> int:
        if flag != os.RWF_DSYNC:
            both.wait(PATIENCE_SECONDS)
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real(file, pieces, offset, flag)

    def write(name: str) -> None:
        handle = files.open(tmp_path / name, create=True)
        files.write_synced(handle, [b"hello"])
        files.close(handle)

    monkeypatch.setattr(os, "pwritev", pwritev)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, "xy"))
    assert [files.read_bytes(tmp_path / name) for name in "xy"] == [b"hello"] * 2


def test_what_cannot_be_written_synced_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    handle = files.open(tmp_path / "x", create=True)

    def pwritev(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pwritev", pwritev)
    with pytest.raises(OSError, match="broken"):
        files.write_synced(handle, [b"hello"])
    files.close(handle)


def test_preallocated_file_is_zeroes(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    handle = files.open(directory / "x", create=True)
    files.preallocate(handle, 3_000_000)
    files.close(handle)
    assert files.read_bytes(directory / "x") == bytes(3_000_000)


def test_names(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    for name in ("b", "a", "c"):
        files.close(files.open(directory / name, create=True))
    files.rename(directory / "c", directory / "a")
    files.unlink(directory / "b")
    files.fsync_directory(directory)
    assert files.listdir(directory) == ["a"]
    assert files.listdir(directory.parent) == ["b"]
    assert files.exists(directory / "a")
    assert not files.exists(directory / "c")


def test_a_second_name_is_given_once(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    handle = files.open(directory / "x", create=True)
    files.pwrite(handle, b"one", 0)
    files.link(directory / "x", directory / "y")
    files.link(directory / "x", directory.parent / "z")
    files.pwrite(handle, b"two", 3)
    files.close(handle)
    files.unlink(directory / "x")
    assert files.read_bytes(directory / "y") == files.read_bytes(directory.parent / "z") == b"onetwo"
    files.close(files.open(directory / "w", create=True))
    for target in (directory / "y", directory):
        with pytest.raises(FileExistsError):
            files.link(directory / "w", target)
    assert files.read_bytes(directory / "y") == b"onetwo"
    for source, target in ((directory / "x", directory / "v"), (directory / "w", directory / "none" / "v")):
        with pytest.raises(FileNotFoundError):
            files.link(source, target)
    assert files.listdir(directory) == ["w", "y"]


def test_a_second_name_lasts_once_its_directory_is_synced() -> None:
    files = MemoryFiles()
    one, other = PurePath("/a"), PurePath("/b")
    for directory in (one, other):
        files.make_directory(directory)
    handle = files.open(one / "x", create=True)
    files.pwrite(handle, b"whole", 0)
    files.fdatasync(handle)
    files.link(one / "x", other / "y")
    files.fsync_directory(one)
    assert not files.cut_power().exists(other / "y")
    files.fsync_directory(other)
    files.unlink(one / "x")
    assert files.cut_power().read_bytes(other / "y") == b"whole"


def test_a_file_and_a_link_are_no_directories(tmp_path: Path) -> None:
    files = OsFiles()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name, is_one in (("", True), ("file", False), ("link", False), ("none", False)):
        assert files.is_directory(tmp_path / name) is is_one, name


def test_a_directory_in_the_place_of_a_file_is_not_made(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    files.close(files.open(directory / "x", create=True))
    with pytest.raises(FileExistsError):
        files.make_directory(directory / "x")
    assert not files.is_directory(directory / "x")
    assert files.is_directory(directory)


def test_missing_and_surplus_names_are_errors(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    calls: list[Callable[[PurePath], object]] = [files.open, files.unlink, files.read_bytes, files.size, files.listdir]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call(directory / "missing")
    files.close(files.open(directory / "x", create=True))
    with pytest.raises(FileExistsError):
        files.open(directory / "x", create=True)


def test_lock_is_exclusive_until_closed(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    handle = files.lock(directory / "lock")
    with pytest.raises(BlockingIOError):
        files.lock(directory / "lock")
    files.close(handle)
    files.close(files.lock(directory / "lock"))


def test_short_writes_and_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write, real_read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda handle, data, offset: real_write(handle, bytes(data[:3]), offset))
    monkeypatch.setattr(os, "pread", lambda handle, size, offset: real_read(handle, min(size, 4), offset))
    files = OsFiles()
    handle = files.open(tmp_path / "x", create=True)
    files.pwrite(handle, b"0123456789", 2)
    assert files.pread(handle, 20, 0) == b"\0\0" + b"0123456789"
    files.close(handle)


def test_write_durably_replaces(disk: tuple[Files, PurePath]) -> None:
    files, directory = disk
    for data in (b"one", b"another"):
        write_durably(files, directory / "x", data)
        assert files.read_bytes(directory / "x") == data
    assert files.listdir(directory) == ["x"]


def test_power_cut_leaves_the_old_file_or_the_new() -> None:
    directory = PurePath("/d")

    def prepared() -> MemoryFiles:
        files = MemoryFiles()
        files.make_directory(directory)
        write_durably(files, directory / "x", b"old")
        return files

    whole = prepared()
    before = len(whole.calls)
    write_durably(whole, directory / "x", b"new")
    assert [kind for kind, _ in whole.calls[before:]] == ["create", "pwrite", "fdatasync", "rename", "fsync_directory"]
    assert whole.cut_power().read_bytes(directory / "x") == b"new"
    for call in range(5):
        for keep in (lambda kind, path: False, lambda kind, path: True, lambda kind, path: kind != "pwrite"):
            files = prepared()
            files.before = fail_at(call, PowerCut())
            with pytest.raises(PowerCut):
                write_durably(files, directory / "x", b"new")
            after = files.cut_power(keep)
            assert after.read_bytes(directory / "x") in (b"old", b"new")
            remove_temporary(after, directory)
            assert after.listdir(directory) == ["x"]
            write_durably(after, directory / "x", b"newer")
            assert after.cut_power().read_bytes(directory / "x") == b"newer"


def test_a_tree_is_synced_file_by_file_and_folder_by_folder(tmp_path: Path) -> None:
    files = MemoryFiles()
    files.make_directory(tmp_path / "a" / "b")
    for path in (tmp_path / "a" / "x", tmp_path / "a" / "b" / "y"):
        handle = files.open(path, create=True)
        files.pwrite(handle, b"data", 0)
        files.close(handle)
    lost = files.cut_power()
    assert not lost.exists(tmp_path / "a" / "x")
    sync_tree(files, tmp_path)
    left = files.cut_power()
    assert [left.read_bytes(tmp_path / "a" / name) for name in ("x", "b/y")] == [b"data", b"data"]


def test_a_link_to_a_directory_is_left_out_of_a_tree(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    (tmp_path / "a" / "x").write_bytes(b"data")
    files = OsFiles()
    sync_tree(files, tmp_path / "a")
    assert files.fdatasyncs == 1
