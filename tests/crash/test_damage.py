"""A slice of the damage of what was synced, and mistakes that it has to find. `python -m tests.crash.run` does more."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tests.crash.damage import FAULTS, RecordingDisk
from tests.crash.disk import SECTOR
from tests.crash.enumerate_damage import Verdict, no_checksums, run_damage
from tests.crash.history import KINDS
from tests.crash.planted import DAMAGE_MISTAKES

SEED = 7
OPERATIONS = 16
DISKS = 1
PLANTED_OPERATIONS = 24
PLANTED_DISKS = 4
AREAS = {"owners-not-verified-at-open": "owners"}
DIRECTORY = PurePath("/data/wal")


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS if not kind.own_ids])
def test_no_damage_is_served(kind: str) -> None:
    result = run_damage(kind, SEED, OPERATIONS, DISKS)
    assert not result.violations, "\n".join(result.violations)
    assert result.disks == DISKS
    assert {name.partition(" ")[0] for name in result.counts} == set(FAULTS)
    for name, verdicts in result.counts.items():
        assert Verdict.UNDETECTABLE.value not in verdicts or not name.startswith("flipped")


def test_no_damage_of_the_owners_is_served() -> None:
    result = run_damage("owners", SEED, OPERATIONS, DISKS, area="owners")
    assert not result.violations, "\n".join(result.violations)
    assert result.counts.keys() == {"flipped owners", "zeroed owners", "misdirected owners"}
    assert all(verdicts.keys() == {Verdict.REFUSED.value} for verdicts in result.counts.values())


def test_a_member_that_compares_no_checksums_is_found_out() -> None:
    with no_checksums():
        assert run_damage("append", 1, OPERATIONS, DISKS).violations


@pytest.mark.parametrize("name", DAMAGE_MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake = DAMAGE_MISTAKES[name]
    mistake.make(monkeypatch)
    assert run_damage(mistake.kind, mistake.seed, PLANTED_OPERATIONS, PLANTED_DISKS, area=AREAS.get(name)).violations


def test_every_fault_is_listed_once() -> None:
    disk = RecordingDisk()
    disk.make_directory(DIRECTORY)
    handles = {}
    for name in ("a", "b"):
        handles[name] = disk.open(DIRECTORY / name, create=True)
        disk.preallocate(handles[name], 2 * SECTOR)
        disk.fdatasync(handles[name])
    disk.fsync_directory(DIRECTORY)
    for name, data, offset in (("a", b"one", 0), ("a", b"two", SECTOR), ("b", b"three", 10)):
        disk.pwrite(handles[name], data, offset)
        disk.fdatasync(handles[name])
    found = {fault: [damage for damage in disk.damages() if damage.fault == fault] for fault in FAULTS}
    assert len(found["flipped"]) == 4 * SECTOR
    assert [damage.place for damage in found["zeroed"]] == [
        "the sector at byte 0 of a",
        f"the sector at byte {SECTOR} of a",
        "the sector at byte 0 of b",
    ]
    # What a sector held before its write is zeroes here, whichever sync it is from.
    assert len(found["stale"]) == 3
    # Each of three writes at the place of each other one, with its own place as it was or not.
    assert len(found["misdirected"]) == 3 * 2 * 2
    first = found["misdirected"][0]
    assert (first.area, first.place) == ("wal", f"3 bytes for byte 0 of a at byte {SECTOR} of a")
    assert first.image[DIRECTORY / "a"][SECTOR : SECTOR + 3] == b"one"
    assert first.image[DIRECTORY / "a"][:3] == b"one"
    assert found["misdirected"][1].image[DIRECTORY / "a"][:3] == b"\0\0\0"
