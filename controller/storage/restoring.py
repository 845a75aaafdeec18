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
from pidkeeper.controller.storage.founding import FOUNDING_NAME, Founding, FoundingVoter, read_founding
from pidkeeper.controller.storage.recovery import recover
from pidkeeper.disk.files import Files, sync_tree
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import Succession
from pidkeeper.protocol.records import QuorumMember, RecordError, VotersRecord, decode_batch
from pidkeeper.snapshots.catalog import SnapshotCatalog
from pidkeeper.snapshots.snapshot_format import NewerSnapshot


class Restored(msgspec.Struct, frozen=True):
    """What became of a copy; `already`: it was restored before.

    `voters`: who votes, and `next_producer_id`: the lowest ID that was not handed out, both by what the copy knows.
    """

    meta: DirectoryMeta
    founding: Founding
    voters: list[int]
    next_producer_id: int
    already: bool


def restore_directory(
    files: Files,
    path: PurePath,
    floor: int,
    *,
    owner: tuple[str, int] | None = None,
    forced: bool = False,
    dry_run: bool = False,
    new_founding_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> Restored:
    """Let the copy at `path` take the place of the quorum that it was copied from, under a founding of its own.

    All IDs that were ever handed out lie below `floor`. One that is more than MAX_FLOOR_JUMP above what the copy knows
    has to be `forced`. Once more with the same floor changes nothing, nor does a `dry_run`. `owner`: cluster id and
    node id of the member whose directory it has to be. Raises DirectoryError, and changes nothing, if the directory is
    another member's or no voter's, is in use, cannot be replayed, is blank or of a build without foundings, was
    restored with a higher floor before, or knows of a higher ID than `floor`; LogCorruption; OSError.
    """
    meta = read_meta(files, path)
    with open_directory(files, path, *(owner or (meta.cluster_id, meta.node_id))) as directory:
        founding = read_founding(files, path)
        machine, committed = _replayed(files, directory)
        if founding is None or founding.founding_id is None:
            raise DirectoryError(_without_founding(path, machine))
        voters, known = _voting(meta, founding, machine, committed), machine.producer_ids.next_producer_id
        pending = _not_begun(founding, machine)
        if pending is not None and pending.floor == floor:
            return Restored(meta, founding, voters, known, already=True)
        _check_floor(path, floor, machine, pending, forced=forced)
        predecessor = founding.founding_id if pending is None else pending.predecessor
        successor = Founding.of(founding.voters, new_founding_id(), Succession(predecessor, floor))
        if not dry_run:
            # Whoever put the copy there has hardly synced it, and on what it holds IDs are handed out.
            sync_tree(files, path)
            directory.found(successor)
    return Restored(meta, successor, voters, known, already=False)


def _not_begun(founding: Founding, machine: StateMachine) -> Succession | None:
    """What was said when it was restored before, if nothing has come of that: a higher floor goes on from there."""
    return None if machine.foundings.founding_id == founding.founding_id else founding.succession


def _without_founding(path: PurePath, machine: StateMachine) -> str:
    if machine.next_offset == 0:
        return f"{path} is blank: there is nothing to recover from"
    if (recorded := machine.foundings.founding_id) is not None:
        return f"{path} lacks {FOUNDING_NAME}, but its log is of founding {recorded}: take another copy"
    return (
        f"{path} was begun by a build without foundings: put it in place as it is, then raise the floor before the "
        "first agent starts"
    )


def _voting(
    meta: DirectoryMeta, founding: Founding, machine: StateMachine, committed: VotersRecord | None
) -> list[int]:
    """Who votes by the newest that the copy knows. Raises DirectoryError if its own member does not, for certain."""
    voters: list[int] = []
    for record in (committed, machine.voters):
        voters = [one.id for one in (founding.voters if record is None else record.members) if _votes(one)]
        if meta.node_id not in voters:
            raise DirectoryError(
                f"it is of member {meta.node_id}, and what it knows for certain is a quorum of {voters}, who would not "
                f"join it: take a voter's; if none is left, recover from none, at least "
                f"{machine.producer_ids.next_producer_id}"
            )
    return voters


def _votes(member: FoundingVoter | QuorumMember) -> bool:
    return isinstance(member, FoundingVoter) or member.voting


def _replayed(files: Files, directory: DataDirectory) -> tuple[StateMachine, VotersRecord | None]:
    """What the copy knows, with all entries of its log: the leader that it becomes commits those that were not.

    And the voters by what it knows to be committed: it tells blank members of these.
    """
    machine, last = StateMachine(directory.meta.cluster_id), 0
    try:
        newest = SnapshotCatalog(files, directory.snapshots, directory.meta.cluster_id).newest()
        if newest is not None:
            machine.restore(newest[1])
            last = newest[0].index
        committed = machine.voters
        log = recover(files, directory.wal, directory.meta).log
        for entry in log.entries:
            if entry.index <= last:
                continue
            if entry.index != last + 1:
                raise DirectoryError(f"{directory.path} has entry {entry.index} behind {last}: take another copy")
            machine.replay(decode_batch(entry.data))
            last = entry.index
            committed = machine.voters if last <= log.hard_state.commit else committed
    except (RecordError, NewerSnapshot, UnsupportedMetadataVersion) as error:
        raise DirectoryError(f"{directory.path} cannot be read by this build: {error}") from error
    return machine, committed


def _check_floor(
    path: PurePath, floor: int, machine: StateMachine, pending: Succession | None, *, forced: bool
) -> None:
    known = machine.producer_ids.next_producer_id
    if pending is not None and floor < pending.floor:
        raise DirectoryError(f"{path} was restored before, from ID {pending.floor} on: {floor} is too low")
    if floor < known:
        raise DirectoryError(
            f"{path} knows that IDs up to {known - 1} were handed out: {floor} is too low, {known} is the least"
        )
    try:
        check_floor(known, floor, machine.block_size, forced=forced)
    except RequestError as refusal:
        raise DirectoryError(f"{path}: {refusal.detail}") from refusal
