"""An object store in a directory of this machine, or of a file system that it shares and that honours locks.

An object is written under a temporary name and synced, and then linked to its own name: there it is whole from the
first moment on. It counts as stored once the directory is synced too. An object's name is its path, so that tools which
read files read objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, takewhile
from pathlib import PurePath
from typing import Final, ParamSpec, TypeVar

from pidkeeper.broker_agent.data.store.port import (
    MAX_CREATED_BYTES,
    MAX_NAME_BYTES,
    ObjectMissingError,
    StoredObject,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    check_listing,
    check_name,
    check_names,
    check_pieces,
    check_range,
    is_name,
)
from pidkeeper.broker_agent.data.store.writers import Writer
from pidkeeper.disk.files import Files

THREADS: Final = 4
"""Syncs of several objects overlap, and a read waits behind three of them at most; more gain nothing on one disk."""
MAX_SETTLED: Final = 4096
"""Directories that are known to be durable: some 100 bytes each. Above, all are forgotten and synced once more."""
_REFUSED: Final = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP,
     errno.EXDEV, errno.EMLINK, errno.ENAMETOOLONG, errno.EOPNOTSUPP, errno.ENOSYS)
)  # fmt: skip
"""Errors that come again until somebody has changed something."""
_ABSENT: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class LocalStore:
    """`ObjectStore` in `directory`, which is made if it is not there. Several processes may have it open.

    Opening blocks on the disk, and removes what dead processes left unfinished. Raises StoreRefusedError if the
    directory cannot be used, StoreUnavailableError if opening it does not get its turn.
    """

    def __init__(self, directory: PurePath, files: Files) -> None:
        self._directory = directory
        self._files = files
        self._settled: set[PurePath] = set()
        self._failure: str | None = None
        self._closed = False
        try:
            self._make_root()
            self._writer = Writer(files, directory)
        except OSError as error:
            raise _store_error(error) from error
        self._threads = ThreadPoolExecutor(THREADS, "store")

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        check_name(name)
        check_pieces(pieces)
        await self._run(self._put, name, pieces)

    async def create(self, name: str, data: bytes) -> bytes:
        check_name(name)
        check_pieces([data], MAX_CREATED_BYTES)
        return await self._run(self._create, name, data)

    async def read(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        check_range(start, length)
        return await self._run(self._read, name, start, length)

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        check_listing(prefix, after, limit)
        return [*await self._run(self._list, prefix, after, limit)]

    async def delete(self, names: Sequence[str]) -> None:
        check_names(names)
        await self._run(self._delete, names)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._leave)

    async def _run(
        self, work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        assert not kwargs, "threads are given positions alone"
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)
        except OSError as error:
            raise _store_error(error) from error

    # On a thread from here on.

    def _put(self, name: str, pieces: Sequence[bytes]) -> None:
        if not self._store(name, pieces) and self._content(name, check_pieces(pieces)) != b"".join(pieces):
            raise StoreRefusedError(f"{self._path(name)} is there with other bytes: nothing may be put over it")

    def _create(self, name: str, data: bytes) -> bytes:
        if self._store(name, [data]):
            return data
        stored = self._content(name, MAX_CREATED_BYTES)
        if stored is None:
            raise StoreRefusedError(f"{self._path(name)} is larger than {MAX_CREATED_BYTES}: create did not make it")
        return stored

    def _store(self, name: str, pieces: Sequence[bytes]) -> bool:
        """Store it durably, unless the name is there; False if it is, and then that is durable."""
        path = self._path(name)
        self._check_sound()
        self._prepare(path.parent)
        temporary = self._writer.new_temporary()
        try:
            self._write(temporary, pieces)
            try:
                self._files.link(temporary, path)
                stored = True
            except FileExistsError:
                stored = False
        finally:
            # If this fails too, the next one to open the directory does it.
            with contextlib.suppress(OSError):
                self._files.unlink(temporary)
        self._sync(path.parent)
        return stored

    def _write(self, path: PurePath, pieces: Sequence[bytes]) -> None:
        # In one call: after each one this thread waits for the event loop to let go of the interpreter.
        data = b"".join(pieces)
        handle = self._files.open(path, create=True)
        try:
            self._files.pwrite(handle, data, 0)
            self._files.fdatasync(handle)
        finally:
            self._files.close(handle)

    def _content(self, name: str, max_bytes: int) -> bytes | None:
        """All of an object; None if it is larger."""
        path = self._path(name)
        if self._files.is_directory(path):
            raise StoreRefusedError(f"{path} is a directory: no object can have its name")
        handle = self._files.open(path)
        try:
            data = self._files.pread(handle, max_bytes + 1, 0)
        finally:
            self._files.close(handle)
        return data if len(data) <= max_bytes else None

    def _read(self, name: str, start: int, length: int) -> bytes:
        try:
            handle = self._files.open(self._path(name))
        except _ABSENT as error:
            raise ObjectMissingError(f"there is no {self._path(name)}") from error
        try:
            data = self._files.pread(handle, length, start)
        finally:
            self._files.close(handle)
        if len(data) < length:
            raise StoreError(f"{self._path(name)} ends before byte {start + length}")
        return data

    def _list(self, prefix: str, after: str, limit: int) -> tuple[StoredObject, ...]:
        return tuple(islice(self._walk(prefix, after), limit))

    def _walk(self, prefix: str, after: str) -> Iterator[StoredObject]:
        folder = self._directory / prefix
        if len(prefix) > MAX_NAME_BYTES or (prefix and not self._files.is_directory(folder)):
            return
        names = (name for name in self._files.listdir(folder) if is_name(name))
        # Names below a folder begin with its slash, which is above a hyphen and a dot: "a-b" comes before "a/b".
        for name in sorted(prefix + name + "/" * self._files.is_directory(folder / name) for name in names):
            if name.endswith("/"):
                if name > after or after.startswith(name):
                    yield from self._walk(name, after)
            elif name > after:
                with contextlib.suppress(FileNotFoundError):
                    yield StoredObject(name, self._files.size(self._directory / name))

    def _delete(self, names: Sequence[str]) -> None:
        self._check_sound()
        folders = {folder: self._is_inside(folder) for folder in {self._path(name).parent for name in names}}
        for path in map(self._path, names):
            if folders[path.parent] and not self._files.is_directory(path):
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(path)
        # Also where a name was missing: whoever removed it may not have lived to sync.
        for folder, inside in sorted(folders.items()):
            if inside:
                self._sync(folder)

    def _leave(self) -> None:
        self._threads.shutdown()
        with contextlib.suppress(OSError):  # the next one to open the directory finds that nobody holds the lock
            self._writer.leave()

    def _path(self, name: str) -> PurePath:
        return self._directory / name

    def _make_root(self) -> None:
        levels = (self._directory, *self._directory.parents)
        absent = list(takewhile(lambda level: not self._files.exists(level), levels))
        for folder in reversed(absent):
            self._files.make_directory(folder)
            self._files.fsync_directory(folder.parent)
        # A process that was killed may have made it and synced nothing. In a parent that we may not read it did not.
        with contextlib.suppress(PermissionError):
            self._files.fsync_directory(self._directory.parent)
        self._settled.add(self._directory)

    def _is_inside(self, folder: PurePath) -> bool:
        """Whether the folder is there, and reached through no link."""
        return all(level == self._directory or self._files.is_directory(level) for level in self._levels(folder))

    def _levels(self, folder: PurePath) -> tuple[PurePath, ...]:
        """The folder and those above it, from the store's own directory on."""
        above = [parent for parent in folder.parents if parent.is_relative_to(self._directory)]
        return (*reversed(above), folder)

    def _prepare(self, folder: PurePath) -> None:
        """Make the folder and those above it, durably."""
        for level in self._levels(folder):
            if level in self._settled:
                continue
            if not self._files.is_directory(level):
                # Where a file system was taken away, its mount point is a directory too: what is put there is lost.
                if not self._writer.is_there():
                    raise StoreRefusedError(f"{self._directory} is not the directory any more that was opened")
                with contextlib.suppress(FileExistsError):
                    self._files.make_directory(level)
                # A link to one is none either: what is written stays in the store.
                if not self._files.is_directory(level):
                    raise StoreRefusedError(f"{level} is no directory: move it away, or use another name")
            # Whoever made it, if it was there, may not have lived to sync.
            self._sync(level.parent)
            if len(self._settled) >= MAX_SETTLED:
                self._settled.clear()
                self._settled.add(self._directory)
            self._settled.add(level)

    def _sync(self, folder: PurePath) -> None:
        try:
            self._files.fsync_directory(folder)
        except OSError as error:
            # The kernel reports an error once: the next sync may return though the names never reached the disk.
            self._failure = f"{folder} could not be synced ({error}): check the disk, then start the process again"
            raise StoreUnavailableError(self._failure) from error

    def _check_sound(self) -> None:
        if self._failure is not None:
            raise StoreRefusedError(self._failure)


def _store_error(error: OSError) -> StoreError:
    if error.errno in _REFUSED:
        return StoreRefusedError(f"the directory of the store cannot be used: {error}")
    return StoreUnavailableError(f"the disk of the store failed: {error}")
