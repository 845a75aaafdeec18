from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path, PurePath

import pytest

from pidkeeper.broker_agent.data.store import folders, local, writers
from pidkeeper.broker_agent.data.store.local import LocalStore
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import MAX_LISTED, StoreRefusedError, StoreUnavailableError
from pidkeeper.disk.files import OsFiles
from tests.support.memory_files import MemoryFiles, fail_on
from tests.support.store_writer import content
from tests.support.waiting import PATIENCE_SECONDS, until

ROOT = PurePath("/var/store")
TOKEN = "0" * 32
REPOSITORY = Path(__file__).parents[5]
KILLS = 4
OBJECT_BYTES = 200_000


def own_files(directory: Path) -> list[str]:
    """What is in the store's directory besides objects."""
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("~"))


class GatedFiles(OsFiles):
    """Stops before it writes until it is let go on; remembers the threads that used it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.stopped = threading.Event()
        self.threads: set[threading.Thread] = set()

    def write_synced(self, handle: int, pieces: Sequence[bytes]) -> None:
        self.threads.add(threading.current_thread())
        self.stopped.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        super().write_synced(handle, pieces)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self.threads.add(threading.current_thread())
        return super().pread(handle, size, offset)


async def test_an_object_is_a_file_that_others_can_read(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "a" / "store"), {})
    await store.put("orders-0/00000000000000000007.log", [b"batch"])
    assert (tmp_path / "a" / "store" / "orders-0" / "00000000000000000007.log").read_bytes() == b"batch"
    await store.close()
    assert own_files(tmp_path / "a" / "store") == ["~opening.lock"]


async def test_synced_before_it_is_named_and_named_before_it_is_acknowledged() -> None:
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    await store.put("7/1", [b"a"])
    await store.put("7/2", [b"b", b"c"])
    files.calls.clear()
    await store.put("7/3", [b"d", b"e"])
    kinds = ["create", "pwrite", "fdatasync", "link", "fsync_directory", "unlink"]
    assert [kind for kind, _ in files.calls] == kinds
    assert files.calls[-2] == ("fsync_directory", ROOT / "7")
    await store.close()


async def test_disk_is_touched_by_threads_alone(tmp_path: Path) -> None:
    files = GatedFiles()
    store = LocalStore(tmp_path, files)
    files.gate.clear()
    puts = asyncio.gather(*(store.put(f"a/{number}", [b"x"]) for number in range(9)))
    await until(files.stopped.is_set)
    assert not puts.done()
    files.gate.set()
    await puts
    await store.read("a/1", 0, 1)
    assert threading.current_thread() not in files.threads
    assert 1 <= len(files.threads) <= local.THREADS + local.READERS
    await store.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_retriable_and_leaves_nothing(number: int) -> None:
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    for kind in ("create", "pwrite", "fdatasync", "link"):
        files.before = fail_on(kind, OSError(number, "full"))
        with pytest.raises(StoreUnavailableError, match="full"):
            await store.put("a", [b"x"])
        assert await store.list("", "", 9) == []
        assert not [name for name in files.listdir(ROOT) if name.endswith(".tmp")]
    files.before = lambda kind, path: None
    await store.put("a", [b"x"])
    await store.close()


async def test_a_disk_that_may_not_be_written_needs_an_operator() -> None:
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    files.before = fail_on("create", OSError(errno.EROFS, "read-only"))
    with pytest.raises(StoreRefusedError, match=r"cannot be used: .*read-only"):
        await store.put("a", [b"x"])
    await store.close()


async def test_nothing_is_written_after_names_could_not_be_synced() -> None:
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    await store.put("a", [b"x"])
    files.before = fail_on("fsync_directory", OSError(errno.EIO, "broken"))
    with pytest.raises(StoreUnavailableError, match="broken"):
        await store.put("b", [b"x"])
    files.before = lambda kind, path: None
    for call in (store.put("b", [b"x"]), store.create("c", b"x"), store.delete(["a"])):
        with pytest.raises(StoreRefusedError, match="start the process again"):
            await call
    assert await store.read("a", 0, 1) == b"x"
    await store.close()


async def test_links_are_not_followed_out_of_the_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"kept")
    store = open_store(str(tmp_path / "store"), {})
    (tmp_path / "store" / "folder").symlink_to(outside)
    (tmp_path / "store" / "object").symlink_to(outside / "new")
    for call in (store.put("folder/x", [b"x"]), store.create("folder/y", b"x"), store.put("object", [b"x"])):
        with pytest.raises(StoreRefusedError):
            await call
    await store.delete(["folder/precious"])
    assert sorted(path.name for path in outside.iterdir()) == ["precious"]
    await store.close()


async def test_a_name_cannot_be_an_object_and_a_folder(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {})
    await store.put("a/b", [b"x"])
    with pytest.raises(StoreRefusedError, match="a is a directory"):
        await store.put("a", [b"x"])
    with pytest.raises(StoreRefusedError, match="b is no directory"):
        await store.put("a/b/c", [b"x"])
    assert [found.name for found in await store.list("", "", 9)] == ["a/b"]
    await store.close()


async def test_what_has_no_name_of_an_object_is_not_listed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {})
    await store.put("a", [b"x"])
    (tmp_path / "b c").touch()
    (tmp_path / "~d").mkdir()
    (tmp_path / "~d" / "e").touch()
    assert [found.name for found in await store.list("", "", 9)] == ["a"]
    await store.close()


async def test_a_dead_writers_files_go_and_a_living_ones_stay(tmp_path: Path) -> None:
    files = GatedFiles()
    living = LocalStore(tmp_path, files)
    files.gate.clear()
    put = asyncio.create_task(living.put("7/1", [b"x"]))
    await until(files.stopped.is_set)
    (tmp_path / f"~{TOKEN}.lock").touch()
    (tmp_path / f"~{TOKEN}-0.tmp").touch()
    (tmp_path / f"~{'1' * 32}-0.tmp").touch()
    (tmp_path / "~notes").touch()
    before = set(own_files(tmp_path))
    newcomer = open_store(str(tmp_path), {})
    gone = before - set(own_files(tmp_path))
    assert gone == {f"~{TOKEN}.lock", f"~{TOKEN}-0.tmp", f"~{'1' * 32}-0.tmp"}
    files.gate.set()
    await put
    assert await newcomer.read("7/1", 0, 1) == b"x"
    await living.close()
    await newcomer.close()
    assert own_files(tmp_path) == ["~notes", "~opening.lock"]


async def test_opening_waits_for_its_turn_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles()
    held = files.lock(tmp_path / "~opening.lock")
    opening = asyncio.create_task(asyncio.to_thread(open_store, str(tmp_path), {}))
    done, _ = await asyncio.wait([opening], timeout=0.05)
    assert not done
    files.close(held)
    await (await opening).close()
    monkeypatch.setattr(writers, "OPENING_SECONDS", 0.03)
    held = files.lock(tmp_path / "~opening.lock")
    with pytest.raises(StoreUnavailableError, match=r"held by another process for 0\.03 s"):
        open_store(str(tmp_path), {})
    files.close(held)


def test_a_directory_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="file is no directory"):
            open_store(str(path), {})


async def test_folders_are_synced_again_after_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_SETTLED", 3)
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    for number in range(9):
        await store.put(f"{number % 5}/{number}", [b"x"])
        assert len(store._folders._settled) <= 3
    assert len(await store.list("", "", 99)) == 9
    await store.close()


async def test_killed_in_the_midst_of_puts_it_has_what_it_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.store_writer", str(tmp_path), str(OBJECT_BYTES)]
    for kill in range(KILLS):
        acknowledged = _run_and_kill(command, 7 + 5 * kill)
        store = open_store(str(tmp_path), {})
        assert not [name for name in own_files(tmp_path) if name.endswith(".tmp")]
        found = dict(await store.list("", "", MAX_LISTED))
        stored = {line[1:] for line in acknowledged if line[0] == "+"}
        deleted = {line[1:] for line in acknowledged if line[0] == "-"}
        lost = {name for name in stored - deleted - set(found) if not name.startswith("0/")}
        assert not lost and not deleted & set(found)
        for name, size in found.items():
            assert await store.read(name, 0, size) == content(name, OBJECT_BYTES)
        await store.delete(list(found))
        await store.close()


def _run_and_kill(command: list[str], lines: int) -> list[str]:
    """What it printed until it was killed, some time after so many lines."""
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(lines)]
        os.kill(process.pid, signal.SIGKILL)
        printed += process.stdout.read().splitlines(keepends=True)
        process.wait(PATIENCE_SECONDS)
    assert "" not in printed
    # The last line may be half of one.
    return [line.strip() for line in printed if line.endswith("\n")]


async def test_nothing_is_put_into_a_directory_that_took_the_place_of_the_opened_one(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"), {})
    await store.put("a/1", [b"x"])
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    (tmp_path / "store").mkdir()
    for name in ("a/2", "b/1"):
        with pytest.raises(StoreRefusedError):
            await store.put(name, [b"x"])
    assert not [*(tmp_path / "store").iterdir()]
    (tmp_path / "store").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    await store.put("b/1", [b"x"])
    assert await store.read("b/1", 0, 1) == b"x"
    await store.close()
