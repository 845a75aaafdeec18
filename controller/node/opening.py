"""Opens a member's data directory and makes sure that its parts fit together before anything is built on them."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from pidkeeper.controller.node.durable_voters import (
    check_file,
    durable_record,
    founding_by,
    founding_of,
    founding_record,
    is_blank,
    joins_as_learner,
)
from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.raft.messages import HardState
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.directory import DataDirectory, open_directory
from pidkeeper.controller.storage.founding import Founding
from pidkeeper.controller.storage.owner_archive import OwnerArchive
from pidkeeper.controller.storage.recovery import RecoveredLog
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.disk.files import Files
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import VotersRecord
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.snapshot_id import SnapshotId

logger = logging.getLogger(__name__)


class InconsistentStorage(Exception):  # noqa: N818 - the state of the directory, which is what the operator reads
    """The log and the snapshots of a directory contradict each other; the member must not start from them."""


class OpenedStorage(msgspec.Struct):
    """Everything that was on disk, ready for use. `snapshot` is the one that the state machine was restored from.

    `blank`: neither log nor snapshot held anything. `founding`: None until one is ordered, or joined. `voters`: the
    quorum as long as neither log nor snapshot holds another; `learner`: see `joins_as_learner`.
    """

    directory: DataDirectory
    wal: WriteAheadLog
    log: RecoveredLog
    catalog: SnapshotCatalog
    archive: AllocationArchive
    owners: OwnerArchive
    machine: StateMachine
    snapshot: SnapshotId
    blank: bool
    founding: Founding | None
    voters: VotersRecord
    learner: bool


def open_storage(files: Files, settings: MemberSettings, supported: int = LATEST) -> OpenedStorage:
    """Open and check; blocking.

    supported: the newest metadata version that is read here. Raises DirectoryError, LogCorruption, LogFull,
    ArchiveError, InconsistentStorage, NewerSnapshot, UnsupportedMetadataVersion, VotersRefused, OSError; each names the
    file and the remedy.
    """
    directory = open_directory(files, Path(settings.data_dir), settings.cluster_id, settings.node_id)
    catalog = SnapshotCatalog(files, directory.snapshots, settings.cluster_id)
    newest = catalog.newest()
    for name, damage in catalog.damaged.items():
        logger.error("passed over a damaged snapshot %s: %s", name, damage)
    machine = StateMachine(settings.cluster_id, settings.block_size, supported)
    snapshot = SnapshotId(0, 0)
    if newest is not None:
        machine.restore(newest[1])
        snapshot = newest[0]
    wal, log = WriteAheadLog.open(files, directory.wal, directory.meta, segment_bytes=settings.segment_bytes)
    _check(directory, log, wal.next_index, snapshot, catalog)
    if _reaches(log, snapshot):
        _tell_torn(log)
    else:
        # A crash came between installing a leader's snapshot and restarting the log behind it, or cut the log below
        # our own snapshot. Either way the snapshot is what counts.
        logger.warning("the log ends before the snapshot at index %d, or disagrees: going on from it", snapshot.index)
        wal.restart_at(snapshot, _reconciled(log.hard_state, snapshot))
        log.hard_state, log.entries = wal.hard_state, []
    founding = founding_of(files, directory.path, settings, machine, log)
    directory.founded = founding is not None
    expected = founding or founding_by(settings)
    voters = founding_record(expected, settings)
    durable = durable_record(voters, machine.voters, log.entries)
    check_file(settings, durable)
    learner = joins_as_learner(settings, directory.meta, expected, durable)
    return OpenedStorage(
        directory,
        wal,
        log,
        catalog,
        AllocationArchive(files, directory.archive, settings.cluster_id),
        OwnerArchive(files, directory.archive, settings.cluster_id),
        machine,
        snapshot,
        is_blank(machine, log),
        founding,
        voters,
        learner,
    )


def _reconciled(state: HardState, snapshot: SnapshotId) -> HardState:
    """The hard state to go on with from `snapshot`, which the log does not reach.

    A log that lost its end at a batch boundary looks like one that was never restarted behind a leader's snapshot. With
    the end may have gone a vote, and the term of the snapshot: so what this member remembers does not count in full.
    """
    commit = max(state.commit, snapshot.index)
    if state.term < snapshot.term:
        return HardState(snapshot.term, None, commit, recovering=True)
    return msgspec.structs.replace(state, commit=commit, recovering=True)


def _tell_torn(log: RecoveredLog) -> None:
    if log.truncated is not None:
        logger.warning(
            "the last write of %s was torn at byte %d and was never acknowledged; kept a copy as %s",
            log.truncated.segment,
            log.truncated.offset,
            log.truncated.copy,
        )


def _reaches(log: RecoveredLog, snapshot: SnapshotId) -> bool:
    """Whether the log goes on from `snapshot`, rather than ending before it or holding another entry in its place."""
    if not log.entries:
        return log.snapshot.index == snapshot.index
    position = snapshot.index - log.entries[0].index
    return position < 0 or (position < len(log.entries) and log.entries[position].term == snapshot.term)


def _check(
    directory: DataDirectory, log: RecoveredLog, next_index: int, snapshot: SnapshotId, catalog: SnapshotCatalog
) -> None:
    remedy = f"move {directory.path} away and format it anew: the member then catches up from the others"
    passed_over = "".join(f"; {damage}" for damage in catalog.damaged.values())
    if log.snapshot.index > snapshot.index:
        raise InconsistentStorage(
            f"the log continues a snapshot at index {log.snapshot.index}, but the newest whole one is at "
            f"{snapshot.index}{passed_over}; {remedy}"
        )
    first = log.entries[0].index if log.entries else next_index
    if first > snapshot.index + 1:
        raise InconsistentStorage(
            f"the log starts at index {first}, but the newest whole snapshot ends at {snapshot.index}"
            f"{passed_over}; {remedy}"
        )
