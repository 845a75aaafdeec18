"""What a data directory takes on disk, and what is free there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from os import stat_result
from pathlib import Path

import msgspec

from pidkeeper.snapshots.snapshot_id import SnapshotId


class Usage(msgspec.Struct, frozen=True):
    """Bytes, and when the newest snapshot was written, seconds since the epoch; None without one, of 0 bytes."""

    log_bytes: int
    archive_bytes: int
    snapshot_bytes: int
    snapshot_written: float | None
    free_bytes: int


def usage(directory: Path) -> Usage:
    """Look at it now; may take as long as the disk does. Raises OSError."""
    log, archive, snapshots = (dict(_files(directory / name)) for name in ("wal", "archive", "snapshots"))
    known = {snapshot: found for name, found in snapshots.items() if (snapshot := SnapshotId.from_name(name))}
    newest = known[max(known)] if known else None
    return Usage(
        log_bytes=sum(found.st_size for found in log.values()),
        archive_bytes=sum(found.st_size for found in archive.values()),
        snapshot_bytes=0 if newest is None else newest.st_size,
        snapshot_written=None if newest is None else newest.st_mtime,
        free_bytes=shutil.disk_usage(directory).free,
    )


def _files(folder: Path) -> Iterator[tuple[str, stat_result]]:
    for path in folder.iterdir():
        try:
            yield path.name, path.stat()
        except FileNotFoundError:  # replaced by a newer one meanwhile
            continue
