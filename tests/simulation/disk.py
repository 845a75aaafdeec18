"""One machine's disk in memory: a page cache, what is really on the platter, and what can go wrong in between.

A killed process leaves the page cache behind; a power cut loses any subset of what was not synced, in whole writes, in
sectors of 512 bytes or from any byte on, and any change of names whose directory was not synced. After a failed sync
the kernel takes the pages for clean: they can still be read, and no later sync writes them.
"""

from __future__ import annotations

import errno
import random
from pathlib import PurePath
from typing import Final

from pidkeeper.disk.files import Files
from tests.simulation.world import Violation
from tests.support.memory_files import PowerCut

SECTOR: Final = 512
DiskCopy = dict[str, dict[str, bytes]]
"""Folder -> name -> content."""


class _File:
    """`live`: the page cache. `durable`: the platter. `unsynced`: (offset, data) of what the platter lacks.

    `before`: (offset, data) of what stood where the newest write went.
    """

    __slots__ = ("before", "durable", "live", "name", "unsynced")

    def __init__(self, name: str, content: bytes = b"") -> None:
        self.name = name
        self.live = bytearray(content)
        self.durable = bytearray(content)
        self.unsynced: list[tuple[int, bytes]] = []
        self.before: tuple[int, bytes] | None = None


class _Change:
    """An unsynced change in directory `folder`: the name `removes` goes, `adds` names `file`."""

    __slots__ = ("adds", "file", "folder", "removes")

    def __init__(self, folder: str, removes: str | None, adds: str | None, file: _File | None) -> None:
        self.folder = folder
        self.removes = removes
        self.adds = adds
        self.file = file


class SimDisk(Files):
    """`Files` with faults on order.

    `cut_after`: changing calls that still succeed before PowerCut is raised. `failing`: kinds of call that raise EIO,
    with how many times. `full`: no room for new bytes. `misdirect`: the next write into a log segment lands elsewhere
    in it. `stale`: the next reading of the newest log segment gets a sector as it was before the newest write.
    `lying`: fdatasync does nothing (a planted bug, for controls). `off_limits`: files are not to be opened, read or
    changed just now, for that would stop an event loop.
    """

    def __init__(self) -> None:
        self.fdatasyncs = 0
        self.cut_after: int | None = None
        self.failing: dict[str, int] = {}
        self.full = False
        self.misdirect: random.Random | None = None
        self.stale: random.Random | None = None
        self.lying = False
        self.off_limits = False
        self.on_fault: list[str] = []
        self._live: dict[str, dict[str, _File]] = {}
        self._durable: dict[str, dict[str, _File]] = {}
        self._changes: list[_Change] = []
        self._handles: dict[int, _File] = {}
        self._locks: dict[int, str] = {}
        self._next_handle = 3
        self._watching = False

    # Faults.

    def arm(self, *, cut_after: int | None = None, fail: str | None = None, full: bool | None = None) -> None:
        """Order a fault; without arguments take back the power cut only."""
        self.cut_after = cut_after
        if fail is not None:
            self.failing[fail] = self.failing.get(fail, 0) + 1
        if full is not None:
            self.full = full
        self._watching = True

    def order_misdirection(self, rng: random.Random) -> None:
        """The next write into a log segment lands at another offset of it."""
        self.misdirect = rng
        self._watching = True

    def order_stale_read(self, rng: random.Random) -> None:
        """An old sector of the newest log segment comes back at its next reading."""
        self.stale = rng

    def copy(self) -> DiskCopy:
        """What a copy of all files holds now."""
        return {
            folder: {name: bytes(file.live) for name, file in files.items()} for folder, files in self._live.items()
        }

    def go_back(self, copy: DiskCopy) -> None:
        """Put an old copy in the place of everything; nothing runs at this time."""
        self.kill()
        self._changes.clear()
        self._live = {
            folder: {name: _File(name, content) for name, content in files.items()} for folder, files in copy.items()
        }
        self._durable = {folder: dict(files) for folder, files in self._live.items()}

    def heal(self) -> None:
        """No faults from now on."""
        self.stale = None
        self.cut_after = None
        self.failing.clear()
        self.full = False
        self.misdirect = None
        self._watching = False

    def kill(self) -> None:
        """The process is gone; the page cache stays. So are the orders for what would have befallen its writes."""
        self.cut_after = None
        self.misdirect = None
        self._handles.clear()
        self._locks.clear()

    def cut_power(self, rng: random.Random) -> None:
        """The page cache is gone, and of what was not synced whatever `rng` says."""
        self.kill()
        kept = rng.choice((0.0, 0.0, 0.5, 0.9, 1.0))
        torn = rng.random() < 0.8
        names = {folder: dict(files) for folder, files in self._durable.items()}
        for change in self._changes:
            if rng.random() < kept:
                _apply(names[change.folder], change)
        self._changes.clear()
        seen: set[int] = set()
        for files in names.values():
            for file in files.values():
                if id(file) not in seen:
                    seen.add(id(file))
                    _settle(file, rng, kept, torn)
        self._live = names
        self._durable = {folder: dict(files) for folder, files in names.items()}

    def replace(self) -> None:
        """Another, empty disk."""
        self.kill()
        self.heal()
        self._live.clear()
        self._durable.clear()
        self._changes.clear()

    def flip_bit(self, rng: random.Random, folder: str) -> str | None:
        """Flip a bit of some file below `folder`, on the platter and in the cache; its name, None if there is none."""
        candidates = [
            (name, file)
            for directory, files in sorted(self._live.items())
            if directory.startswith(folder)
            for name, file in sorted(files.items())
            if file.live
        ]
        if not candidates:
            return None
        name, file = rng.choice(candidates)
        used = len(file.live.rstrip(b"\0")) or 1
        offset = rng.randrange(used if rng.random() < 0.8 else len(file.live))
        for content in (file.live, file.durable):
            if offset < len(content):
                content[offset] ^= 1 << rng.randrange(8)
        return name

    # The port.

    def open(self, path: PurePath, *, create: bool = False) -> int:
        self._touch("open", path.name)
        folder, _, name = str(path).rpartition("/")
        files = self._folder(folder)
        if create:
            self._strike("create", None)
            if name in files:
                raise FileExistsError(path)
            self._change(_Change(folder, None, name, _File(name)))
        elif self._watching:
            self._strike("open", None)
        if name not in files:
            raise FileNotFoundError(path)
        self._next_handle += 1
        self._handles[self._next_handle] = files[name]
        return self._next_handle

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self._locks.pop(handle, None)

    def lock(self, path: PurePath) -> int:
        if str(path) in self._locks.values():
            raise BlockingIOError(path)
        handle = self.open(path, create=not self.exists(path))
        self._locks[handle] = str(path)
        return handle

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        self._touch("read", self._handles[handle].name)
        if self._watching:
            self._strike("read", None)
        return bytes(self._handles[handle].live[offset : offset + size])

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        file = self._handles[handle]
        self._touch("write", file.name)
        if self._watching:
            self._strike("write", file)
            if self.misdirect is not None and file.name.endswith(".wal"):
                offset = self._misdirected(file, data, offset)
        if self.full and offset + len(data) > len(file.live):
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        file.before = (offset, bytes(file.live[offset : offset + len(data)]))
        _write(file.live, offset, data)
        file.unsynced.append((offset, data))

    def preallocate(self, handle: int, size: int) -> None:
        self._strike("create", None)
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk")
        self.pwrite(handle, bytes(size), 0)

    def fdatasync(self, handle: int) -> None:
        file = self._handles[handle]
        self._touch("sync", file.name)
        if self._watching:
            self._strike("sync", file)
        self.fdatasyncs += 1
        if self.lying:
            return
        for offset, data in file.unsynced:
            _write(file.durable, offset, data)
        file.unsynced.clear()

    def fsync_directory(self, path: PurePath) -> None:
        self._strike("sync_directory", None)
        folder = str(path)
        others = []
        for change in self._changes:
            if change.folder == folder:
                _apply(self._durable[folder], change)
            else:
                others.append(change)
        self._changes = others

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._strike("rename", None)
        folder, _, name = str(source).rpartition("/")
        assert source.parent == target.parent, f"renaming {source} into another directory, {target}"
        file = self._folder(folder)[name]
        file.name = target.name
        self._change(_Change(folder, name, target.name, file))

    def link(self, source: PurePath, target: PurePath) -> None:
        self._strike("link", None)
        folder, _, name = str(target).rpartition("/")
        if name in self._folder(folder) or str(target) in self._live:
            raise FileExistsError(target)
        self._change(_Change(folder, None, name, self._file(source)))

    def unlink(self, path: PurePath) -> None:
        self._strike("unlink", None)
        folder, _, name = str(path).rpartition("/")
        if name not in self._folder(folder):
            raise FileNotFoundError(path)
        self._change(_Change(folder, name, None, None))

    def make_directory(self, path: PurePath) -> None:
        for folder in (path, *path.parents):
            if folder.name in self._live.get(str(folder.parent), ()):
                raise FileExistsError(folder)
            self._live.setdefault(str(folder), {})
            self._durable.setdefault(str(folder), {})

    def remove_directory(self, path: PurePath) -> None:
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        del self._live[str(path)]

    def listdir(self, path: PurePath) -> list[str]:
        folder = str(path)
        inner = {name[len(folder) + 1 :] for name in self._live if name.rpartition("/")[0] == folder}
        return sorted(inner | set(self._folder(folder)))

    def exists(self, path: PurePath) -> bool:
        folder, _, name = str(path).rpartition("/")
        return name in self._live.get(folder, ()) or str(path) in self._live

    def is_directory(self, path: PurePath) -> bool:
        return str(path) in self._live

    def size(self, path: PurePath) -> int:
        return len(self._file(path).live)

    def used(self, path: PurePath) -> int:
        """Bytes of a file without the zeros at its end."""
        return len(self._file(path).live.rstrip(b"\0"))

    def read_bytes(self, path: PurePath) -> bytes:
        self._touch("read", path.name)
        if self._watching:
            self._strike("read", None)
        file = self._file(path)
        if self.stale is not None and file.name.endswith(".wal") and file.before is not None:
            return self._stale_content(file)
        return bytes(file.live)

    def _folder(self, folder: str) -> dict[str, _File]:
        if folder not in self._live:
            raise FileNotFoundError(folder)
        return self._live[folder]

    def _file(self, path: PurePath) -> _File:
        folder, _, name = str(path).rpartition("/")
        file = self._folder(folder).get(name)
        if file is None:
            raise FileNotFoundError(path)
        return file

    def _change(self, change: _Change) -> None:
        self._touch("change", change.folder)
        _apply(self._live[change.folder], change)
        self._changes.append(change)

    def _touch(self, kind: str, name: str) -> None:
        if self.off_limits:
            raise Violation("disk-on-event-loop", f"{kind} of {name} outside of any job for another thread")

    def _strike(self, kind: str, file: _File | None) -> None:
        """Let the fault fire that is due at this call, if any."""
        if self.cut_after is not None and kind not in {"open", "read"}:
            if self.cut_after == 0:
                raise PowerCut
            self.cut_after -= 1
        left = self.failing.get(kind, 0)
        if left:
            self.failing[kind] = left - 1
            self.on_fault.append(f"disk_{kind}_error")
            if kind == "sync" and file is not None:
                file.unsynced.clear()
            raise OSError(errno.EIO, f"simulated {kind} error")

    def _stale_content(self, file: _File) -> bytes:
        """The content with one sector, or the part of it that the newest write changed, as it was before."""
        rng, self.stale = self.stale, None
        assert rng is not None and file.before is not None, "a stale read was not ordered"
        self.on_fault.append("disk_stale_read")
        start, old = file.before
        first, last = start // SECTOR, max(start, start + len(old) - 1) // SECTOR
        sector = rng.randint(first, last) * SECTOR
        content = bytearray(file.live)
        low, high = max(sector, start), min(sector + SECTOR, start + len(old))
        content[low:high] = old[low - start : high - start]
        return bytes(content)

    def _misdirected(self, file: _File, data: bytes, offset: int) -> int:
        """Another multiple of 8 in the file; the data itself is where it should not be, and missing where it should."""
        rng, self.misdirect = self.misdirect, None
        room = (len(file.live) - len(data)) // 8
        if rng is None or room < 1 or offset == 0:
            return offset
        self.on_fault.append("disk_misdirected_write")
        elsewhere = 8 * rng.randrange(room)
        return elsewhere if elsewhere != offset else 0


def _apply(names: dict[str, _File], change: _Change) -> None:
    if change.removes is not None:
        names.pop(change.removes, None)
    if change.adds is not None and change.file is not None:
        names[change.adds] = change.file


def _write(content: bytearray, offset: int, data: bytes) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _settle(file: _File, rng: random.Random, kept: float, torn: bool) -> None:
    """What the platter holds after the power cut."""
    for offset, data in file.unsynced:
        if rng.random() < kept:
            _write(file.durable, offset, data)
        elif torn:
            _tear(file.durable, offset, data, rng)
    file.unsynced.clear()
    file.live = bytearray(file.durable)


def _tear(content: bytearray, offset: int, data: bytes, rng: random.Random) -> None:
    """Part of a write: some of its sectors, or its bytes up to any one."""
    if rng.random() < 0.5:
        _write(content, offset, data[: rng.randrange(len(data) + 1)])
        return
    start = 0
    while start < len(data):
        end = min(len(data), (offset + start) // SECTOR * SECTOR + SECTOR - offset)
        if rng.random() < 0.5:
            _write(content, offset + start, data[start:end])
        start = end
