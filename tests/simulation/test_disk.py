"""The simulated disk forgets what it may forget, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import PurePath

import pytest

from tests.simulation.disk import SimDisk
from tests.simulation.world import Violation
from tests.support.memory_files import PowerCut

FOLDER = PurePath("/data")
PATH = FOLDER / "log.wal"


def make(content: bytes = b"synced") -> tuple[SimDisk, int]:
    """A disk with one durable file, and its handle."""
    disk = SimDisk()
    disk.make_directory(FOLDER)
    handle = disk.open(PATH, create=True)
    disk.pwrite(handle, content, 0)
    disk.fdatasync(handle)
    disk.fsync_directory(FOLDER)
    return disk, handle


def test_a_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    found = set()
    for seed in range(200):
        disk, handle = make()
        disk.pwrite(handle, b"abcd", 6)
        disk.cut_power(random.Random(seed))
        found.add(disk.read_bytes(PATH))
    assert all(content.startswith(b"synced") for content in found)
    assert found == {b"synced" + b"abcd"[:length] for length in range(5)}


def test_a_large_write_loses_any_of_its_sectors() -> None:
    found = set()
    for seed in range(400):
        disk, handle = make(bytes(1536))
        disk.pwrite(handle, b"x" * 1536, 0)
        disk.cut_power(random.Random(seed))
        content = disk.read_bytes(PATH)
        found.add(tuple(content[start : start + 512] == b"x" * 512 for start in (0, 512, 1024)))
    assert len(found) == 8


def test_names_may_go_back_until_the_directory_is_synced() -> None:
    found = set()
    for seed in range(50):
        disk, _ = make()
        disk.rename(PATH, FOLDER / "other")
        disk.cut_power(random.Random(seed))
        found.add(tuple(disk.listdir(FOLDER)))
    assert found == {("log.wal",), ("other",)}
    disk, _ = make()
    disk.unlink(PATH)
    disk.fsync_directory(FOLDER)
    disk.cut_power(random.Random(0))
    assert disk.listdir(FOLDER) == []


def test_a_second_name_may_be_lost_until_its_directory_is_synced() -> None:
    found = set()
    for seed in range(50):
        disk, handle = make()
        disk.link(PATH, FOLDER / "other")
        disk.cut_power(random.Random(seed))
        found.add(tuple(disk.listdir(FOLDER)))
    assert found == {("log.wal",), ("log.wal", "other")}
    disk, handle = make()
    disk.link(PATH, FOLDER / "other")
    disk.fsync_directory(FOLDER)
    disk.pwrite(handle, b"SYNCED", 0)
    disk.fdatasync(handle)
    disk.cut_power(random.Random(0))
    assert disk.read_bytes(FOLDER / "other") == b"SYNCED"
    with pytest.raises(FileExistsError):
        disk.link(PATH, FOLDER / "other")
    with pytest.raises(FileExistsError):
        disk.make_directory(PATH)
    assert (disk.is_directory(FOLDER), disk.is_directory(PATH)) == (True, False)


def test_a_killed_process_leaves_the_page_cache() -> None:
    disk, handle = make()
    disk.pwrite(handle, b"abcd", 6)
    disk.kill()
    assert disk.read_bytes(PATH) == b"syncedabcd"
    disk.fdatasync(disk.open(PATH))
    disk.cut_power(random.Random(0))
    assert disk.read_bytes(PATH) == b"syncedabcd"


def test_after_a_failed_sync_the_pages_count_as_clean() -> None:
    disk, handle = make()
    disk.pwrite(handle, b"abcd", 6)
    disk.arm(fail="sync")
    with pytest.raises(OSError, match="simulated sync error"):
        disk.fdatasync(handle)
    disk.fdatasync(handle)
    assert disk.read_bytes(PATH) == b"syncedabcd"
    disk.cut_power(random.Random(1))
    assert disk.read_bytes(PATH) == b"synced"


def test_a_full_disk_takes_no_new_bytes_but_overwrites() -> None:
    disk, handle = make()
    disk.arm(full=True)
    disk.pwrite(handle, b"SYNC", 0)
    with pytest.raises(OSError, match="no space"):
        disk.pwrite(handle, b"more", 6)
    disk.arm(full=False)
    disk.pwrite(handle, b"more", 6)


def test_the_power_goes_after_the_ordered_number_of_calls() -> None:
    disk, handle = make()
    disk.arm(cut_after=1)
    disk.pwrite(handle, b"a", 0)
    with pytest.raises(PowerCut):
        disk.fdatasync(handle)


def test_a_misdirected_write_is_missing_where_it_should_be() -> None:
    disk, handle = make(bytes(4096))
    disk.order_misdirection(random.Random(3))
    disk.pwrite(handle, b"x" * 64, 1024)
    content = disk.read_bytes(PATH)
    assert content.count(b"x") == 64 and content[1024:1088] != b"x" * 64
    assert disk.on_fault == ["disk_misdirected_write"]


def test_a_copy_brings_back_what_was_there_and_nothing_else() -> None:
    disk, handle = make()
    copy = disk.copy()
    disk.pwrite(handle, b"SYNCED and more", 0)
    disk.rename(PATH, FOLDER / "other")
    disk.go_back(copy)
    assert disk.listdir(FOLDER) == ["log.wal"]
    assert disk.read_bytes(PATH) == b"synced"
    disk.pwrite(disk.open(PATH), b"new", 0)
    assert copy[str(FOLDER)]["log.wal"] == b"synced"
    disk.cut_power(random.Random(0))
    assert disk.read_bytes(PATH)[3:] == b"ced"


def test_a_stale_read_shows_one_old_sector_once() -> None:
    found = set()
    for seed in range(50):
        disk, handle = make(bytes(2048))
        disk.pwrite(handle, b"x" * 1024, 256)
        disk.fdatasync(handle)
        disk.order_stale_read(random.Random(seed))
        content = disk.read_bytes(PATH)
        found.add(
            tuple(content[low:high] == bytes(high - low) for low, high in ((256, 512), (512, 1024), (1024, 1280)))
        )
        assert disk.on_fault == ["disk_stale_read"]
        assert disk.read_bytes(PATH) == bytes(256) + b"x" * 1024 + bytes(768)
    assert found == {(True, False, False), (False, True, False), (False, False, True)}


def test_two_processes_cannot_lock_the_same_file() -> None:
    disk, _ = make()
    disk.lock(FOLDER / "lock")
    with pytest.raises(BlockingIOError):
        disk.lock(FOLDER / "lock")
    disk.kill()
    disk.lock(FOLDER / "lock")


@pytest.mark.parametrize(
    "touch",
    [
        lambda disk, handle: disk.open(PATH),
        lambda disk, handle: disk.pread(handle, 1, 0),
        lambda disk, handle: disk.read_bytes(PATH),
        lambda disk, handle: disk.pwrite(handle, b"x", 0),
        lambda disk, handle: disk.fdatasync(handle),
        lambda disk, handle: disk.unlink(PATH),
    ],
)
def test_a_file_that_is_touched_by_an_event_loop_is_a_violation(touch: Callable[[SimDisk, int], object]) -> None:
    disk, handle = make()
    disk.off_limits = True
    with pytest.raises(Violation, match=r"of (log\.wal|/data) outside of any job"):
        touch(disk, handle)
    disk.off_limits = False
    touch(disk, handle)
