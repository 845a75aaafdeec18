"""A member's data directory: whose it is, and that one process alone uses it.

meta.json     the identity, written once by `format_directory`
founding.json the quorum's founding, written once, before the member's first vote (`founding.py`)
lock          locked by the process that has the directory open
wal/          the log
snapshots/    the snapshots
archive/      the allocation archive
"""

from __future__ import annotations

import uuid
from pathlib import PurePath
from types import TracebackType
from typing import Final, Self

import msgspec

from pidkeeper.controller.raft.messages import NodeId
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import Founding, write_founding
from pidkeeper.disk.files import Files, write_durably
from pidkeeper.protocol.messages import ClusterId
from pidkeeper.snapshots.cluster_id import pack_cluster_id

FORMAT_VERSION: Final = 1
META_NAME: Final = "meta.json"
_LOCK_NAME: Final = "lock"
_SUBDIRECTORIES: Final = ("wal", "snapshots", "archive")


class DirectoryMeta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose data this is. `directory_id` tells a replaced disk from the one that it replaced (KIP-853)."""

    format_version: int
    cluster_id: ClusterId
    node_id: NodeId
    directory_id: uuid.UUID


class DataDirectory:
    """An open data directory: `meta`, the paths within, and the lock, which `close` gives back.

    `founded`: a founding is durable in it.
    """

    def __init__(self, files: Files, path: PurePath, meta: DirectoryMeta, lock: int) -> None:
        self.path = path
        self.meta = meta
        self.wal = path / "wal"
        self.snapshots = path / "snapshots"
        self.archive = path / "archive"
        self.founded = False
        self._files = files
        self._lock: int | None = lock

    def found(self, founding: Founding) -> None:
        """Make durable which founding this directory belongs to. Raises OSError."""
        write_founding(self._files, self.path, founding)
        self.founded = True

    def close(self) -> None:
        """Let another process open the directory. A second call does nothing."""
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def format_directory(
    files: Files,
    path: PurePath,
    cluster_id: str,
    node_id: int,
    *,
    ignore_formatted: bool = False,
    directory_id: uuid.UUID | None = None,
) -> DirectoryMeta:
    """Make `path` the data directory of member `node_id` of cluster `cluster_id`, under a new uuid or the given one.

    Raises DirectoryError, and changes nothing, if it is one already; with `ignore_formatted`, only if it is one of
    another cluster or member. Raises DirectoryError also if it holds data but no identity.
    """
    try:
        pack_cluster_id(cluster_id)
        new_id = directory_id or uuid.uuid4()
        meta = msgspec.convert(DirectoryMeta(FORMAT_VERSION, cluster_id, node_id, new_id), DirectoryMeta)
        msgspec.json.decode(msgspec.json.encode(meta), type=DirectoryMeta)
    except ValueError as error:
        raise DirectoryError(f"cannot format {path}: {error}") from error
    if files.exists(path / META_NAME):
        return _already_formatted(files, path, cluster_id, node_id, ignore_formatted)
    missing = [one for one in (path, *path.parents) if not files.exists(one)]
    for directory in [path / name for name in _SUBDIRECTORIES]:
        files.make_directory(directory)
        if names := files.listdir(directory):
            raise DirectoryError(
                f"{directory} holds {names[0]} but {path / META_NAME} is missing: refusing to format over data; "
                "move the data away or name an empty directory"
            )
    # Each name is durable once its parent is. Of the parents that were there, the nearest may be an earlier attempt's.
    for made in missing or [path]:
        files.fsync_directory(made.parent)
    write_durably(files, path / META_NAME, msgspec.json.format(msgspec.json.encode(meta)) + b"\n")
    return meta


def read_meta(files: Files, path: PurePath) -> DirectoryMeta:
    """The identity of a data directory, without opening it. Raises DirectoryError if there is none to be read."""
    meta_path = path / META_NAME
    if not files.exists(meta_path):
        raise DirectoryError(f"{path} is not formatted: run `pidkeeper storage format` on it first")
    try:
        meta = msgspec.json.decode(files.read_bytes(meta_path), type=DirectoryMeta)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DirectoryError(f"{meta_path} is malformed: {error}; restore it from a copy or format anew") from error
    if meta.format_version != FORMAT_VERSION:
        raise DirectoryError(
            f"{meta_path} has format version {meta.format_version}, this build reads {FORMAT_VERSION}: "
            "run the build that wrote it"
        )
    return meta


def open_directory(files: Files, path: PurePath, cluster_id: str | None, node_id: int) -> DataDirectory:
    """Open the data directory of member `node_id` for this process alone.

    Raises DirectoryError if it is not formatted, if another process has it open, or if it belongs to another member or
    to another cluster than `cluster_id` (None accepts any).
    """
    meta = read_meta(files, path)
    _check_identity(path, meta, meta.cluster_id if cluster_id is None else cluster_id, node_id)
    try:
        lock = files.lock(path / _LOCK_NAME)
    except BlockingIOError as error:
        raise DirectoryError(f"data directory {path} is in use by another process: stop that one first") from error
    try:
        # A format that was killed before its sync left an identity that only this machine's memory holds.
        files.fsync_directory(path)
    except OSError:
        files.close(lock)
        raise
    return DataDirectory(files, path, meta, lock)


def _already_formatted(
    files: Files, path: PurePath, cluster_id: str, node_id: int, ignore_formatted: bool
) -> DirectoryMeta:
    meta = read_meta(files, path)
    if not ignore_formatted:
        raise DirectoryError(
            f"{path} is formatted already, for cluster {meta.cluster_id} and node {meta.node_id}: "
            "ignore formatted directories if that is the one you mean, or name another"
        )
    _check_identity(path, meta, cluster_id, node_id)
    return meta


def _check_identity(path: PurePath, meta: DirectoryMeta, cluster_id: str, node_id: int) -> None:
    if meta.cluster_id != cluster_id:
        raise DirectoryError(
            f"{path} belongs to cluster {meta.cluster_id}, but cluster {cluster_id} was asked for: "
            "correct the configured cluster id or the configured directory"
        )
    if meta.node_id != node_id:
        raise DirectoryError(
            f"{path} belongs to node {meta.node_id}, but node {node_id} was asked for: "
            "correct the configured node id or the configured directory"
        )
