"""Which producer ID was given to which transactional id, from before the log's start on; also of forgotten ones.

A directory of files `<first offset>-<offset after the last>.own`; their layout is in `snapshots.owner_format`. They
cover the log as the files of the allocation archive do, from the first ID on. Opening verifies every file, one at a
time; in memory stays what each covers. An answer is found by binary search on the disk, and verified by itself.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from pidkeeper.disk.files import Files, remove_temporary, write_durably
from pidkeeper.snapshots.owner_format import (
    MAX_OWNER_FILE_BYTES,
    OWNER_HEADER_BYTES,
    OWNER_ROW_BYTES,
    Owner,
    OwnerError,
    OwnerHeader,
    assembled,
    decode_place,
    encode_owners,
    moved,
    split_owners,
)

SUFFIX: Final = ".own"
MAX_SMALL_FILES: Final = 16
"""Files below half of the bytes that one may have; with more of them, the oldest are merged."""


class _Known(msgspec.Struct, frozen=True):
    """A file: its header, and the first and the last producer ID in it; -1 without rows."""

    header: OwnerHeader
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.header.from_offset:020d}-{self.header.to_offset:020d}{SUFFIX}"


class OwnerArchive:
    """The archive in the directory `path`, which must exist.

    Opening verifies every file, and raises OwnerError naming the one that is damaged or another cluster's; so do
    `find` and `append` if what they read changed since.
    """

    def __init__(self, files: Files, path: PurePath, cluster_id: str) -> None:
        self._files = files
        self._path = path
        self._cluster_id = cluster_id
        self._known: list[_Known] = []
        remove_temporary(files, path)
        found = [self._verify(name) for name in files.listdir(path) if name.endswith(SUFFIX)]
        for known in sorted(found, key=lambda one: (one.header.from_offset, -one.header.to_offset)):
            self._adopt(known)

    @property
    def covered_to(self) -> int:
        """The lowest log offset that is not covered; 0 while nothing is."""
        return self._known[-1].header.to_offset if self._known else 0

    @property
    def complete_from(self) -> int | None:
        """The lowest producer ID from which there is no hole; None where nothing is known."""
        position = len(self._known) - 1
        while position > 0 and self._joined(position):
            position -= 1
        return next((one.first for one in self._known[max(0, position) :] if one.header.rows), None)

    def append(self, owners: Sequence[Owner], from_offset: int, to_offset: int) -> None:
        """Add the IDs given by the records from `from_offset` to before `to_offset`; durable on return.

        What is covered already is left out, so a call may be repeated. Nothing is written before the first ID. Raises
        OwnerError for owners that are not of the range or do not ascend from what is here.
        """
        start = max(from_offset, self.covered_to)
        new = [owner for owner in owners if owner.offset >= start]
        if start >= to_offset or not (new or self._known):
            return
        for first, end, part in _parts(new, start, to_offset):
            known = _known(encoded := encode_owners(self._cluster_id, first, end, part))
            self._check_above(known)
            write_durably(self._files, self._path / known.name, encoded)
            self._known.append(known)
        self._merge()

    def find(self, producer_id: int) -> Owner | None:
        """Who was given `producer_id`."""
        filled = [one for one in self._known if one.header.rows]
        position = bisect.bisect_right(filled, producer_id, key=lambda one: one.first) - 1
        if position < 0 or producer_id > filled[position].last:
            return None
        known = filled[position]
        handle = self._files.open(self._path / known.name)
        try:
            owner = self._first_from(producer_id, handle, known.header.rows)
        except OwnerError as error:
            raise self._changed(known, error) from error
        finally:
            self._files.close(handle)
        return owner if owner.producer_id == producer_id else None

    def _first_from(self, producer_id: int, handle: int, rows: int) -> Owner:
        """The first row of a file that is not below `producer_id`, which the last one is not.

        Every row that is looked at is verified with its name: one that decays must not lead the search astray.
        """
        number = bisect.bisect_left(range(rows), producer_id, key=lambda row: self._row(handle, rows, row).producer_id)
        return self._row(handle, rows, number)

    def _row(self, handle: int, rows: int, number: int) -> Owner:
        at = OWNER_HEADER_BYTES + number * OWNER_ROW_BYTES
        place = decode_place(self._files.pread(handle, OWNER_ROW_BYTES, at))
        names_at = OWNER_HEADER_BYTES + rows * OWNER_ROW_BYTES
        return place.owner(self._files.pread(handle, place.name_bytes, names_at + place.name_at))

    def _verify(self, name: str) -> _Known:
        path = self._path / name
        try:
            if (size := self._files.size(path)) > MAX_OWNER_FILE_BYTES:
                raise OwnerError(f"{size} bytes are above the limit of {MAX_OWNER_FILE_BYTES}")
            known = _known(self._files.read_bytes(path))
            if known.header.cluster_id != self._cluster_id:
                raise OwnerError(f"it is of cluster {known.header.cluster_id}, not of {self._cluster_id}")
            if known.name != name:
                raise OwnerError(f"by its header this is {known.name}")
        except OwnerError as error:
            raise OwnerError(
                f"file of owners {path}: {error}. Restore it from another member, or move it away: the IDs in it then "
                "count as a hole"
            ) from error
        return known

    def _adopt(self, known: _Known) -> None:
        """Take a file found at open, in order of offset; remove it if a crash left it behind a merge."""
        if self._known and known.header.to_offset <= self.covered_to:
            self._files.unlink(self._path / known.name)
            return
        if known.header.from_offset < self.covered_to:
            raise OwnerError(
                f"files of owners {self._known[-1].name} and {known.name} in {self._path} cover the same offsets: move "
                "away the one that does not belong there"
            )
        self._check_above(known)
        self._known.append(known)

    def _check_above(self, known: _Known) -> None:
        highest = max((one.last for one in self._known), default=-1)
        if known.header.rows and known.first <= highest:
            raise OwnerError(
                f"producer ID {known.first} in {known.name} does not come after {highest}, which was given before: the "
                "history contradicts itself"
            )

    def _merge(self) -> None:
        small = [one for one in self._known if one.header.file_bytes < MAX_OWNER_FILE_BYTES // 2]
        if len(small) <= MAX_SMALL_FILES or (run := self._oldest_run()) is None:
            return
        old = self._known[run]
        rows, names = b"", b""
        for one in old:
            more, after = self._moved(one, len(names))
            rows, names = rows + more, names + after
        data = assembled(self._cluster_id, old[0].header.from_offset, old[-1].header.to_offset, rows, names)
        merged = _known(data)
        write_durably(self._files, self._path / merged.name, data)
        self._known[run] = [merged]
        for one in old:
            self._files.unlink(self._path / one.name)
        self._files.fsync_directory(self._path)

    def _moved(self, known: _Known, by: int) -> tuple[bytes, bytes]:
        """Rows and names of a file, the names to be `by` bytes further on."""
        try:
            _, rows, names = split_owners(self._files.read_bytes(self._path / known.name))
            return moved(rows, by), names
        except OwnerError as error:
            raise self._changed(known, error) from error

    def _changed(self, known: _Known, error: OwnerError) -> OwnerError:
        return OwnerError(
            f"file of owners {self._path / known.name} changed since it was opened ({error}): the disk is failing. "
            "Move the member to another one"
        )

    def _oldest_run(self) -> slice | None:
        """The oldest two or more files in a row without a hole between them that fit into one file."""
        start, size = 0, 0
        for position, one in enumerate(self._known):
            content = one.header.file_bytes - OWNER_HEADER_BYTES
            fits = OWNER_HEADER_BYTES + size + content <= MAX_OWNER_FILE_BYTES
            if position > start and self._joined(position) and fits:
                size += content
                continue
            if position - start >= 2:
                return slice(start, position)
            start, size = position, content
        return slice(start, len(self._known)) if len(self._known) - start >= 2 else None

    def _joined(self, position: int) -> bool:
        """Whether there is no hole before the file at `position`."""
        return self._known[position - 1].header.to_offset == self._known[position].header.from_offset


def _parts(owners: Sequence[Owner], start: int, to_offset: int) -> Iterator[tuple[int, int, Sequence[Owner]]]:
    """The owners in portions of one file each, with the offsets that each portion covers."""
    first, size = 0, OWNER_HEADER_BYTES
    for position, owner in enumerate(owners):
        if size + owner.encoded_bytes > MAX_OWNER_FILE_BYTES:
            yield start, owner.offset, owners[first:position]
            start, first, size = owner.offset, position, OWNER_HEADER_BYTES
        size += owner.encoded_bytes
    yield start, to_offset, owners[first:]


def _known(data: bytes) -> _Known:
    """A whole file. Raises OwnerError."""
    header, rows, _ = split_owners(data)
    if not rows:
        return _Known(header, -1, -1)
    first, last = decode_place(rows[:OWNER_ROW_BYTES]), decode_place(rows[-OWNER_ROW_BYTES:])
    return _Known(header, first.producer_id, last.producer_id)
