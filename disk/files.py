"""The port through which every durable format touches the disk.

Whatever must survive a power cut goes through `Files`, so that a simulator can stand in for the disk and lose, tear or
refuse each call. Two rules hold for all who use it: bytes count as written once `fdatasync` returned, and a name counts
as created, renamed or removed once `fsync_directory` of its directory returned.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Final, Protocol

TEMPORARY_SUFFIX: Final = ".tmp"
"""A file of this name is unfinished: whoever owns the directory removes it at open."""

_ZEROES: Final = bytes(1 << 20)

_MAX_PIECES: Final = 1024
"""In one call of the kernel (IOV_MAX of Linux, limits.h)."""

_RWF_DONTCACHE: Final = 0x80
"""Of pwritev2, which Python has no name for (Linux 6.14, uapi/linux/fs.h)."""


class Files(Protocol):
    """The calls that durable formats need. Handles are small integers; every call may raise OSError."""

    fdatasyncs: int
    """How often `fdatasync` was called: the cost of durability, for a metric."""

    def open(self, path: PurePath, *, create: bool = False) -> int:
        """Open for reading and writing; `create` makes a new file and raises FileExistsError where there is one."""
        ...

    def close(self, handle: int) -> None:
        """Give the handle back, and its lock if it has one."""
        ...

    def lock(self, path: PurePath) -> int:
        """Open or create `path` and lock it against other processes. Raises BlockingIOError if it is locked."""
        ...

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Read `size` bytes from `offset`; fewer only at the end of the file."""
        ...

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`, or raise OSError."""
        ...

    def write_synced(self, handle: int, pieces: Sequence[bytes]) -> None:
        """Write all of `pieces`, one behind another, into a new file, or raise OSError: `pwrite` and `fdatasync`.

        For what is seldom read again: the kernel is told to keep no copy in memory.
        """
        self.pwrite(handle, b"".join(pieces), 0)
        self.fdatasync(handle)

    def preallocate(self, handle: int, size: int) -> None:
        """Reserve `size` bytes and fill them with zeroes, so that later writes change no metadata."""
        ...

    def fdatasync(self, handle: int) -> None:
        """Return once every byte written through the handle, and the file's size, is on disk."""
        ...

    def fsync_directory(self, path: PurePath) -> None:
        """Return once every creation, renaming and removal in the directory is on disk."""
        ...

    def rename(self, source: PurePath, target: PurePath) -> None:
        """Give a file another name in one step; an older file of that name is gone."""
        ...

    def link(self, source: PurePath, target: PurePath) -> None:
        """Give a file a second name in one step. Raises FileExistsError if the name is there."""
        ...

    def unlink(self, path: PurePath) -> None:
        """Remove a name."""
        ...

    def make_directory(self, path: PurePath) -> None:
        """Make a directory, and its parents, unless it is there."""
        ...

    def remove_directory(self, path: PurePath) -> None:
        """Remove an empty directory. Raises OSError if something is in it."""
        ...

    def listdir(self, path: PurePath) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: PurePath) -> bool:
        """Whether the name is there."""
        ...

    def is_directory(self, path: PurePath) -> bool:
        """Whether the name is a directory itself; a symbolic link to one is not."""
        ...

    def size(self, path: PurePath) -> int:
        """Length of the file in bytes."""
        ...

    def read_bytes(self, path: PurePath) -> bytes:
        """The whole file."""
        ...


class OsFiles:
    """`Files` on the disk of this machine."""

    def __init__(self) -> None:
        self.fdatasyncs = 0
        self._synced = os.RWF_DSYNC | _RWF_DONTCACHE

    def open(self, path: PurePath, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return os.open(path, flags, 0o640)

    def close(self, handle: int) -> None:
        os.close(handle)

    def lock(self, path: PurePath) -> int:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise
        return handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        data = os.pread(handle, size, offset)
        while len(data) < size and (more := os.pread(handle, size - len(data), offset + len(data))):
            data += more
        return data

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        written = os.pwrite(handle, data, offset)
        while written < len(data):
            written += os.pwrite(handle, memoryview(data)[written:], offset + written)

    def write_synced(self, handle: int, pieces: Sequence[bytes]) -> None:
        # In one call: after each one its thread waits for the event loop to let go of the interpreter.
        if len(pieces) > _MAX_PIECES:
            pieces = [b"".join(pieces)]
        written = self._write_synced(handle, pieces)
        if written < sum(map(len, pieces)):
            self.pwrite(handle, b"".join(pieces)[written:], written)
            os.fdatasync(handle)

    def _write_synced(self, handle: int, pieces: Sequence[bytes]) -> int:
        """Write as much as the kernel takes at once; how many bytes that were."""
        self.fdatasyncs += 1
        flags = self._synced
        try:
            return os.pwritev(handle, pieces, 0, flags)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP or flags == os.RWF_DSYNC:
                raise
        # This kernel or file system keeps a copy of all that is written. Another thread may have found that out too.
        self._synced = os.RWF_DSYNC
        return os.pwritev(handle, pieces, 0, self._synced)

    def preallocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)
        for offset in range(0, size, len(_ZEROES)):
            self.pwrite(handle, _ZEROES[: size - offset], offset)

    def fdatasync(self, handle: int) -> None:
        self.fdatasyncs += 1
        os.fdatasync(handle)

    def fsync_directory(self, path: PurePath) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: PurePath, target: PurePath) -> None:
        Path(source).replace(target)

    def link(self, source: PurePath, target: PurePath) -> None:
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: PurePath) -> None:
        Path(path).unlink()

    def make_directory(self, path: PurePath) -> None:
        Path(path).mkdir(mode=0o750, parents=True, exist_ok=True)

    def remove_directory(self, path: PurePath) -> None:
        Path(path).rmdir()

    def listdir(self, path: PurePath) -> list[str]:
        return sorted(child.name for child in Path(path).iterdir())

    def exists(self, path: PurePath) -> bool:
        return Path(path).exists()

    def is_directory(self, path: PurePath) -> bool:
        return Path(path).is_dir() and not Path(path).is_symlink()

    def size(self, path: PurePath) -> int:
        return Path(path).stat().st_size

    def read_bytes(self, path: PurePath) -> bytes:
        return Path(path).read_bytes()


def write_durably(files: Files, path: PurePath, data: bytes | Iterable[bytes]) -> None:
    """Write a whole file so that a crash leaves either the old one or the new one: temporary name, sync, rename.

    `data`: what it holds, or pieces of that in their order.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    if files.exists(temporary):
        files.unlink(temporary)
    handle = files.open(temporary, create=True)
    try:
        offset = 0
        for piece in [data] if isinstance(data, bytes) else data:
            files.pwrite(handle, piece, offset)
            offset += len(piece)
        files.fdatasync(handle)
    finally:
        files.close(handle)
    files.rename(temporary, path)
    files.fsync_directory(path.parent)


def remove_temporary(files: Files, directory: PurePath) -> None:
    """Remove what a crash left unfinished in `directory`, and make the names that stay durable."""
    for name in files.listdir(directory):
        if name.endswith(TEMPORARY_SUFFIX):
            files.unlink(directory / name)
    # A process that was killed between a rename and its sync left names that only this machine's memory holds.
    files.fsync_directory(directory)


def sync_tree(files: Files, directory: PurePath) -> None:
    """Make every file and name below `directory` durable, whoever wrote them; links to directories are left out.

    Raises OSError.
    """
    for name in files.listdir(directory):
        path = directory / name
        if files.is_directory(path):
            sync_tree(files, path)
            continue
        with contextlib.suppress(IsADirectoryError):
            handle = files.open(path)
            try:
                files.fdatasync(handle)
            finally:
                files.close(handle)
    files.fsync_directory(directory)
