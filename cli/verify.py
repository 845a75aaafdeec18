"""`pidkeeper storage verify`: read everything that a member has on disk, change nothing, and say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from pidkeeper.cli.offline import found_snapshots, snapshot_problem
from pidkeeper.controller.storage.directory import read_meta
from pidkeeper.controller.storage.errors import DirectoryError, LogCorruption
from pidkeeper.controller.storage.founding import read_founding
from pidkeeper.controller.storage.owner_archive import SUFFIX
from pidkeeper.controller.storage.recovery import recover
from pidkeeper.disk.files import OsFiles
from pidkeeper.snapshots.archive_format import ArchiveError, decode_archive
from pidkeeper.snapshots.owner_format import decode_owners


class Finding(msgspec.Struct, frozen=True):
    """One thing that was read: `problem` is None if it is whole; `note` says more about a whole one."""

    what: str
    problem: str | None
    note: str = ""


def verify(directory: Path) -> Iterator[Finding]:
    """Identity, founding, log, snapshots and archive in turn. Raises OSError."""
    files = OsFiles()
    try:
        meta = read_meta(files, directory)
    except DirectoryError as error:
        yield Finding("identity", str(error))
        return
    yield Finding("identity", None, f"cluster {meta.cluster_id}, node {meta.node_id}")
    yield _founding(files, directory)
    try:
        log = recover(files, directory / "wal", meta).log
    except LogCorruption as error:
        yield Finding("log", str(error))
    else:
        torn = f", torn at {log.truncated.segment} byte {log.truncated.offset}" if log.truncated else ""
        last = log.entries[-1].index if log.entries else log.snapshot.index
        yield Finding("log", None, f"{len(log.entries)} entries to index {last}{torn}")
    for found in found_snapshots(directory / "snapshots"):
        yield Finding(found.name, snapshot_problem(directory / "snapshots" / found.name))
    for name in files.listdir(directory / "archive"):
        if name.endswith(".arc"):
            yield _archive(files, directory / "archive" / name)
        elif name.endswith(SUFFIX):
            yield _owners(files, directory / "archive" / name)


def _founding(files: OsFiles, directory: Path) -> Finding:
    try:
        founding = read_founding(files, directory)
    except DirectoryError as error:
        return Finding("founding", str(error))
    return Finding(
        "founding", None, "none yet" if founding is None else f"voters {[one.id for one in founding.voters]}"
    )


def _archive(files: OsFiles, path: Path) -> Finding:
    try:
        header, _ = decode_archive(files.read_bytes(path))
    except ArchiveError as error:
        return Finding(path.name, str(error))
    return Finding(path.name, None, f"{header.rows} blocks")


def _owners(files: OsFiles, path: Path) -> Finding:
    try:
        owners = decode_owners(files.read_bytes(path))
    except ArchiveError as error:
        return Finding(path.name, str(error))
    return Finding(path.name, None, f"{len(owners)} producer IDs of transactional ids")
