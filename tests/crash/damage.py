"""A disk that remembers what it was told, and every way in which one fault may damage what it had synced.

The faults, each alone and all of them enumerated (section 3 of Bairavasundaram et al., "An Analysis of Data Corruption
in the Storage Stack", FAST'08, names where they come from):

- flipped: one bit of every byte; in a file above MAX_FLIPPED_BYTES of the first byte of every sector;
- zeroed: a sector reads as zeroes;
- stale: a sector holds what it held after an earlier sync;
- misdirected: the bytes of one synced write stand at the place of another one, in the same file or another. Once with
  its own place as if it had never come there, and once with it there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final, NamedTuple

import msgspec

from pidkeeper.controller.storage.owner_archive import SUFFIX
from tests.crash.disk import SECTOR, CrashDisk, Image
from tests.support.memory_files import Inode, _write

FAULTS: Final = ("flipped", "zeroed", "stale", "misdirected")
MAX_FLIPPED_BYTES: Final = 16 * 1024


class Damage(NamedTuple):
    """One fault: the `paths` whose content it changes, from byte `offset` on, and what is then on disk."""

    fault: str
    paths: tuple[PurePath, ...]
    offset: int
    place: str
    image: Image

    @property
    def area(self) -> str:
        """What was damaged: wal, snapshots, archive, owners, or meta."""
        name = self.paths[0].parent.name
        if self.paths[0].suffix == SUFFIX:
            return "owners"
        return name if name in {"wal", "snapshots", "archive"} else "meta"


class _Past(msgspec.Struct):
    """Of one file: the contents after its syncs, the oldest first, and its writes; preallocation is `data` None."""

    inode: Inode
    versions: list[bytes]
    writes: list[tuple[int, bytes | None, int]]


class RecordingDisk(CrashDisk):
    """Lists the damage of what is on it; only while it is `settled`."""

    def __init__(self) -> None:
        super().__init__()
        self._pasts: dict[int, _Past] = {}

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        super().pwrite(handle, data, offset)
        self._past(self._handles[handle][1]).writes.append((offset, bytes(data), len(data)))

    def preallocate(self, handle: int, size: int) -> None:
        super().preallocate(handle, size)
        self._past(self._handles[handle][1]).writes.append((0, None, size))

    def fdatasync(self, handle: int) -> None:
        super().fdatasync(handle)
        past = self._past(self._handles[handle][1])
        if not past.versions or past.versions[-1] != past.inode.durable:
            past.versions.append(bytes(past.inode.durable))

    def damages(self) -> Iterator[Damage]:
        """Every fault in turn; no two of one kind leave the same."""
        assert self.settled, "damage of what is not synced"
        now = self.lost()
        for fault, found in (
            ("flipped", self._flipped(now)),
            ("zeroed", self._zeroed(now)),
            ("stale", self._stale(now)),
            ("misdirected", self._misdirected(now)),
        ):
            seen: set[tuple[tuple[PurePath, bytes], ...]] = set()
            for changed, offset, place in found:
                content = tuple((path, data) for path, data in changed.items() if data != now[path])
                if content and content not in seen:
                    seen.add(content)
                    yield Damage(fault, tuple(path for path, _ in content), offset, place, {**now, **dict(content)})

    def _past(self, inode: Inode) -> _Past:
        if id(inode) not in self._pasts:
            self._pasts[id(inode)] = _Past(inode, [], [])
        return self._pasts[id(inode)]

    @staticmethod
    def _flipped(now: Image) -> Iterator[tuple[Image, int, str]]:
        for path, content in sorted(now.items()):
            step = 1 if len(content) <= MAX_FLIPPED_BYTES else SECTOR
            for number, offset in enumerate(range(0, len(content), step)):
                bit = number % 8
                flipped = content[offset] ^ 1 << bit
                changed = content[:offset] + bytes([flipped]) + content[offset + 1 :]
                yield {path: changed}, offset, f"bit {bit} of byte {offset} of {path.name}"

    @staticmethod
    def _zeroed(now: Image) -> Iterator[tuple[Image, int, str]]:
        for path, content in sorted(now.items()):
            for start in range(0, len(content), SECTOR):
                changed = _with_sector(content, start, b"")
                yield {path: changed}, start, f"the sector at byte {start} of {path.name}"

    def _stale(self, now: Image) -> Iterator[tuple[Image, int, str]]:
        for path, inode in sorted(self._durable.items()):
            content = now[path]
            for number, version in enumerate(self._past(inode).versions):
                for start in range(0, len(content), SECTOR):
                    changed = _with_sector(content, start, version)
                    yield {path: changed}, start, f"the sector at byte {start} of {path.name} as of sync {number}"

    def _misdirected(self, now: Image) -> Iterator[tuple[Image, int, str]]:
        files = [(path, self._past(inode)) for path, inode in sorted(self._durable.items())]
        places = [
            (path, offset, size) for path, past in files for offset, data, size in past.writes if data is not None
        ]
        for path, past in files:
            for number, (offset, data, size) in enumerate(past.writes):
                if data is None:
                    continue
                without = _replayed(past, number, len(now[path]))
                for target, at, _ in places:
                    if (target, at) == (path, offset):
                        continue
                    for own in (now[path], without):
                        changed = {path: own}
                        onto = bytearray(changed.get(target, now[target]))
                        _write(onto, at, data[: max(0, len(onto) - at)])
                        changed[target] = bytes(onto)
                        place = f"{size} bytes for byte {offset} of {path.name} at byte {at} of {target.name}"
                        yield changed, at, place


def _with_sector(content: bytes, start: int, source: bytes) -> bytes:
    """`content` with one sector as it is in `source`; where that is shorter, the sector is zero."""
    end = min(start + SECTOR, len(content))
    return content[:start] + source[start:end].ljust(end - start, b"\0") + content[end:]


def _replayed(past: _Past, left_out: int, size: int) -> bytes:
    """The content of a file if one of its writes had never come to its place."""
    content = bytearray(past.versions[0] if not past.writes else b"")
    for number, (offset, data, length) in enumerate(past.writes):
        if number != left_out:
            _write(content, offset, bytes(length) if data is None else data)
    return bytes(content.ljust(size, b"\0"))
