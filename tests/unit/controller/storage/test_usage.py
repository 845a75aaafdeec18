"""What a data directory takes on disk is looked up there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pidkeeper.controller.storage.usage import usage
from pidkeeper.snapshots.snapshot_id import SnapshotId


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("wal", "archive", "snapshots"):
        (tmp_path / name).mkdir()
    return tmp_path


def write(path: Path, size: int, written: float) -> None:
    path.write_bytes(bytes(size))
    os.utime(path, (written, written))


def test_an_empty_directory_takes_nothing(directory: Path) -> None:
    found = usage(directory)
    assert (found.log_bytes, found.archive_bytes, found.snapshot_bytes, found.snapshot_written) == (0, 0, 0, None)
    assert 0 < found.free_bytes <= shutil.disk_usage(directory).total


def test_files_are_added_up_and_the_newest_snapshot_is_told_of(directory: Path) -> None:
    write(directory / "wal" / "a.wal", 100, 1)
    write(directory / "wal" / "next-segment.tmp", 11, 1)
    write(directory / "archive" / "a.arc", 7, 1)
    write(directory / "archive" / "a.own", 30, 1)
    # The one with the highest index, whenever it was written; what is being received is none.
    write(directory / "snapshots" / SnapshotId(9, 1).name, 50, 1_000)
    write(directory / "snapshots" / SnapshotId(10, 2).name, 60, 900)
    write(directory / "snapshots" / f"received-{SnapshotId(11, 2).name}.tmp", 70, 2_000)
    found = usage(directory)
    assert (found.log_bytes, found.archive_bytes) == (111, 37)
    assert (found.snapshot_bytes, found.snapshot_written) == (60, 900)


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="wal"):
        usage(tmp_path)
