"""Folders of a store in a directory: they go with their last object, also while another one is put into them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from pidkeeper.broker_agent.data.store.local import MAX_TRIES, LocalStore
from pidkeeper.broker_agent.data.store.opening import open_store
from pidkeeper.broker_agent.data.store.port import StoreUnavailableError
from pidkeeper.disk.files import OsFiles
from tests.support.memory_files import MemoryFiles

ROOT = PurePath("/store")
FOLDER = ROOT / "segments" / "f" / "7"
NAME = "segments/f/7/1.log"


def folders_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


class Interrupted(MemoryFiles):
    """`interrupt` is called once, before the next change of that kind in that folder."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts: list[tuple[str, PurePath, Callable[[], None]]] = []
        self.before = self._interrupt

    def _interrupt(self, kind: str, path: PurePath) -> None:
        for one in list(self.interrupts):
            if (kind, path) == one[:2]:
                self.interrupts.remove(one)
                one[2]()
                return

    def remove(self, *folders: PurePath) -> None:
        """As somebody else removes folders that are empty."""
        for folder in folders:
            self.remove_directory(folder)


async def test_folders_go_with_their_last_object_and_no_others(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), {})
    await store.put(NAME, [b"x"])
    await store.put("segments/f/7/1.sparse", [b"x"])
    await store.put("segments/f/8/x/y", [b"x"])
    await store.delete([NAME])
    assert folders_in(tmp_path / "segments/f") == ["7", "8"]
    await store.delete(["segments/f/7/1.sparse", "segments/f/8/x/none"])
    assert folders_in(tmp_path / "segments/f") == ["8"]
    await store.delete(["segments/f/8/x/y"])
    assert folders_in(tmp_path) == []
    await store.put(NAME, [b"again"])
    assert await store.read(NAME, 0, 5) == b"again"
    await store.close()


async def test_a_folder_that_goes_before_the_name_is_given_is_made_and_synced_once_more() -> None:
    files = Interrupted()
    store = LocalStore(ROOT, files)
    await store.put(NAME, [b"x"])
    await store.delete([NAME])
    files.interrupts.append(("link", ROOT / NAME, lambda: files.remove(FOLDER, FOLDER.parent, ROOT / "segments")))
    files.calls.clear()
    await store.put(NAME, [b"y"])
    removed = max(place for place, (kind, _) in enumerate(files.calls) if kind == "remove_directory")
    synced = {path for kind, path in files.calls[removed:] if kind == "fsync_directory"}
    assert synced == {ROOT, ROOT / "segments", FOLDER.parent, FOLDER}
    assert files.cut_power().read_bytes(ROOT / NAME) == b"y"
    await store.close()


async def test_a_folder_that_another_thread_has_made_anew_is_synced_before_the_object_counts() -> None:
    files = Interrupted()
    store = LocalStore(ROOT, files)
    await store.put("segments/f/7/2.log", [b"x"])

    def make_anew() -> None:
        files.unlink(FOLDER / "2.log")
        files.remove(FOLDER)
        store._folders.forget(FOLDER)
        files.make_directory(FOLDER)

    files.interrupts.append(("link", ROOT / NAME, make_anew))
    files.calls.clear()
    await store.put(NAME, [b"y"])
    synced = {path for kind, path in files.calls if kind == "fsync_directory"}
    assert synced == {ROOT, ROOT / "segments", FOLDER.parent, FOLDER}
    assert [kind for kind, _ in files.calls].count("link") == 1
    await store.close()


async def test_a_folder_that_went_before_it_was_synced_is_not_taken_for_durable() -> None:
    files = Interrupted()
    store = LocalStore(ROOT, files)

    def remove() -> None:
        files.remove(FOLDER)
        store._folders.forget(FOLDER)

    files.interrupts.append(("fsync_directory", FOLDER.parent, remove))
    store._folders.prepare(FOLDER)
    assert not files.is_directory(FOLDER)
    store._folders.prepare(FOLDER)
    assert files.is_directory(FOLDER)
    await store.close()


async def test_an_object_that_is_deleted_while_it_is_put_stays_away() -> None:
    files = Interrupted()
    store = LocalStore(ROOT, files)

    def delete() -> None:
        files.unlink(ROOT / NAME)
        files.remove(FOLDER)

    await store.put("segments/f/7/2.log", [b"x"])
    await store.delete(["segments/f/7/2.log"])
    await store.put("segments/f/8/3.log", [b"x"])
    # The first sync is that of the folder which is made, the second that of the name.
    files.interrupts.append(("link", ROOT / NAME, lambda: files.interrupts.append(("fsync_directory", FOLDER, delete))))
    await store.put(NAME, [b"x"])
    assert [one.name for one in await store.list("", "", 9)] == ["segments/f/8/3.log"]
    await store.close()


async def test_a_folder_that_always_goes_ends_in_an_error() -> None:
    files = Interrupted()
    store = LocalStore(ROOT, files)
    files.interrupts += [("link", ROOT / NAME, lambda: files.remove(FOLDER))] * (MAX_TRIES + 1)
    with pytest.raises(StoreUnavailableError, match="removed again and again"):
        await store.put(NAME, [b"x"])
    assert len(files.interrupts) == 1
    await store.close()


async def test_a_deletion_is_durable_though_another_one_removes_the_folder() -> None:
    files = Interrupted()
    store = LocalStore(ROOT, files)
    await store.put(NAME, [b"x"])
    files.interrupts.append(("fsync_directory", FOLDER, lambda: files.remove(FOLDER, FOLDER.parent)))
    await store.delete([NAME])
    assert not files.cut_power().exists(ROOT / NAME)
    await store.close()


async def test_a_deletion_of_what_another_one_has_removed_is_durable() -> None:
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    await store.put(NAME, [b"x"])
    files.unlink(ROOT / NAME)
    files.remove_directory(FOLDER)
    assert files.cut_power().exists(ROOT / NAME)
    await store.delete([NAME])
    assert not files.cut_power().exists(ROOT / NAME)
    await store.close()


async def test_a_folder_that_goes_while_it_is_listed_has_nothing_in_it() -> None:
    files = MemoryFiles()
    store = LocalStore(ROOT, files)
    for name in (NAME, "a", "z"):
        await store.put(name, [b"x"])
    listdir = files.listdir

    def removed_before(path: PurePath) -> list[str]:
        if path == FOLDER:
            files.unlink(ROOT / NAME)
            files.remove_directory(FOLDER)
        return listdir(path)

    files.listdir = removed_before  # type: ignore[method-assign]
    assert [one.name for one in await store.list("", "", 9)] == ["a", "z"]
    files.listdir = listdir  # type: ignore[method-assign]
    await store.close()


async def test_what_is_put_while_two_stores_delete_is_there(tmp_path: Path) -> None:
    """Each writes into folders of its own and deletes everywhere, as agents do."""
    stores = [LocalStore(tmp_path, OsFiles()) for _ in range(2)]
    rng = random.Random(5)
    kept: set[str] = set()

    async def use(own: int, number: int) -> None:
        name = f"wal/f/{own}/{number % 3}/{number}"
        await stores[own].put(name, [b"x"])
        if rng.random() < 0.7:
            await stores[rng.randrange(2)].delete([name])
        else:
            kept.add(name)

    async with asyncio.timeout(20):
        for first in range(0, 60, 6):
            await asyncio.gather(*(use(number % 2, number) for number in range(first, first + 6)))
            assert {one.name for one in await stores[0].list("", "", 1000)} == kept
            await stores[1].delete(sorted(kept))
            kept.clear()
    assert folders_in(tmp_path) == []
    for store in stores:
        await store.close()
