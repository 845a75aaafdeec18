"""A copy of a data directory is made ready to go on in place of the quorum that it was copied from.

The quorum went on after the copy was made, and what it handed out then is in no copy. So the restored one is a quorum
of its own: with a founding that names its predecessor, and with the ID from which on it hands out. Its log begins with
that of the predecessor; the leader adds the succession before anything else (docs/decisions/0027).

One copy is restored, and the other members join it with blank disks. Copies of different moments are no quorum: one
may hold as committed what a majority of the others lacks. So each gets a founding that no other has.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import PurePath

import msgspec

from pidkeeper.controller.state.machine import StateMachine, UnsupportedMetadataVersion
from pidkeeper.controller.state.producer_ids import check_floor
from pidkeeper.controller.storage.directory import DataDirectory, DirectoryMeta, open_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, read_founding
from pidkeeper.controller.storage.recovery import recover
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.records import RecordError, decode_batch
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.files import Files
from pidkeeper.snapshots.snapshot_format import NewerSnapshot


class Restored(msgspec.Struct, frozen=True):
    """What became of a copy; `already`: it was restored before."""

    meta: DirectoryMeta
    founding: Founding
    already: bool


def restore_directory(
    files: Files,
    path: PurePath,
    floor: int,
    *,
    forced: bool = False,
    new_founding_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Restored:
    """Let the copy at `path` take the place of the quorum that it was copied from, under a founding of its own.

    All IDs that were ever handed out lie below `floor`. One that is more than MAX_FLOOR_JUMP above what the copy knows
    has to be `forced`. Once more with the same floor changes nothing. Raises DirectoryError, and changes nothing, if
    the directory is in use, cannot be replayed, is of a build without foundings, was restored with another floor before
    and never ran, or knows of a higher ID than `floor`; LogCorruption; OSError.
    """
    meta = read_meta(files, path)
    with open_directory(files, path, meta.cluster_id, meta.node_id) as directory:
        founding = read_founding(files, path)
        if founding is None or founding.founding_id is None:
            raise DirectoryError(
                f"{path} has no founding with an id: it is blank, or was begun by a build without foundings. Such a "
                "copy is put in place as it is; then raise the floor before the first agent starts"
            )
        machine = _replayed(files, directory)
        if founding.succession is not None and machine.foundings.founding_id != founding.founding_id:
            if founding.succession.floor != floor:
                raise DirectoryError(
                    f"{path} was restored before with the floor {founding.succession.floor}, and has not run since: "
                    "give the same one, or take the copy anew"
                )
            return Restored(meta, founding, already=True)
        _check_floor(path, floor, machine, forced=forced)
        successor = Founding.of(founding.voters, new_founding_id(), Succession(founding.founding_id, floor))
        directory.found(successor)
    return Restored(meta, successor, already=False)


def _replayed(files: Files, directory: DataDirectory) -> StateMachine:
    """What the copy knows, with all entries of its log: the leader that it becomes commits those that were not."""
    machine, last = StateMachine(directory.meta.cluster_id), 0
    try:
        newest = SnapshotCatalog(files, directory.snapshots, directory.meta.cluster_id).newest()
        if newest is not None:
            machine.restore(newest[1])
            last = newest[0].index
        for entry in recover(files, directory.wal, directory.meta).log.entries:
            if entry.index <= last:
                continue
            if entry.index != last + 1:
                raise DirectoryError(f"{directory.path} has entry {entry.index} behind {last}: take another copy")
            machine.replay(decode_batch(entry.data))
            last = entry.index
    except (RecordError, NewerSnapshot, UnsupportedMetadataVersion) as error:
        raise DirectoryError(f"{directory.path} cannot be read by this build: {error}") from error
    return machine


def _check_floor(path: PurePath, floor: int, machine: StateMachine, *, forced: bool) -> None:
    known = machine.producer_ids.next_producer_id
    if floor < known:
        raise DirectoryError(f"{path} knows that IDs up to {known - 1} were handed out: {floor} is below that")
    try:
        check_floor(known, floor, machine.block_size, forced=forced)
    except RequestError as refusal:
        raise DirectoryError(f"{path}: {refusal.detail}") from refusal
