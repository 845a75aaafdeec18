"""A disk in memory that lists every state in which a power cut may leave it.

What a power cut may do to the operations that no sync covered yet, and how the combinations are bounded:

- Each write and each change of names is lost or kept. Up to MAX_FULL_SUBSET of them: every subset. Above: none, all,
  each one alone, all but each one.
- Each write into a file that is known under a lasting name is also torn: cut off after each byte, and as every subset
  of its 512-byte sectors (up to MAX_FULL_SUBSET sectors; above, each sector alone lost or kept). The other pending
  operations are then all kept, and all lost; with up to two others, every subset of them.
- A file that is known under a temporary name only is lost or kept, not torn.
- The lock file has no content and its name no meaning; neither counts as a pending operation.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple, Self

from pidkeeper.disk.files import TEMPORARY_SUFFIX
from tests.support.memory_files import Inode, MemoryFiles, _apply, _Link, _write, with_parents

SECTOR: Final = 512
MAX_FULL_SUBSET: Final = 6
MAX_OTHERS: Final = 2

Image = dict[PurePath, bytes]
"""What is on disk: every file's name and content."""

Kept = frozenset[int]
"""Which of the pending operations the power cut left, by their position."""


class _Write(NamedTuple):
    """A pending write number `number` of the file `inode`."""

    inode: Inode
    number: int


class CrashDisk(MemoryFiles):
    """`boundary` is called before every changing call, with its kind and path; `images` lists the states then."""

    def __init__(self) -> None:
        super().__init__()
        self.boundary: Callable[[str, PurePath], None] | None = None

    @classmethod
    def of(cls, image: Image, directories: set[PurePath]) -> Self:
        """The disk as the next start finds it."""
        disk = cls()
        disk._directories = directories | with_parents(image)
        for path, content in image.items():
            inode = Inode(bytearray(content), bytearray(content), [])
            disk._live[path] = disk._durable[path] = inode
        return disk

    @property
    def directories(self) -> set[PurePath]:
        """All directories; they are durable once made."""
        return self._directories

    @property
    def settled(self) -> bool:
        """Whether a power cut would lose nothing now."""
        return not self._links and not self._writes()

    def lost(self) -> Image:
        """What is left when everything goes that no sync covered."""
        return {path: bytes(inode.durable) for path, inode in self._durable.items()}

    def exists(self, path: PurePath) -> bool:
        return path in self._locked.values() or super().exists(path)

    def lock(self, path: PurePath) -> int:
        """A lock that leaves no file behind, see the rules above."""
        if path in self._locked.values():
            raise BlockingIOError(path)
        handle = next(self._next_handle)
        self._handles[handle] = (path, Inode(bytearray(), bytearray(), []))
        self._locked[handle] = path
        return handle

    def listdir(self, path: PurePath) -> list[str]:
        # Recovery lists directories all the time, and text is compared faster than paths are.
        if path not in self._directories:
            raise FileNotFoundError(path)
        start = f"{path}/"
        below = [
            str(child)[len(start) :] for child in (*self._live, *self._directories) if str(child).startswith(start)
        ]
        return sorted(name for name in below if "/" not in name)

    def forget_processes(self) -> None:
        """The process was killed: its handles and locks are gone, the page cache stays."""
        self._handles.clear()
        self._locked.clear()

    def preview(self) -> CrashDisk:
        """A copy of what a process sees."""
        live = {path: bytes(inode.live) for path, inode in self._live.items()}
        return CrashDisk.of(live, self._directories)

    def cut(self, rng: random.Random) -> Self:
        """The disk after a power cut that left one of the `images`."""
        return self.of(rng.choice(list(self.images()))[1], self._directories)

    def _change(self, kind: str, path: PurePath) -> None:
        if self.boundary is not None:
            self.boundary(kind, path)

    def images(self) -> Iterator[tuple[str, Image]]:
        """Every state that a power cut may leave now, once, with a description of what was kept."""
        writes = self._writes()
        links = len(self._links)
        pending: list[_Link | _Write] = [*self._links, *writes]
        seen: set[int] = set()
        for kept in _subsets(range(len(pending))):
            image = self._image(pending, kept, {})
            if _is_new(image, seen):
                yield f"kept {sorted(kept)} of {len(pending)}", image
        for position, write in enumerate(writes, links):
            for others in self._others(pending, position):
                if not any(inode is write.inode for inode in _lasting(self._names(pending, others)).values()):
                    continue
                for tear, pieces in _tears(*write.inode.unsynced[write.number]):
                    image = self._image(pending, others | {position}, {position: pieces})
                    if _is_new(image, seen):
                        yield f"kept {sorted(others)} of {len(pending)}, write {position} {tear}", image

    def _writes(self) -> list[_Write]:
        inodes = {id(inode): inode for inode in [*self._durable.values(), *self._live.values()]}
        return [_Write(inode, number) for inode in inodes.values() for number in range(len(inode.unsynced))]

    def _others(self, pending: Sequence[_Link | _Write], torn: int) -> list[Kept]:
        others = [position for position in range(len(pending)) if position != torn]
        meaningful = [position for position in others if not _makes_temporary(pending[position])]
        if not meaningful:
            return [frozenset(others)]
        if len(others) <= MAX_OTHERS:
            return _subsets(others)
        return [frozenset(), frozenset(others)]

    def _names(self, pending: Sequence[_Link | _Write], kept: Kept) -> dict[PurePath, Inode]:
        names = dict(self._durable)
        for position, link in enumerate(pending):
            if isinstance(link, _Link) and position in kept:
                _apply(names, link)
        return names

    def _image(self, pending: Sequence[_Link | _Write], kept: Kept, torn: dict[int, list[tuple[int, bytes]]]) -> Image:
        image: Image = {}
        for path, inode in self._names(pending, kept).items():
            content = inode.durable
            if inode.unsynced:
                content = bytearray(content)
                for position, write in enumerate(pending):
                    if isinstance(write, _Write) and write.inode is inode and position in kept:
                        for offset, data in torn.get(position, [inode.unsynced[write.number]]):
                            _write(content, offset, data)
            image[path] = bytes(content)
        return image


def key(image: Image) -> int:
    """The same number for the same state."""
    return hash(frozenset(image.items()))


def _is_new(image: Image, seen: set[int]) -> bool:
    number = key(image)
    if number in seen:
        return False
    seen.add(number)
    return True


def _lasting(names: dict[PurePath, Inode]) -> dict[PurePath, Inode]:
    return {path: inode for path, inode in names.items() if path.suffix != TEMPORARY_SUFFIX}


def _makes_temporary(operation: _Link | _Write) -> bool:
    return isinstance(operation, _Link) and operation.adds is not None and operation.adds.suffix == TEMPORARY_SUFFIX


def _subsets(positions: Sequence[int]) -> list[Kept]:
    if len(positions) <= MAX_FULL_SUBSET:
        sizes = range(len(positions) + 1)
        return [frozenset(kept) for size in sizes for kept in itertools.combinations(positions, size)]
    everything = frozenset(positions)
    alone = [frozenset((position,)) for position in positions]
    return [frozenset(), everything, *alone, *(everything - one for one in alone)]


def _tears(offset: int, data: bytes) -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """What may be left of one write, as (offset, data) pieces."""
    for end in range(1, len(data)):
        yield f"cut at byte {end} of {len(data)}", [(offset, data[:end])]
    starts = [0, *range(SECTOR - offset % SECTOR, len(data), SECTOR)]
    sectors = [(start, data[start:end]) for start, end in zip(starts, [*starts[1:], len(data)], strict=True)]
    for kept in _subsets(range(len(sectors))):
        # A longer file may keep its length where its bytes are lost: then they read as zeroes.
        pieces = [(offset + len(data), b""), *((offset + sectors[one][0], sectors[one][1]) for one in sorted(kept))]
        yield f"with sectors {sorted(kept)} of {len(sectors)}", pieces
