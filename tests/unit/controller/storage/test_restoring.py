"""A copy of a directory that is to go on in place of the quorum that it was copied from."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable
from pathlib import PurePath

import msgspec
import pytest

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.directory import format_directory, open_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, FoundingVoter, read_founding, write_founding
from pidkeeper.controller.storage.restoring import Restored, restore_directory
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.protocol.founding import FoundingRecord, Succession, SuccessionRecord
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.migration import ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    QuorumMember,
    Record,
    RegisterBrokerRecord,
    VotersRecord,
    encode_batch,
)
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.memory_files import MemoryFiles, PowerCut, fail_at

DATA = PurePath("/data")
LOST, NEW, NEXT = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
VOTERS = [FoundingVoter(1, "host:9", "http://host")]
FLOOR = 5000
BEGUN = (
    LeaderChangeRecord(1),
    FeatureLevelRecord(LATEST),
    FoundingRecord(LOST, 1000, False, 0),
    RegisterBrokerRecord(1, 3, "a"),
)
BLOCK = AllocateProducerIdsRecord(1, 3, 999, 0, 1000, 0)


def copied(*records: Record, founding: Founding | None = None) -> MemoryFiles:
    """A directory in term 7, whose log is that of founding LOST and ends with `records`."""
    files = MemoryFiles()
    meta = format_directory(files, DATA, "c", 1)
    write_founding(files, DATA, founding or Founding.of(VOTERS, LOST))
    add(files, [*BEGUN, *records], HardState(7, 1, 1))
    assert read_meta(files, DATA) == meta
    return files


def add(files: MemoryFiles, records: Iterable[Record], state: HardState) -> None:
    wal, _ = WriteAheadLog.open(files, DATA / "wal", read_meta(files, DATA))
    first = wal.next_index
    wal.append([Entry(7, first + number, encode_batch([one])) for number, one in enumerate(records)], state)
    wal.close()


def wal_of(files: MemoryFiles) -> dict[str, bytes]:
    return {name: files.read_bytes(DATA / "wal" / name) for name in files.listdir(DATA / "wal")}


def restore(files: MemoryFiles, floor: int = FLOOR, founding_id: uuid.UUID = NEW, *, forced: bool = False) -> Restored:
    return restore_directory(files, DATA, floor, forced=forced, new_founding_id=lambda: founding_id)


def refusal(files: MemoryFiles, floor: int = FLOOR, *, forced: bool = False) -> str:
    """Why it is not restored; nothing of the directory is changed."""
    founding = read_founding(files, DATA)
    with pytest.raises(DirectoryError) as caught:
        restore(files, floor, forced=forced)
    assert read_founding(files, DATA) == founding
    return str(caught.value)


def test_it_names_its_predecessor_and_keeps_its_log() -> None:
    files = copied(BLOCK)
    before = wal_of(files)
    restored = restore(files)
    assert restored.founding == read_founding(files, DATA) == Founding.of(VOTERS, NEW, Succession(LOST, FLOOR))
    assert not restored.already
    assert wal_of(files) == before, "its log is that of the predecessor"


def test_two_copies_are_two_quorums() -> None:
    """Of different moments, one may hold as committed what the others lack."""
    one, other = (restore_directory(copied(BLOCK), DATA, FLOOR) for _ in range(2))
    assert one.founding.founding_id != other.founding.founding_id


def test_once_more_changes_nothing_and_a_floor_only_rises() -> None:
    files = copied(BLOCK)
    first = restore(files)
    again = restore(files, founding_id=NEXT)
    assert (again.already, again.founding) == (True, first.founding)
    assert f"was restored before, from ID {FLOOR} on: {FLOOR - 1} is too low" in refusal(files, FLOOR - 1)
    higher = restore(files, FLOOR + 1, NEXT)
    assert not higher.already
    assert read_founding(files, DATA) == Founding.of(VOTERS, NEXT, Succession(LOST, FLOOR + 1)), "who joined is another"


@pytest.mark.parametrize("in_snapshot", [False, True])
def test_a_quorum_that_took_a_place_can_be_followed_in_its_turn(in_snapshot: bool) -> None:
    succession = SuccessionRecord(NEW, LOST, FLOOR, 0)
    files = copied(founding=Founding.of(VOTERS, NEW, Succession(LOST, FLOOR)))
    if in_snapshot:
        founding = FoundingRecord(NEW, 1000, False, 0)
        image = StateImage(8, len(BEGUN), 7, 5, FLOOR, None, [], founding=founding, succession=succession)
        SnapshotCatalog(files, DATA / "snapshots", "c").save(image)
    else:
        add(files, [succession], HardState(7, 1, 2))
    assert f"knows that IDs up to {FLOOR - 1} were handed out" in refusal(files, FLOOR - 1)
    restored = restore(files, 9000, NEXT)
    assert restored.founding.succession == Succession(NEW, 9000)


@pytest.mark.parametrize(
    "record",
    [
        BLOCK,
        TransactionalBlockRecord(0, 999, 0),
        ProducerIdFloorRecord(1000, 0),
        ZooKeeperBlockRecord(1000, 7, 1, 0),
    ],
)
def test_a_floor_below_what_the_copy_knows_of_is_refused(record: Record) -> None:
    files = copied(record)
    assert "knows that IDs up to 999 were handed out: 999 is too low, 1000 is the least" in refusal(files, 999)
    restore(files, 1000)


def test_a_floor_is_bounded_as_any_other() -> None:
    files = copied(BLOCK)
    assert "would leave no block" in refusal(files, MAX_PRODUCER_ID, forced=True)
    assert f"would skip more than {MAX_FLOOR_JUMP} IDs" in refusal(files, 1000 + MAX_FLOOR_JUMP + 1)
    restore(files, 1000 + MAX_FLOOR_JUMP + 1, forced=True)
    restore(copied(BLOCK), 1000 + MAX_FLOOR_JUMP)


def test_a_copy_that_this_build_cannot_read_is_refused() -> None:
    files = copied()
    wal, _ = WriteAheadLog.open(files, DATA / "wal", read_meta(files, DATA))
    wal.append([Entry(7, wal.next_index, b"\x91\x93\x7f\x00\x90")], None)
    wal.close()
    assert "cannot be read by this build: unknown record type 127" in refusal(files)
    assert f"reads {LATEST} at most" in refusal(copied(FeatureLevelRecord(LATEST + 1)))


def test_a_log_that_does_not_go_on_from_its_snapshot_is_refused() -> None:
    files = copied(BLOCK)
    wal, _ = WriteAheadLog.open(files, DATA / "wal", read_meta(files, DATA))
    wal.restart_at(SnapshotId(9, 7), HardState(7, 1, 9))
    wal.append([Entry(7, 10, encode_batch([LeaderChangeRecord(1)]))], None)
    wal.close()
    assert "has entry 10 behind 0: take another copy" in refusal(files)


def test_what_has_no_founding_of_its_own_is_refused() -> None:
    files = copied(founding=Founding.of(VOTERS))
    assert f"lacks founding.json, but its log is of founding {LOST}" in refusal(files)
    files.unlink(DATA / "founding.json")
    assert "lacks founding.json" in refusal(files)
    blank, early = MemoryFiles(), MemoryFiles()
    for one in (blank, early):
        format_directory(one, DATA, "c", 1)
    assert "is blank: there is nothing to recover from" in refusal(blank)
    add(early, [LeaderChangeRecord(1)], HardState(7, 1, 1))
    assert "was begun by a build without foundings: put it in place as it is" in refusal(early)


def test_only_a_voters_copy_is_taken_and_only_of_the_member_that_is_named() -> None:
    """Nobody would vote for it: blank members join a voter alone."""
    voters = [FoundingVoter(number, "host:9", "http://host") for number in (2, 3)]
    founding = Founding.of(voters, LOST)
    assert "is of member 1, and what it knows for certain is a quorum of [2, 3]" in refusal(copied(founding=founding))
    joined = VotersRecord(tuple(QuorumMember(one, None, "host:9", "http://host", one != 3) for one in (1, 2, 3)))
    files = copied(joined, founding=founding)
    assert "a quorum of [2, 3]" in refusal(files), "it may never have been committed that it is a voter"
    add(files, [BLOCK], HardState(7, 1, len(BEGUN) + 1))
    assert restore(files).voters == [1, 2]
    with pytest.raises(DirectoryError, match="belongs to cluster c, but cluster d was asked for"):
        restore_directory(copied(BLOCK), DATA, FLOOR, owner=("d", 1))
    with pytest.raises(DirectoryError, match="belongs to node 1, but node 2 was asked for"):
        restore_directory(copied(BLOCK), DATA, FLOOR, owner=("c", 2))


def test_a_plan_says_the_same_and_changes_nothing() -> None:
    files = copied(BLOCK)
    planned = restore_directory(files, DATA, FLOOR, dry_run=True)
    assert read_founding(files, DATA) == Founding.of(VOTERS, LOST)
    assert planned.founding.succession == Succession(LOST, FLOOR)
    assert (planned.next_producer_id, planned.already) == (1000, False)
    assert "999 is too low" in refusal(files, 999)


def test_a_member_that_runs_is_left_alone() -> None:
    files = copied()
    with (
        open_directory(files, DATA, "c", 1),
        pytest.raises(DirectoryError, match="is in use by another process: stop that one first"),
    ):
        restore(files)


@pytest.mark.parametrize("step", range(8))
def test_a_power_cut_leaves_the_predecessor_or_the_successor_and_it_can_be_restored_again(step: int) -> None:
    files = copied(BLOCK)
    files.before = fail_at(step, PowerCut())
    with contextlib.suppress(PowerCut):
        restore(files)
    after = files.cut_power()
    assert read_founding(after, DATA) in (
        Founding.of(VOTERS, LOST),
        Founding.of(VOTERS, NEW, Succession(LOST, FLOOR)),
    )
    assert restore(after).founding.founding_id == NEW


def test_a_copy_that_was_not_synced_is_durable_once_it_is_restored() -> None:
    synced = copied(BLOCK)
    files = MemoryFiles()
    for folder in (DATA, *(DATA / name for name in synced.listdir(DATA) if synced.is_directory(DATA / name))):
        files.make_directory(folder)
        for name in synced.listdir(folder):
            if not synced.is_directory(folder / name):
                handle = files.open(folder / name, create=True)
                files.pwrite(handle, synced.read_bytes(folder / name), 0)
                files.close(handle)
    files.fsync_directory(DATA.parent)
    done = restore(files)
    left = files.cut_power()
    assert restore(left) == msgspec.structs.replace(done, already=True)
    assert wal_of(left) == wal_of(synced)
