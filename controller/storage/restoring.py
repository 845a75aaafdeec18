"""A copy of a data directory is made ready to go on in place of the quorum that it was copied from.

The quorum went on after the copy was made, and what it handed out then is in no copy. So the restored one is a quorum
of its own: with a founding that names its predecessor, and with the ID from which on it hands out. Its log begins with
that of the predecessor; the leader adds the succession before anything else (docs/decisions/0027).

One copy is restored, and the other members join it with blank disks. Copies of different moments are no quorum: one
may hold as committed what a majority of the others lacks. So each gets a founding that no other has.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from pathlib import PurePath

import msgspec

from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.storage.directory import DataDirectory, DirectoryMeta, open_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, read_founding
from pidkeeper.controller.storage.recovery import recover
from pidkeeper.protocol.founding import Succession, SuccessionRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE, MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.migration import ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    ProducerIdFloorRecord,
    Record,
    RecordError,
    decode_batch,
)
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.files import Files
from pidkeeper.snapshots.image import StateImage


class Restored(msgspec.Struct, frozen=True):
    """What became of a copy. `next_producer_id`: the next one that it knows of; `already`: it was restored before."""

    meta: DirectoryMeta
    founding: Founding
    next_producer_id: int
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
    the directory is in use, is of a build without foundings, was restored with another floor before and never ran, or
    knows of a higher ID than `floor`; LogCorruption; OSError.
    """
    meta = read_meta(files, path)
    with open_directory(files, path, meta.cluster_id, meta.node_id) as directory:
        founding = read_founding(files, path)
        if founding is None or founding.founding_id is None:
            raise DirectoryError(
                f"{path} has no founding with an id: it is blank, or was begun by a build without foundings. Such a "
                "copy is put in place as it is; then raise the floor before the first agent starts"
            )
        image, records = _read(files, directory)
        known = _next_producer_id(image, records)
        if founding.succession is not None and not _is_recorded(founding, image, records):
            if founding.succession.floor != floor:
                raise DirectoryError(
                    f"{path} was restored before with the floor {founding.succession.floor}, and has not run since: "
                    "give the same one, or take the copy anew"
                )
            return Restored(meta, founding, known, already=True)
        _check_floor(path, floor, known, forced=forced)
        successor = Founding.of(founding.voters, new_founding_id(), Succession(founding.founding_id, floor))
        directory.found(successor)
    return Restored(meta, successor, known, already=False)


def _read(files: Files, directory: DataDirectory) -> tuple[StateImage | None, list[Record]]:
    newest = SnapshotCatalog(files, directory.snapshots, directory.meta.cluster_id).newest()
    log = recover(files, directory.wal, directory.meta).log
    return None if newest is None else newest[1], list(_records(log.entries))


def _records(entries: Iterable[Entry]) -> Iterable[Record]:
    for entry in entries:
        try:
            yield from decode_batch(entry.data)
        except RecordError as error:
            raise DirectoryError(f"entry {entry.index} cannot be read: {error}") from error


def _next_producer_id(image: StateImage | None, records: Iterable[Record]) -> int:
    """The lowest ID that nothing in the copy has handed out, whether it was committed or not."""
    known = 0 if image is None else image.next_producer_id
    for record in records:
        match record:
            case AllocateProducerIdsRecord() | TransactionalBlockRecord():
                known = max(known, record.producer_id_end + 1)
            case ProducerIdFloorRecord() | ZooKeeperBlockRecord():
                known = max(known, record.next_producer_id)
            case SuccessionRecord():
                known = max(known, record.floor)
            case _:
                pass
    return known


def _is_recorded(founding: Founding, image: StateImage | None, records: Iterable[Record]) -> bool:
    """Whether the log knows of the founding, which takes another's place."""
    succeeded = [] if image is None or image.succession is None else [image.succession]
    succeeded += [record for record in records if isinstance(record, SuccessionRecord)]
    return any(one.founding_id == founding.founding_id for one in succeeded)


def _check_floor(path: PurePath, floor: int, known: int, *, forced: bool) -> None:
    if floor < known:
        raise DirectoryError(f"{path} knows that IDs up to {known - 1} were handed out: {floor} is below that")
    if floor > MAX_PRODUCER_ID - DEFAULT_BLOCK_SIZE:
        raise DirectoryError(f"a floor of {floor} would leave no block below {MAX_PRODUCER_ID}: nothing was changed")
    if floor - known > MAX_FLOOR_JUMP and not forced:
        raise DirectoryError(
            f"from {known} to {floor} would skip more than {MAX_FLOOR_JUMP} IDs for ever: nothing was changed; if that "
            "is what you mean, force it"
        )
