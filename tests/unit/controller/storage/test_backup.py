"""A copy of a member that runs: what is in it, and when there is none."""

from __future__ import annotations

import uuid
from pathlib import PurePath

import pytest

from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.backup import back_up
from pidkeeper.controller.storage.directory import format_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, FoundingVoter, read_founding, write_founding
from pidkeeper.controller.storage.restoring import restore_directory
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage
from tests.support.memory_files import MemoryFiles

DATA, COPY = PurePath("/data"), PurePath("/copy")
FOUNDING = Founding.of([FoundingVoter(1, "host:9", "http://host")], uuid.UUID(int=1))


def image(index: int, next_offset: int, next_id: int) -> StateImage:
    return StateImage(1, index, 2, next_offset, next_id, None, [])


@pytest.fixture
def files() -> MemoryFiles:
    """A member with two snapshots, whose archive goes beyond the newer one."""
    files = MemoryFiles()
    format_directory(files, DATA, "c", 1)
    write_founding(files, DATA, FOUNDING)
    catalog = SnapshotCatalog(files, DATA / "snapshots", "c")
    catalog.save(image(10, 20, 1000))
    catalog.save(image(30, 60, 3000))
    archive = AllocationArchive(files, DATA / "archive", "c")
    for first, offsets in ((0, (0, 20)), (1000, (20, 60)), (3000, (60, 90))):
        archive.append([AllocatedBlock(first, first + 999, 1, 0, offsets[0], 0)], *offsets)
    return files


def names(files: MemoryFiles, folder: str) -> list[str]:
    return sorted(files.listdir(COPY / folder))


def test_the_newest_snapshot_is_copied_with_the_history_up_to_it(files: MemoryFiles) -> None:
    before = {path: files.read_bytes(path) for path in (DATA / "meta.json", DATA / "founding.json")}
    made = back_up(files, DATA, COPY)
    assert (made.next_producer_id, made.snapshot.index, made.meta) == (3000, 30, read_meta(files, COPY))
    assert names(files, "snapshots") == [made.snapshot.name]
    assert AllocationArchive(files, COPY / "archive", "c").end_id == 2000
    assert read_founding(files, COPY) == FOUNDING
    assert {path: files.read_bytes(path) for path in before} == before
    assert restore_directory(files, COPY, 5000).founding.succession is not None


def test_a_damaged_snapshot_is_passed_over(files: MemoryFiles) -> None:
    newest = max(files.listdir(DATA / "snapshots"))
    handle = files.open(DATA / "snapshots" / newest)
    files.pwrite(handle, b"\xff\xff", 40)
    assert back_up(files, DATA, COPY).next_producer_id == 1000


def test_a_snapshot_that_goes_away_meanwhile_has_a_newer_one_in_its_place(files: MemoryFiles) -> None:
    class Pruned(MemoryFiles):
        def read_bytes(self, path: PurePath) -> bytes:
            if path.name.startswith("snapshot") and "30-" in path.name and path.parts[1] == "data":
                self.unlink(path)
                SnapshotCatalog(self, DATA / "snapshots", "c").save(image(50, 90, 4000))
            return super().read_bytes(path)

    pruned = Pruned()
    pruned.__dict__.update(files.__dict__)
    made = back_up(pruned, DATA, COPY)
    assert made.next_producer_id == 4000
    assert AllocationArchive(files, COPY / "archive", "c").end_id == 4000


def test_what_the_member_is_writing_is_not_touched(files: MemoryFiles) -> None:
    unfinished = DATA / "snapshots" / "snapshot-00000000000000000099-0000000002.snap.tmp"
    files.close(files.open(unfinished, create=True))
    back_up(files, DATA, COPY)
    assert files.exists(unfinished)


def test_there_is_nothing_to_copy_of_a_blank_member_or_before_the_first_snapshot() -> None:
    files = MemoryFiles()
    format_directory(files, DATA, "c", 1)
    with pytest.raises(DirectoryError, match="belongs to no quorum yet"):
        back_up(files, DATA, COPY)
    write_founding(files, DATA, FOUNDING)
    with pytest.raises(DirectoryError, match="has no snapshot yet"):
        back_up(files, DATA, COPY)
    with pytest.raises(DirectoryError):
        read_meta(files, COPY)


def test_nothing_is_written_over(files: MemoryFiles) -> None:
    back_up(files, DATA, COPY)
    with pytest.raises(DirectoryError, match="holds archive"):
        back_up(files, DATA, COPY)


@pytest.mark.parametrize("at", range(1, 30))
def test_a_copy_that_was_not_completed_is_no_data_directory(files: MemoryFiles, at: int) -> None:
    calls = 0

    def fail(kind: str, path: PurePath) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError(28, "No space left on device")

    files.before = fail
    try:
        back_up(files, DATA, COPY)
    except OSError:
        files.before = lambda kind, path: None
        after = files.cut_power()
        if after.exists(COPY / "meta.json"):
            assert restore_directory(after, COPY, 5000).founding.succession is not None
