from __future__ import annotations

from pathlib import Path

import pytest

from bench.generate import BLOCK_IDS, CLUSTER_ID
from bench.grown_directory import GrownDirectory
from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.recovery import RecoveredLog
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import FeatureLevelRecord, LeaderChangeRecord, decode_batch, encode_batch
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.image import StateImage

FILES = OsFiles()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a member that led and stopped."""
    path = tmp_path / "member"
    meta = format_directory(FILES, path, CLUSTER_ID, 1)
    log, _ = WriteAheadLog.open(FILES, path / "wal", meta)
    first = encode_batch([LeaderChangeRecord(1), FeatureLevelRecord(LATEST)])
    log.append([Entry(3, 1, first)], HardState(term=3, vote=1, commit=1))
    log.close()
    return path


def reopened(data: Path) -> tuple[RecoveredLog, StateImage | None]:
    """The log and the newest snapshot."""
    meta = format_directory(FILES, data, CLUSTER_ID, 1, ignore_formatted=True)
    log, recovered = WriteAheadLog.open(FILES, data / "wal", meta)
    log.close()
    newest = SnapshotCatalog(FILES, data / "snapshots", CLUSTER_ID).newest()
    return recovered, None if newest is None else newest[1]


def test_a_history_lies_in_the_archive_behind_a_snapshot_that_the_log_continues(data: Path) -> None:
    with GrownDirectory(data) as grown:
        grown.add_history(2500)
    log, image = reopened(data)
    assert image is not None and image.next_producer_id == 2500 * BLOCK_IDS
    assert (log.entries, log.snapshot.index) == ([], image.index)
    assert log.hard_state == HardState(term=3, vote=1, commit=image.index)
    archive = AllocationArchive(FILES, data / "archive", CLUSTER_ID)
    assert (archive.covered_to, archive.end_id) == (image.next_offset, image.next_producer_id)
    newest = archive.find(image.next_producer_id - 1)
    assert newest is not None and image.last_block is not None
    assert (newest.offset, newest.broker_id) == (image.last_block.offset, image.last_block.broker_id)


def test_transactional_ids_are_in_a_snapshot(data: Path) -> None:
    with GrownDirectory(data) as grown:
        grown.add_transactional_ids(1200)
    _, image = reopened(data)
    assert image is not None and len(image.transactions) == 1200
    assert image.next_producer_id == 2000, "each has an ID of the quorum's own blocks"


@pytest.mark.parametrize("entries", [0, 1, 2300])
def test_a_log_without_a_snapshot_can_be_replayed(data: Path, entries: int) -> None:
    with GrownDirectory(data) as grown:
        grown.add_log(entries)
    log, image = reopened(data)
    assert image is None
    assert (len(log.entries), log.hard_state.commit) == (1 + entries, 1 + entries)
    machine = StateMachine(CLUSTER_ID)
    for entry in log.entries:
        machine.replay(decode_batch(entry.data))
    assert machine.producer_ids.next_producer_id == max(0, entries - 1) * machine.block_size
