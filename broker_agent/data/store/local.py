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

from pidkeeper.broker_agent.data.store.folders import Folders
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
"""Syncs of several objects overlap: three that agents gather, and a segment. More gain nothing on one disk."""
READERS: Final = 2
"""Threads that read: a roller's many reads keep no object waiting, nor do syncs keep a reader."""
MAX_TRIES: Final = 8
"""Of putting an object while others remove empty folders, which they do a few times a second at most."""
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
        self._failure: str | None = None
        self._closed = False
        try:
            self._make_root()
            self._writer = Writer(files, directory)
        except OSError as error:
            raise _store_error(error) from error
        self._folders = Folders(files, directory, self._sync, self._writer.is_there)
        self._threads = ThreadPoolExecutor(THREADS, "store")
        self._readers = ThreadPoolExecutor(READERS, "store-read")

    async def put(self, name: str, pieces: Sequence[bytes]) -> None:
        check_name(name)
        check_pieces(pieces)
        await self._run(self._threads, self._put, name, pieces)

    async def create(self, name: str, data: bytes) -> bytes:
        check_name(name)
        check_pieces([data], MAX_CREATED_BYTES)
        return await self._run(self._threads, self._create, name, data)

    async def read(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        check_range(start, length)
        return await self._run(self._readers, self._read, name, start, length)

    async def list(self, prefix: str, after: str, limit: int) -> list[StoredObject]:
        check_listing(prefix, after, limit)
        return [*await self._run(self._readers, self._list, prefix, after, limit)]

    async def delete(self, names: Sequence[str]) -> None:
        check_names(names)
        await self._run(self._threads, self._delete, names)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._leave)

    async def _run(
        self,
        threads: ThreadPoolExecutor,
        work: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        assert not kwargs, "threads are given positions alone"
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work, *args)
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
        # First of all, for it says what is wrong with a name.
        self._prepare(path.parent)
        temporary = self._writer.new_temporary()
        try:
            self._write(temporary, pieces)
            return self._publish(temporary, path)
        finally:
            # If this fails too, the next one to open the directory does it.
            with contextlib.suppress(OSError):
                self._files.unlink(temporary)

    def _prepare(self, folder: PurePath) -> None:
        # What is removed meanwhile is made when the object gets its name.
        with contextlib.suppress(FileNotFoundError):
            self._folders.prepare(folder)

    def _publish(self, temporary: PurePath, path: PurePath) -> bool:
        """Give the object its name, durably, unless the name is there; False if it is."""
        stored = False
        for _ in range(MAX_TRIES):
            generation = self._folders.generation
            try:
                self._folders.prepare(path.parent)
                # What somebody has deleted since does not come back.
                if not stored:
                    with contextlib.suppress(FileExistsError):
                        self._files.link(temporary, path)
                        stored = True
                self._sync(path.parent)
            except FileNotFoundError:
                self._folders.forget(path.parent)
                continue
            if self._folders.generation is generation:
                return stored
        raise StoreUnavailableError(f"the folder of {path} is removed again and again: is its name somebody else's?")

    def _write(self, path: PurePath, pieces: Sequence[bytes]) -> None:
        handle = self._files.open(path, create=True)
        try:
            self._files.write_synced(handle, pieces)
        finally:
            self._files.close(handle)

    def _content(self, name: str, max_bytes: int) -> bytes | None:
        """All of an object; None if it is larger."""
        path = self._path(name)
        if self._files.is_directory(path):
            raise StoreRefusedError(f"{path} is a directory: no object can have its name")
        try:
            handle = self._files.open(path)
        except FileNotFoundError as error:
            if self._files.is_directory(path.parent) and path.name in self._files.listdir(path.parent):
                raise StoreRefusedError(f"{path} is a link to nowhere: no object can have its name") from error
            raise StoreUnavailableError(f"{path} was there, and then was not: somebody deletes it") from error
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
        try:
            names = [name for name in self._files.listdir(folder) if is_name(name)]
        except FileNotFoundError:
            if prefix:
                # Removed since, with its last object.
                return
            raise
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
        folders = {folder: self._folders.nearest(folder) for folder in {self._path(name).parent for name in names}}
        for path in map(self._path, names):
            if folders[path.parent] == path.parent and not self._files.is_directory(path):
                with contextlib.suppress(FileNotFoundError):
                    self._files.unlink(path)
        # Also where a name was missing: whoever removed it may not have lived to sync.
        for folder in sorted(set(folders.values()), reverse=True):
            self._sync_lowest(folder)
            self._folders.remove_empty(folder)

    def _sync_lowest(self, folder: PurePath) -> None:
        """Sync the folder; if it was removed meanwhile, the one from which it was."""
        while True:
            try:
                return self._sync(folder)
            except FileNotFoundError:
                if folder == self._directory:
                    raise
                folder = folder.parent

    def _leave(self) -> None:
        self._threads.shutdown()
        self._readers.shutdown()
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

    def _sync(self, folder: PurePath) -> None:
        try:
            self._files.fsync_directory(folder)
        except FileNotFoundError:
            # Nothing is in it that could be lost.
            raise
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
