"""The allocation archive of one member: who was given which block, from before the log's start on.

A directory of files `<first offset>-<offset after the last>.arc` (20 digits each); their layout is in
`snapshots.archive_format`. Files are merged when there are many: the merged file is durable before the ones that it
replaces go, and of two files that overlap after a crash the wider one counts.

No answer comes from bytes that were not verified. Opening compares every file with its checksum, and keeps one for each
page of rows. What is read later is compared with that, so a disk that decays under a running member is found out.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

import google_crc32c
import msgspec

from pidkeeper.disk.files import Files, remove_temporary, write_durably
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import (
    HEADER_BYTES,
    MAX_ARCHIVE_ROWS,
    ROW_BYTES,
    ArchiveError,
    ArchiveHeader,
    decode_header,
    decode_row,
    encode_archive,
    encode_header,
    split_archive,
)

_SUFFIX: Final = ".arc"
MAX_SMALL_FILES: Final = 16
"""Files below half of the row limit; with more of them, the oldest are merged, so that the list stays short."""

_PAGE_ROWS: Final = 256
"""Rows with a checksum in memory: 12 KiB are read for an answer, and 16 bytes are kept for them."""

_MAX_FILE_BYTES: Final = HEADER_BYTES + MAX_ARCHIVE_ROWS * ROW_BYTES


class _Pages(NamedTuple):
    """Of the pages of a file: the first ID in each, and its CRC32C."""

    firsts: array[int]
    checksums: array[int]


class AllocationArchive:
    """The archive in the directory `path`, which must exist.

    Opening verifies every file, and raises ArchiveError naming the one that is damaged or another cluster's. So does
    every method that reads, if rows changed since.
    """

    def __init__(self, files: Files, path: PurePath, cluster_id: str) -> None:
        self._files = files
        self._path = path
        self._cluster_id = cluster_id
        self._headers: list[ArchiveHeader] = []
        self._pages: dict[str, _Pages] = {}
        remove_temporary(files, path)
        found = [self._verify(name) for name in files.listdir(path) if name.endswith(_SUFFIX)]
        for header in sorted(found, key=lambda header: (header.from_offset, -header.to_offset)):
            self._adopt(header)

    @property
    def covered_to(self) -> int:
        """The lowest log offset that is not covered; allocations from there on are still to be appended."""
        return self._headers[-1].to_offset if self._headers else 0

    @property
    def end_id(self) -> int:
        """The producer ID after the last block that is archived; 0 without one."""
        return max((header.last_id for header in self._headers), default=-1) + 1

    @property
    def complete_from(self) -> int | None:
        """The lowest producer ID from which there is no hole; None where the rows since the last hole are none."""
        run = self._headers[self._run_start() :]
        if run and run[0].from_offset == 0:
            return 0
        return next((header.first_id for header in run if header.rows), None)

    def append(self, blocks: Sequence[AllocatedBlock], from_offset: int, to_offset: int) -> None:
        """Add the blocks allocated by the records from `from_offset` to before `to_offset`; durable on return.

        What is covered already is left out, so a call may be repeated. A `from_offset` above `covered_to` leaves a
        hole. Raises ArchiveError, and changes nothing, for more than MAX_ARCHIVE_ROWS blocks, and for blocks that are
        not of the range or do not ascend from what is here.
        """
        start = max(from_offset, self.covered_to)
        if any(not from_offset <= block.offset < to_offset for block in blocks):
            raise ArchiveError(f"not all blocks are of log offsets {from_offset} to {to_offset}")
        if start >= to_offset:
            return
        data = encode_archive(self._cluster_id, start, to_offset, [block for block in blocks if block.offset >= start])
        header = decode_header(data)
        self._check_above(header)
        write_durably(self._files, self._path / _name(header), data)
        self._pages[_name(header)] = _pages(data[HEADER_BYTES:])
        self._headers.append(header)
        self._merge()

    def find(self, producer_id: int) -> AllocatedBlock | None:
        """The block that holds `producer_id`, by binary search."""
        position = self._position_after(producer_id) - 1
        if position < 0:
            return None
        header = self._filled()[position]
        with_id = self._row_after(header, producer_id) - 1
        block = self._rows(header, with_id, 1)[0] if with_id >= 0 else None
        return block if block is not None and block.last >= producer_id else None

    def blocks(self, after: int, limit: int) -> list[AllocatedBlock]:
        """Up to `limit` blocks that start above ID `after`, in order of ID."""
        found: list[AllocatedBlock] = []
        start = max(0, self._position_after(after) - 1)
        for header in self._filled()[start:]:
            first = self._row_after(header, after)
            found += self._rows(header, first, min(limit - len(found), header.rows - first))
            if len(found) >= limit:
                break
        return found

    def __iter__(self) -> Iterator[AllocatedBlock]:
        """All blocks in order of ID, read page by page. Raises ArchiveError for rows that are not in that order."""
        after = -1
        while page := self.blocks(after, _PAGE_ROWS):
            for block in page:
                if block.first <= after:
                    raise ArchiveError(f"the block of ID {block.first} does not start above ID {after} before it")
                after = block.last
                yield block

    def _verify(self, name: str) -> ArchiveHeader:
        try:
            if (size := self._files.size(self._path / name)) > _MAX_FILE_BYTES:
                raise ArchiveError(f"{size} bytes are above the limit of {_MAX_FILE_BYTES}")
            header, rows = split_archive(self._files.read_bytes(self._path / name))
            if header.cluster_id != self._cluster_id:
                raise ArchiveError(f"it is of cluster {header.cluster_id}, not of {self._cluster_id}")
            if _name(header) != name:
                raise ArchiveError(f"by its header this is {_name(header)}")
            self._pages[name] = _pages(rows)
        except ArchiveError as error:
            raise ArchiveError(
                f"archive file {self._path / name}: {error}. Restore the file from another member's archive "
                "or move it away: the blocks in it then count as a hole"
            ) from error
        return header

    def _adopt(self, header: ArchiveHeader) -> None:
        """Take a file found at open, in order of offset; remove it if a crash left it behind a merge."""
        if self._headers and header.to_offset <= self.covered_to:
            self._remove(header)
            return
        if header.from_offset < self.covered_to:
            raise ArchiveError(
                f"archive files {_name(self._headers[-1])} and {_name(header)} in {self._path} cover the same offsets: "
                "move away the one that does not belong there"
            )
        self._check_above(header)
        self._headers.append(header)

    def _check_above(self, header: ArchiveHeader) -> None:
        highest = max((known.last_id for known in self._headers), default=-1)
        if header.rows and header.first_id <= highest:
            raise ArchiveError(
                f"the block of ID {header.first_id} at log offset {header.from_offset} or above does not start above "
                f"ID {highest}, which was given out before: the history contradicts itself"
            )

    def _merge(self) -> None:
        small = [header for header in self._headers if header.rows < MAX_ARCHIVE_ROWS // 2]
        if len(small) <= MAX_SMALL_FILES or (run := self._oldest_run()) is None:
            return
        old = self._headers[run]
        contents = [self._files.read_bytes(self._path / _name(header))[HEADER_BYTES:] for header in old]
        rows = b"".join(contents)
        filled = [header for header in old if header.rows]
        merged = msgspec.structs.replace(
            old[0],
            to_offset=old[-1].to_offset,
            rows=sum(header.rows for header in old),
            first_id=filled[0].first_id if filled else -1,
            last_id=filled[-1].last_id if filled else -1,
            rows_checksum=google_crc32c.value(rows),
            version=max(header.version for header in old),
        )
        for header, content in zip(old, contents, strict=True):
            if google_crc32c.value(content) != header.rows_checksum:
                raise self._changed(header)
        write_durably(self._files, self._path / _name(merged), encode_header(merged) + rows)
        self._pages[_name(merged)] = _pages(rows)
        self._headers[run] = [merged]
        for header in old:
            self._remove(header)
        self._files.fsync_directory(self._path)

    def _oldest_run(self) -> slice | None:
        """The oldest two or more files in a row without a hole between them whose rows fit into one file."""
        start, rows = 0, 0
        for position, header in enumerate(self._headers):
            joined = position > start and self._headers[position - 1].to_offset == header.from_offset
            if joined and rows + header.rows <= MAX_ARCHIVE_ROWS:
                rows += header.rows
                continue
            if position - start >= 2:
                return slice(start, position)
            start, rows = position, header.rows
        return slice(start, len(self._headers)) if len(self._headers) - start >= 2 else None

    def _run_start(self) -> int:
        """The position of the first file after the last hole."""
        position = max(len(self._headers) - 1, 0)
        while position > 0 and self._headers[position - 1].to_offset == self._headers[position].from_offset:
            position -= 1
        return position

    def _filled(self) -> list[ArchiveHeader]:
        return [header for header in self._headers if header.rows]

    def _position_after(self, producer_id: int) -> int:
        """How many files with rows start at or below `producer_id`."""
        return bisect.bisect_right(self._filled(), producer_id, key=lambda header: header.first_id)

    def _row_after(self, header: ArchiveHeader, producer_id: int) -> int:
        """The number of the first row of a file that starts above `producer_id`."""
        page = bisect.bisect_right(self._pages[_name(header)].firsts, producer_id) - 1
        if page < 0:
            return 0
        rows = self._page(header, page)
        numbers = range(len(rows) // ROW_BYTES)
        return page * _PAGE_ROWS + bisect.bisect_right(
            numbers, producer_id, key=lambda number: _row(rows, number).first
        )

    def _rows(self, header: ArchiveHeader, first: int, count: int) -> list[AllocatedBlock]:
        if count <= 0:
            return []
        start, end = first // _PAGE_ROWS, (first + count - 1) // _PAGE_ROWS
        rows = b"".join([self._page(header, page) for page in range(start, end + 1)])
        return [_row(rows, number - start * _PAGE_ROWS) for number in range(first, first + count)]

    def _page(self, header: ArchiveHeader, number: int) -> bytes:
        """The rows of one page, verified."""
        name = _name(header)
        count = min(_PAGE_ROWS, header.rows - number * _PAGE_ROWS)
        handle = self._files.open(self._path / name)
        try:
            rows = self._files.pread(handle, count * ROW_BYTES, HEADER_BYTES + number * _PAGE_ROWS * ROW_BYTES)
        finally:
            self._files.close(handle)
        if google_crc32c.value(rows) != self._pages[name].checksums[number]:
            raise self._changed(header, f", in rows {number * _PAGE_ROWS} to {number * _PAGE_ROWS + count - 1}")
        return rows

    def _changed(self, header: ArchiveHeader, place: str = "") -> ArchiveError:
        return ArchiveError(
            f"archive file {self._path / _name(header)} changed since it was opened{place}: the disk is failing. "
            "Move the member to another one"
        )

    def _remove(self, header: ArchiveHeader) -> None:
        self._files.unlink(self._path / _name(header))
        self._pages.pop(_name(header), None)


def _name(header: ArchiveHeader) -> str:
    return f"{header.from_offset:020d}-{header.to_offset:020d}{_SUFFIX}"


def _pages(rows: bytes) -> _Pages:
    """One page is copied at a time: all of them would be a second file, in small blocks that no heap gives back."""
    pages = _Pages(array("q"), array("q"))
    for at in range(0, len(rows), _PAGE_ROWS * ROW_BYTES):
        page = rows[at : at + _PAGE_ROWS * ROW_BYTES]
        pages.firsts.append(_row(page, 0).first)
        pages.checksums.append(google_crc32c.value(page))
    return pages


def _row(rows: bytes, number: int) -> AllocatedBlock:
    return decode_row(rows[number * ROW_BYTES : (number + 1) * ROW_BYTES])
