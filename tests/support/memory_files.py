"""A disk in memory that forgets what was not synced, and fails or loses power on request."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Iterable
from pathlib import PurePath

import msgspec

from pidkeeper.disk.files import Files

Keep = Callable[[str, PurePath], bool]
"""Decides for an unsynced operation (its kind, its path) whether the power cut keeps it."""


class PowerCut(BaseException):
    """Raised in place of a call: the machine is off. Not an Exception, so that nothing handles it."""


class Inode(msgspec.Struct):
    """A file's content: as the running system sees it, as it is on disk, and the writes in between."""

    live: bytearray
    durable: bytearray
    unsynced: list[tuple[int, bytes]]


class _Link(msgspec.Struct):
    """A change of names that is not synced yet: `removes` goes, `adds` comes."""

    kind: str
    removes: PurePath | None
    adds: PurePath | None
    inode: Inode | None


class MemoryFiles(Files):
    """`Files` in memory. Directories themselves are always durable; names and contents only once synced.

    `before` is called with the kind and the path of every changing call and may raise OSError or PowerCut; `calls`
    lists those calls, so a test can cut the power at each of them in turn.
    """

    def __init__(self) -> None:
        self.fdatasyncs = 0
        self.calls: list[tuple[str, PurePath]] = []
        self.before: Callable[[str, PurePath], None] = lambda kind, path: None
        self._live: dict[PurePath, Inode] = {}
        self._durable: dict[PurePath, Inode] = {}
        self._links: list[_Link] = []
        self._directories: set[PurePath] = set()
        # Directories that were removed, which is not synced yet.
        self._removed: set[PurePath] = set()
        self._handles: dict[int, tuple[PurePath, Inode]] = {}
        self._locked: dict[int, PurePath] = {}
        # Threads open files at the same time.
        self._next_handle = itertools.count(3)

    def cut_power(self, keep: Keep = lambda kind, path: False) -> MemoryFiles:
        """The disk as the next start finds it: unsynced operations are gone, but for those that `keep` keeps."""
        after = MemoryFiles()
        names = dict(self._durable)
        for link in self._links:
            path = link.adds or link.removes
            assert path is not None, f"a {link.kind} without a name"
            if keep(link.kind, path):
                _apply(names, link)
        contents: dict[int, Inode] = {}
        for path, inode in names.items():
            if id(inode) not in contents:
                data = bytearray(inode.durable)
                for offset, written in inode.unsynced:
                    if keep("pwrite", path):
                        _write(data, offset, written)
                contents[id(inode)] = Inode(bytearray(data), data, [])
            after._live[path] = after._durable[path] = contents[id(inode)]
        after._directories = self._directories | with_parents(names)
        return after

    def copy(self) -> MemoryFiles:
        """Another disk with the content as the running system sees it, all of it durable."""
        after = MemoryFiles()
        after._directories = set(self._directories)
        for path, inode in self._live.items():
            after._live[path] = after._durable[path] = Inode(bytearray(inode.live), bytearray(inode.live), [])
        return after

    def replace_content(self, path: PurePath, data: bytes) -> None:
        """Put other bytes on disk behind everyone's back: damage."""
        inode = self._live[path]
        inode.live[:] = data
        inode.durable[:] = data

    def open(self, path: PurePath, *, create: bool = False) -> int:
        if create:
            self._change("create", path)
            if path in self._live:
                raise FileExistsError(path)
            self._link("create", None, path, Inode(bytearray(), bytearray(), []))
        if path not in self._live:
            raise FileNotFoundError(path)
        return self._new_handle(path)

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self._locked.pop(handle, None)

    def lock(self, path: PurePath) -> int:
        if path in self._locked.values():
            raise BlockingIOError(path)
        if path not in self._live:
            self._link("create", None, path, Inode(bytearray(), bytearray(), []))
        handle = self._new_handle(path)
        self._locked[handle] = path
        return handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        return bytes(self._handles[handle][1].live[offset : offset + size])

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        path, inode = self._handles[handle]
        self._change("pwrite", path)
        _write(inode.live, offset, data)
        inode.unsynced.append((offset, bytes(data)))

    def preallocate(self, handle: int, size: int) -> None:
        path, inode = self._handles[handle]
        self._change("preallocate", path)
        _write(inode.live, 0, bytes(size))
        inode.unsynced.append((0, bytes(size)))

    def fdatasync(self, handle: int) -> None:
        path, inode = self._handles[handle]
        self._change("fdatasync", path)
        self.fdatasyncs += 1
        inode.durable[:] = inode.live
        inode.unsynced.clear()

    def fsync_directory(self, path: PurePath) -> None:
        self._change("fsync_directory", path)
        if path not in self._directories:
            raise FileNotFoundError(path)
        gone = {folder for folder in self._removed if folder.parent == path}
        self._removed -= gone
        remaining = []
        for link in self._links:
            name = link.adds or link.removes
            assert name is not None, f"a {link.kind} without a name"
            if name.parent == path or (link.adds is None and not gone.isdisjoint(name.parents)):
                _apply(self._durable, link)
            else:
                remaining.append(link)
        self._links = remaining

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._change("rename", target)
        assert source.parent == target.parent, f"renaming {source} into another directory, {target}"
        self._link("rename", source, target, self._live[source])

    def link(self, source: PurePath, target: PurePath) -> None:
        self._change("link", target)
        if target in self._live or target in self._directories:
            raise FileExistsError(target)
        if target.parent not in self._directories or source not in self._live:
            raise FileNotFoundError(f"{source} -> {target}")
        self._link("link", None, target, self._live[source])

    def unlink(self, path: PurePath) -> None:
        self._change("unlink", path)
        if path not in self._live:
            raise FileNotFoundError(path)
        self._link("unlink", path, None, None)

    def make_directory(self, path: PurePath) -> None:
        for folder in (path, *path.parents):
            if folder in self._live:
                raise FileExistsError(folder)
            self._directories.add(folder)

    def remove_directory(self, path: PurePath) -> None:
        self._change("remove_directory", path)
        if path not in self._directories:
            raise FileNotFoundError(path)
        if any(child.parent == path for child in (*self._live, *self._directories) if child != path):
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self._directories.remove(path)
        self._removed.add(path)

    def listdir(self, path: PurePath) -> list[str]:
        if path not in self._directories:
            raise FileNotFoundError(path)
        children = {child.name for child in self._live if child.parent == path}
        return sorted(children | {child.name for child in self._directories if child.parent == path and child != path})

    def exists(self, path: PurePath) -> bool:
        return path in self._live or path in self._directories

    def is_directory(self, path: PurePath) -> bool:
        return path in self._directories

    def size(self, path: PurePath) -> int:
        return len(self.read_bytes(path))

    def read_bytes(self, path: PurePath) -> bytes:
        if path not in self._live:
            raise FileNotFoundError(path)
        return bytes(self._live[path].live)

    def _change(self, kind: str, path: PurePath) -> None:
        self.before(kind, path)
        self.calls.append((kind, path))

    def _link(self, kind: str, removes: PurePath | None, adds: PurePath | None, inode: Inode | None) -> None:
        link = _Link(kind, removes, adds, inode)
        _apply(self._live, link)
        self._links.append(link)

    def _new_handle(self, path: PurePath) -> int:
        handle = next(self._next_handle)
        self._handles[handle] = (path, self._live[path])
        return handle


def with_parents(names: Iterable[PurePath]) -> set[PurePath]:
    """All directories above these: one that was removed comes back with what its removal was not synced with."""
    return {folder for path in names for folder in path.parents}


def _apply(names: dict[PurePath, Inode], link: _Link) -> None:
    if link.removes is not None:
        names.pop(link.removes, None)
    if link.adds is not None and link.inode is not None:
        names[link.adds] = link.inode


def _write(data: bytearray, offset: int, written: bytes) -> None:
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written


def fail_at(number: int, error: BaseException) -> Callable[[str, PurePath], None]:
    """For `before`: raise `error` in place of the changing call `number` (from 0) and of every one after it."""
    count = -1

    def before(kind: str, path: PurePath) -> None:
        nonlocal count
        count += 1
        if count >= number:
            raise error

    return before


def fail_on(kind: str, error: BaseException) -> Callable[[str, PurePath], None]:
    """For `before`: raise `error` in place of every call of this kind."""

    def before(called: str, path: PurePath) -> None:
        if called == kind:
            raise error

    return before
