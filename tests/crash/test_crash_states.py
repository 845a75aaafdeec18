"""A slice of the enumeration, and the mistakes that it has to find. `python -m tests.crash.run` does the whole."""

from __future__ import annotations

from pathlib import PurePath

import pytest

import pidkeeper.controller.storage.archive
from tests.crash.disk import CrashDisk
from tests.crash.enumerate_states import LyingDisk, run_history
from tests.crash.history import KINDS
from tests.crash.planted import MISTAKES

SEED = 7
OPERATIONS = 20
PLANTED_OPERATIONS = 40
OWNERS_SEED, OWNERS_SINCE = 12, 8
FILE = PurePath("/data/file")


@pytest.fixture(autouse=True)
def _early_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pidkeeper.controller.storage.archive, "MAX_SMALL_FILES", 1)


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS if not kind.own_ids])
def test_no_power_cut_breaks_a_promise(kind: str) -> None:
    result = run_history(kind, SEED, OPERATIONS)
    assert not result.violations, "\n".join(result.violations)
    assert result.states > 500


def test_no_power_cut_loses_an_owner() -> None:
    result = run_history("owners", OWNERS_SEED, OPERATIONS, since=OWNERS_SINCE)
    assert not result.violations, "\n".join(result.violations)
    assert result.states > 500


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = MISTAKES[name]
    mistake.make(monkeypatch)
    assert run_history(mistake.kind, mistake.seed, PLANTED_OPERATIONS, since=mistake.since).violations


def test_a_disk_that_syncs_nothing_is_found_out() -> None:
    assert run_history("append", 1, PLANTED_OPERATIONS, disk=LyingDisk()).violations


def test_states_of_a_torn_write_under_a_lost_or_kept_name() -> None:
    disk = CrashDisk()
    disk.make_directory(FILE.parent)
    handle = disk.open(FILE, create=True)
    disk.pwrite(handle, b"abc", 0)
    contents = {image.get(FILE) for _, image in disk.images()}
    assert contents == {None, b"", b"a", b"ab", b"abc", b"\0\0\0"}
    disk.fdatasync(handle)
    assert {image.get(FILE) for _, image in disk.images()} == {None, b"abc"}
    disk.fsync_directory(FILE.parent)
    assert [image for _, image in disk.images()] == [{FILE: b"abc"}]


def test_states_of_a_write_over_sectors() -> None:
    disk = CrashDisk()
    disk.make_directory(FILE.parent)
    handle = disk.open(FILE, create=True)
    disk.pwrite(handle, b"-" * 1200, 0)
    disk.fdatasync(handle)
    disk.fsync_directory(FILE.parent)
    disk.pwrite(handle, b"x" * 1000, 100)
    contents = [image[FILE] for _, image in disk.images()]
    assert len(contents) == len(set(contents))
    # Sectors end at 512 and 1024: each of the three pieces is there or not, besides the 999 places of a cut.
    whole = b"-" * 1200
    for kept in range(8):
        wanted = bytearray(whole)
        for bit, (start, end) in enumerate(((100, 512), (512, 1024), (1024, 1100))):
            if kept >> bit & 1:
                wanted[start:end] = b"x" * (end - start)
        assert bytes(wanted) in contents
    assert len(contents) == 999 + 8 - 2
