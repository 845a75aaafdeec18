"""The snapshots of one member: a directory of files `snapshot-<index>-<term>.snap` (20 digits and at least 10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

from pidkeeper.disk.files import TEMPORARY_SUFFIX, Files, remove_temporary, write_durably
from pidkeeper.snapshots.image import StateImage
from pidkeeper.snapshots.snapshot_format import (
    MAX_SNAPSHOT_BYTES,
    NewerSnapshot,
    SnapshotError,
    at_once,
    check_snapshot,
    decode_snapshot,
    encode_snapshot,
)
from pidkeeper.snapshots.snapshot_id import SnapshotId


class SnapshotCatalog:
    """The snapshots in the directory `path`, which must exist. Opening removes what a crash left unfinished."""

    def __init__(self, files: Files, path: PurePath, cluster_id: str) -> None:
        self._files = files
        self._path = path
        self._cluster_id = cluster_id
        self.damaged: dict[str, SnapshotError] = {}
        """What `newest` had to pass over, by file name; the files stay for a look at them."""
        remove_temporary(files, path)

    def ids(self) -> list[SnapshotId]:
        """The snapshots by their names, oldest first; unverified."""
        found = (SnapshotId.from_name(name) for name in self._files.listdir(self._path))
        return sorted(snapshot for snapshot in found if snapshot is not None)

    def load(self, snapshot: SnapshotId) -> StateImage:
        """Read and verify one snapshot. Raises SnapshotError."""
        path = self._path / snapshot.name
        self._check_size(snapshot.name, self._size(snapshot))
        image = decode_snapshot(self._files.read_bytes(path), snapshot.name, self._cluster_id)
        _check_id(snapshot, image)
        return image

    def newest(self) -> tuple[SnapshotId, StateImage] | None:
        """The newest snapshot that is whole; see `damaged` for newer ones that are not.

        Raises NewerSnapshot: passing over it would hide from a build that is too old what is the matter.
        """
        for snapshot in reversed(self.ids()):
            try:
                return snapshot, self.load(snapshot)
            except NewerSnapshot:
                raise
            except SnapshotError as error:
                self.damaged[snapshot.name] = error
        return None

    def save(self, image: StateImage, rest: Callable[[], None] = at_once) -> SnapshotId:
        """Write a snapshot; it is durable on return. `rest` is called between its rows."""
        snapshot = SnapshotId(image.index, image.term)
        write_durably(self._files, self._path / snapshot.name, encode_snapshot(self._cluster_id, image, rest))
        return snapshot

    def prune(self, keep: int = 2) -> None:
        """Remove all snapshots older than the `keep` newest whole ones."""
        assert keep >= 1, f"keeping {keep} snapshots would lose the state"
        whole = 0
        for snapshot in reversed(self.ids()):
            if whole >= keep:
                self._files.unlink(self._path / snapshot.name)
                continue
            try:
                self._check(snapshot)
            except SnapshotError as error:
                self.damaged[snapshot.name] = error
            else:
                whole += 1
        self._files.fsync_directory(self._path)

    def _check(self, snapshot: SnapshotId) -> None:
        """Raises SnapshotError. To load it as well would take as much memory as the state once more."""
        self._check_size(snapshot.name, self._size(snapshot))
        check_snapshot(self._files.read_bytes(self._path / snapshot.name), snapshot.name, self._cluster_id)

    def read_chunk(self, snapshot: SnapshotId, offset: int, size: int) -> tuple[bytes, bool]:
        """Up to `size` bytes of the file from `offset`, and whether they are its last. Raises SnapshotError."""
        total = self._size(snapshot)
        if not 0 <= offset <= total or size < 1:
            raise SnapshotError(f"snapshot {snapshot.name}: no {size} bytes at offset {offset} of {total}")
        handle = self._files.open(self._path / snapshot.name)
        try:
            data = self._files.pread(handle, size, offset)
        finally:
            self._files.close(handle)
        return data, offset + len(data) == total

    def receive(self, snapshot: SnapshotId) -> RawSnapshotWriter:
        """Begin to receive a snapshot from another member."""
        return RawSnapshotWriter(self._files, self._path, self._cluster_id, snapshot)

    def _size(self, snapshot: SnapshotId) -> int:
        try:
            return self._files.size(self._path / snapshot.name)
        except FileNotFoundError as error:
            raise SnapshotError(f"snapshot {snapshot.name} is not here (any more): ask for a newer one") from error

    @staticmethod
    def _check_size(name: str, size: int) -> None:
        if size > MAX_SNAPSHOT_BYTES:
            raise SnapshotError(f"snapshot {name}: {size} bytes are above the limit of {MAX_SNAPSHOT_BYTES}")


class RawSnapshotWriter:
    """Collects the chunks of one snapshot in a temporary file, and installs it once it is whole and verified.

    `next_offset` is where the next chunk has to start.
    """

    def __init__(self, files: Files, path: PurePath, cluster_id: str, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.next_offset = 0
        self._files = files
        self._path = path
        self._cluster_id = cluster_id
        self._temporary = path / f"received-{snapshot.name}{TEMPORARY_SUFFIX}"
        if files.exists(self._temporary):
            files.unlink(self._temporary)
        self._handle = files.open(self._temporary, create=True)

    def add(self, offset: int, data: bytes) -> int:
        """Take a chunk and return `next_offset`, which is where it was if the chunk is not the next one.

        Raises SnapshotError, and takes nothing, when the snapshot grows above MAX_SNAPSHOT_BYTES.
        """
        if offset != self.next_offset:
            return self.next_offset
        if offset + len(data) > MAX_SNAPSHOT_BYTES:
            raise SnapshotError(f"snapshot {self.snapshot.name} is above the limit of {MAX_SNAPSHOT_BYTES} bytes")
        self._files.pwrite(self._handle, data, offset)
        self.next_offset += len(data)
        return self.next_offset

    def install(self) -> StateImage:
        """Verify the whole snapshot and make it durable under its name.

        Raises SnapshotError if it is not what was announced; then nothing is installed and the temporary file is gone.
        """
        try:
            data = self._files.pread(self._handle, self.next_offset, 0)
            image = decode_snapshot(data, self.snapshot.name, self._cluster_id)
            _check_id(self.snapshot, image)
        except SnapshotError:
            self.abort()
            raise
        self._files.fdatasync(self._handle)
        self._files.close(self._handle)
        self._handle = -1
        self._files.rename(self._temporary, self._path / self.snapshot.name)
        self._files.fsync_directory(self._path)
        return image

    def abort(self) -> None:
        """Drop what was received. After `install` this does nothing."""
        if self._handle >= 0:
            self._files.close(self._handle)
            self._handle = -1
            self._files.unlink(self._temporary)


def _check_id(snapshot: SnapshotId, image: StateImage) -> None:
    if (image.index, image.term) != (snapshot.index, snapshot.term):
        raise SnapshotError(f"snapshot {snapshot.name}: it holds the state at {image.index} of term {image.term}")
