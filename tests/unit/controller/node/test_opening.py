"""Opening a data directory: its parts must fit together, or the member does not start."""

from __future__ import annotations

import logging
import random
from pathlib import Path, PurePath

import msgspec
import pytest

from pidkeeper.controller.node.assembly import make_core, raft_config
from pidkeeper.controller.node.opening import InconsistentStorage, OpenedStorage, open_storage
from pidkeeper.controller.node.settings import PROFILES, MemberSettings, Voter
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.records import LeaderChangeRecord, ProducerIdFloorRecord, encode_batch
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.memory_files import MemoryFiles, PowerCut, fail_on

DATA = Path("/data")
SETTINGS = MemberSettings(
    node_id=1,
    cluster_id="c",
    data_dir=str(DATA),
    voters=(Voter(1, HostPort("127.0.0.1", 1), "http://127.0.0.1:2"),),
    peer_listen=HostPort("127.0.0.1", 1),
    timing=PROFILES["lan"],
    block_size=10,
    broker_session_timeout_ms=9000,
    snapshot_entries=10,
    snapshot_allocations=10,
    segment_bytes=1 << 20,
    peer_keys=(b"a key of the members",),
)
DATA_BATCH = encode_batch([LeaderChangeRecord(1)])


def formatted() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(DATA)
    format_directory(files, DATA, "c", 1)
    return files


def reopened(files: MemoryFiles) -> OpenedStorage:
    """As after a power cut, which also gives the lock back."""
    return open_storage(files.cut_power(), SETTINGS)


def image(index: int, next_id: int = 0) -> StateImage:
    machine = StateMachine("c", 10)
    if next_id:
        machine.replay([ProducerIdFloorRecord(next_id, 0)])
    return machine.image(index, 1)


def log_of(storage: OpenedStorage, first: int, last: int) -> None:
    entries = [Entry(1, index, DATA_BATCH) for index in range(first, last + 1)]
    storage.wal.append(entries, HardState(term=1, vote=1))


def snapshots(files: MemoryFiles) -> list[PurePath]:
    directory = DATA / "snapshots"
    return [directory / name for name in files.listdir(directory)]


def test_a_fresh_directory_is_that_of_a_member_without_memory() -> None:
    storage = open_storage(formatted(), SETTINGS)
    assert storage.log.entries == []
    assert storage.log.hard_state.recovering
    assert storage.snapshot == SnapshotId(0, 0)
    assert storage.machine.image(0, 0) == StateMachine("c", 10).image(0, 0)
    assert storage.archive.covered_to == 0


def test_snapshot_and_log_are_found_again() -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 8)
    storage.catalog.save(image(3))
    storage.catalog.save(image(5, next_id=700))
    again = reopened(files)
    assert again.snapshot == SnapshotId(5, 1)
    assert again.machine.producer_ids.next_producer_id == 700
    assert [entry.index for entry in again.log.entries] == list(range(1, 9))


def test_a_damaged_newest_snapshot_is_passed_over_if_the_log_covers_it(caplog: pytest.LogCaptureFixture) -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 8)
    storage.catalog.save(image(3, next_id=300))
    storage.catalog.save(image(5, next_id=700))
    newest = snapshots(files)[-1]
    files.replace_content(newest, files.read_bytes(newest)[:-1] + b"\xff")
    with caplog.at_level(logging.ERROR):
        again = reopened(files)
    assert again.snapshot == SnapshotId(3, 1)
    assert again.machine.producer_ids.next_producer_id == 300
    assert f"passed over a damaged snapshot {newest.name}" in caplog.text


def restarted_at(files: MemoryFiles, index: int) -> OpenedStorage:
    """A directory into which the leader's snapshot at `index` was installed."""
    storage = open_storage(files, SETTINGS)
    storage.catalog.save(image(index))
    storage.wal.append([], HardState(term=1, vote=1))
    storage.wal.restart_at(SnapshotId(index, 1), HardState(term=1, vote=1, commit=index))
    return storage


def test_a_log_that_ends_before_the_snapshot_may_have_lost_its_end() -> None:
    """An old copy of its last sector, for one. A vote may have gone with it."""
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 8)
    storage.catalog.save(image(9))
    again = reopened(files)
    assert (again.log.hard_state, again.log.entries) == (HardState(1, 1, 9, recovering=True), [])


def test_a_log_that_lost_the_term_of_its_snapshot_too_goes_on_in_it_without_a_vote() -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 8)
    storage.catalog.save(msgspec.structs.replace(image(9), term=2))
    again = reopened(files)
    assert again.log.hard_state == HardState(2, None, 9, recovering=True)
    make_core(SETTINGS, again, raft_config(SETTINGS, again), random.SystemRandom())


def test_a_log_without_its_snapshot_does_not_start() -> None:
    files = formatted()
    restarted_at(files, 9)
    assert reopened(files).snapshot == SnapshotId(9, 1)
    disk = files.cut_power()
    for path in snapshots(disk):
        disk.unlink(path)
    with pytest.raises(
        InconsistentStorage, match=f"continues a snapshot at index 9, .* whole one is at 0; move {DATA} away"
    ):
        open_storage(disk, SETTINGS)


def test_the_snapshot_that_is_missing_is_named_if_it_is_there_and_damaged() -> None:
    files = formatted()
    restarted_at(files, 9)
    disk = files.cut_power()
    (path,) = snapshots(disk)
    disk.replace_content(path, disk.read_bytes(path)[:-1] + b"\xff")
    with pytest.raises(InconsistentStorage, match=f"whole one is at 0; snapshot {path.name}: the checksum does not"):
        open_storage(disk, SETTINGS)


def test_a_log_that_leaves_a_gap_after_the_snapshot_does_not_start() -> None:
    files = formatted()
    settings = msgspec.structs.replace(SETTINGS, segment_bytes=8192)
    storage = open_storage(files, settings)
    for index in range(1, 400):
        log_of(storage, index, index)
    storage.catalog.save(image(3))
    storage.wal.compact(399)
    with pytest.raises(InconsistentStorage, match=r"log starts at index \d+, but the newest whole snapshot ends at 3"):
        open_storage(files.cut_power(), settings)


def test_a_gap_before_a_log_without_entries_is_one_too() -> None:
    files = formatted()
    settings = msgspec.structs.replace(SETTINGS, segment_bytes=1024)
    storage = open_storage(files, settings)
    log_of(storage, 1, 8)
    for term in range(2, 20):
        storage.wal.append([], HardState(term))
    storage.catalog.save(image(3))
    storage.catalog.save(image(8))
    storage.wal.compact(9)
    assert reopened(files).log.entries == []
    disk = files.cut_power()
    newest = snapshots(disk)[-1]
    disk.replace_content(newest, disk.read_bytes(newest)[:-1] + b"\xff")
    with pytest.raises(InconsistentStorage, match=f"starts at index 9, .* snapshot ends at 3; snapshot {newest.name}"):
        open_storage(disk, settings)


def test_a_torn_last_write_is_cut_off_and_told(caplog: pytest.LogCaptureFixture) -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 5)
    files.fdatasync = lambda handle: None  # type: ignore[method-assign]
    log_of(storage, 6, 8)
    (segment,) = [name for name in files.listdir(DATA / "wal") if name.endswith(".wal")]
    content = files.read_bytes(DATA / "wal" / segment)
    torn = files.cut_power()
    end = len(content.rstrip(b"\0"))
    torn.replace_content(DATA / "wal" / segment, content[: end - 10].ljust(len(content), b"\0"))
    with caplog.at_level(logging.WARNING):
        again = open_storage(torn, SETTINGS)
    assert [entry.index for entry in again.log.entries] == list(range(1, 6))
    assert again.log.hard_state.recovering
    assert "was torn at byte" in caplog.text


@pytest.mark.parametrize("left", [0, 10])
def test_a_log_that_lost_the_term_of_its_own_snapshot_goes_on_in_that_term_without_a_vote(left: int) -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 5)
    (segment,) = [name for name in files.listdir(DATA / "wal") if name.endswith(".wal")]
    content = files.read_bytes(DATA / "wal" / segment)
    storage.wal.append([Entry(2, index, DATA_BATCH) for index in range(6, 9)], HardState(term=2, vote=3))
    storage.catalog.save(StateMachine("c", 10).image(7, 2))
    newer = files.read_bytes(DATA / "wal" / segment)
    end = len(content.rstrip(b"\0"))
    disk = files.cut_power()
    disk.replace_content(DATA / "wal" / segment, newer[: end + left].ljust(len(content), b"\0"))
    again = open_storage(disk, SETTINGS)
    assert (again.snapshot, again.log.entries) == (SnapshotId(7, 2), [])
    assert again.log.hard_state == HardState(term=2, vote=None, commit=7, recovering=True)
    assert reopened(disk).log.hard_state == again.log.hard_state


@pytest.mark.parametrize(
    ("change", "message"),
    [({"cluster_id": "other"}, "belongs to cluster c"), ({"node_id": 2}, "belongs to node 1")],
)
def test_another_members_directory_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(DirectoryError, match=message):
        open_storage(formatted(), msgspec.structs.replace(SETTINGS, **change))


def test_a_directory_is_opened_by_one_process_alone() -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    with pytest.raises(DirectoryError, match="in use by another process"):
        open_storage(files, SETTINGS)
    storage.directory.close()
    open_storage(files, SETTINGS)


def test_an_unformatted_directory_is_refused() -> None:
    files = MemoryFiles()
    files.make_directory(DATA)
    with pytest.raises(DirectoryError, match="pidkeeper storage format"):
        open_storage(files, SETTINGS)


def test_a_snapshot_that_a_killed_member_left_unsynced_is_durable_before_the_log_restarts_behind_it() -> None:
    files = formatted()
    storage = open_storage(files, SETTINGS)
    log_of(storage, 1, 3)
    files.before = fail_on("fsync_directory", PowerCut())
    with pytest.raises(PowerCut):
        storage.catalog.save(image(9))
    files.before = lambda kind, path: None
    storage.directory.close()
    assert open_storage(files, SETTINGS).snapshot == SnapshotId(9, 1)
    found = reopened(files)
    assert found.snapshot == SnapshotId(9, 1)
    assert found.wal.next_index == 10


def test_a_directory_that_a_killed_command_left_unsynced_is_durable_before_the_log_is_written() -> None:
    files = MemoryFiles()
    files.make_directory(DATA)
    files.before = lambda kind, path: fail_on("fsync_directory", PowerCut())(kind, path) if path == DATA else None
    with pytest.raises(PowerCut):
        format_directory(files, DATA, "c", 1)
    files.before = lambda kind, path: None
    log_of(open_storage(files, SETTINGS), 1, 3)
    assert len(reopened(files).log.entries) == 3
