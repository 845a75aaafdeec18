"""A copy of what a member knew at its newest snapshot, taken while it runs, for `restoring`.

Snapshots and archives are written once and never change; the log does, so it is not copied. What the member learnt
since the snapshot is in no copy, nor is what the quorum decides after it: so a copy is of use with a floor above all
IDs that were ever handed out, and for nothing else.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

import msgspec

from pidkeeper.controller.storage.directory import META_NAME, DirectoryMeta, read_meta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import FOUNDING_NAME, read_founding
from pidkeeper.disk.files import Files, write_durably
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import MAX_SNAPSHOT_BYTES, SnapshotError, decode_snapshot
from pidkeeper.snapshots.snapshot_id import SnapshotId

LOOKS: Final = 3
"""A snapshot that goes away while it is read has a newer one in its place."""

_UP_TO_OFFSET: Final = re.compile(r"\d{20}-(\d{20})\.[a-z]+")


class Backup(msgspec.Struct, frozen=True):
    """What was copied. `archives`: files of the allocation history; `size`: bytes in all."""

    meta: DirectoryMeta
    snapshot: SnapshotId
    next_producer_id: int
    archives: int
    size: int


def back_up(files: Files, source: PurePath, target: PurePath) -> Backup:
    """Copy the newest whole snapshot of the member at `source`, and its history up to there, to `target`.

    Without its last file, which is written at the end, `target` is no data directory. Raises DirectoryError if `target`
    holds anything, or if there is no founding or no whole snapshot to copy; OSError.
    """
    if files.exists(target) and (held := files.listdir(target)):
        raise DirectoryError(f"{target} holds {held[0]}: name an empty directory, or none")
    meta = read_meta(files, source)
    if read_founding(files, source) is None:
        raise DirectoryError(f"{source} belongs to no quorum yet: there is nothing to copy")
    snapshot, data, image = _newest(files, source / "snapshots", meta)
    for name in ("wal", "snapshots", "archive"):
        files.make_directory(target / name)
    copied = {f"snapshots/{snapshot.name}": data, FOUNDING_NAME: files.read_bytes(source / FOUNDING_NAME)}
    archives = _archives(files, source / "archive", image)
    copied |= {f"archive/{name}": files.read_bytes(source / "archive" / name) for name in archives}
    copied[META_NAME] = files.read_bytes(source / META_NAME)
    for name, content in copied.items():
        write_durably(files, target / name, content)
    size = sum(map(len, copied.values()))
    return Backup(meta, snapshot, image.next_producer_id, len(archives), size)


def _newest(files: Files, path: PurePath, meta: DirectoryMeta) -> tuple[SnapshotId, bytes, StateImage]:
    """Not by a SnapshotCatalog: to open one is for the member alone, as it clears away what is being written."""
    problem = (
        f"{path} has no snapshot yet: the first one comes after `snapshot_entries` entries or `snapshot_allocations` "
        "blocks. Until then, stop the member and copy its whole directory"
    )
    for _ in range(LOOKS):
        found = (SnapshotId.from_name(name) for name in files.listdir(path))
        for snapshot in sorted((one for one in found if one is not None), reverse=True):
            try:
                if files.size(path / snapshot.name) > MAX_SNAPSHOT_BYTES:
                    raise SnapshotError(f"snapshot {snapshot.name} is larger than {MAX_SNAPSHOT_BYTES} bytes")
                data = files.read_bytes(path / snapshot.name)
                return snapshot, data, decode_snapshot(data, snapshot.name, meta.cluster_id)
            except FileNotFoundError:
                break
            except SnapshotError as error:
                problem = str(error)
    raise DirectoryError(problem)


def _archives(files: Files, path: PurePath, image: StateImage) -> list[str]:
    """Those that end at or before the snapshot: a later one tells of blocks that the copied state does not know."""
    found = {name: _UP_TO_OFFSET.fullmatch(name) for name in files.listdir(path)}
    return sorted(name for name, match in found.items() if match is not None and int(match[1]) <= image.next_offset)
