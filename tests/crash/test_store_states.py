"""A slice of the store's histories, and the mistakes that they have to find."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from pidkeeper.broker_agent.data.store.local import LocalStore
from tests.crash.enumerate_states import LyingDisk
from tests.crash.planted import Mistake
from tests.crash.store_states import KIND, run_store
from tests.support.memory_files import MemoryFiles

SEED = 12
OPERATIONS = 40
PLANTED_OPERATIONS = 60
_SYNC = "self._sync(path.parent)"
MISTAKES = {
    "stored-without-sync": (
        "_write",
        "self._files.write_synced(handle, pieces)",
        'self._files.pwrite(handle, b"".join(pieces), 0)',
    ),
    "name-not-synced": ("_publish", _SYNC, "pass"),
    "name-not-synced-if-it-was-there": ("_publish", _SYNC, f"if stored: {_SYNC}"),
    "written-under-its-own-name": ("_store", "self._write(temporary, pieces)", "self._write(path, pieces)"),
    "deletion-not-synced": ("_delete", "self._sync_lowest(folder)", "pass"),
}


def test_no_power_cut_loses_or_tears_an_object() -> None:
    result = run_store(SEED, OPERATIONS)
    assert not result.violations, "\n".join(result.violations)
    assert result.operations == OPERATIONS
    assert result.states > 500


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new = MISTAKES[name]
    Mistake((LocalStore,), function, ((old, new),), KIND).make(monkeypatch)
    assert run_store(SEED, PLANTED_OPERATIONS).violations


def test_temporary_files_that_stay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pidkeeper.broker_agent.data.store.writers.Writer._remove_dead", lambda self: None)
    assert "were not removed" in run_store(SEED, PLANTED_OPERATIONS).violations[0]


def test_a_disk_that_syncs_nothing_is_found_out() -> None:
    assert run_store(SEED, PLANTED_OPERATIONS, disk=LyingDisk()).violations


async def test_a_deletion_that_another_process_did_not_live_to_sync_is_synced() -> None:
    root = PurePath("/store")
    files = MemoryFiles()
    store = LocalStore(root, files)
    await store.put("7/1", [b"x"])
    files.unlink(root / "7" / "1")
    assert files.cut_power().exists(root / "7" / "1")
    await store.delete(["7/1"])
    assert not files.cut_power().exists(root / "7" / "1")
    await store.close()
