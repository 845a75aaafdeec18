"""The allocation archive of one member: which of its files count (`archive_rows` has their rows).

`protocol.archive` has the layout of a file. A file holds at most MAX_ARCHIVE_ROWS rows (48 MiB) under one checksum, so
it is read at once: the bytes whose checksum was right are the ones that the rows come from. A file whose checksum is
wrong gives no row, because nothing says which of them is good.

Members merge their files: the wider file is there before the ones that it replaces go. So files that overlap are one
span of offsets, from which the widest whole file counts and the others only where that one does not reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from pipeline.formats.problems import (
    BAD_CRC,
    EMPTY,
    FOREIGN,
    MALFORMED,
    MISNAMED,
    NEWER,
    OVERLAP,
    TORN,
    UNREADABLE,
    BadFile,
    Problem,
)
from protocol.archive import (
    ARCHIVE_VERSION,
    HEADER_BYTES,
    MAX_ARCHIVE_ROWS,
    ROW_BYTES,
    ArchiveError,
    ArchiveHeader,
    decode_header,
    split_archive,
)

MAX_FILE_BYTES: Final = HEADER_BYTES + MAX_ARCHIVE_ROWS * ROW_BYTES
"""What reading a file takes in memory."""

_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.arc")
_MAGIC: Final = b"PIDARCH1"
_VERSION_AT: Final = 8
_NAMED_AT: Final = 76
_ATTEMPTS: Final = 3
"""Listings of a directory in which files may be merged away. A merge comes once in 17 snapshots."""


class FileName(NamedTuple):
    """What a file covers by its name: log offsets [from_offset, to_offset)."""

    from_offset: int
    to_offset: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.from_offset:020d}-{self.to_offset:020d}.arc"


class WholeFile(NamedTuple):
    """A verified file: its header and the bytes of its rows."""

    name: str
    header: ArchiveHeader
    rows: bytes


class Piece(NamedTuple):
    """The rows of a verified file that count are those from offset `from_offset` to before `to_offset`."""

    file: WholeFile
    from_offset: int
    to_offset: int


def file_name(name: str) -> FileName | None:
    """What a file of this name covers; None if no archive file is called so."""
    match = _NAME.fullmatch(name)
    return FileName(int(match[1]), int(match[2])) if match and int(match[1]) < int(match[2]) else None


def spans(names: Iterable[str]) -> list[FileName]:
    """The offsets that files of these names cover: each as wide as the files that overlap it, in order."""
    found: list[FileName] = []
    for file in sorted(file for name in names if (file := file_name(name)) is not None):
        if found and file.from_offset < found[-1].to_offset:
            found[-1] = FileName(found[-1].from_offset, max(found[-1].to_offset, file.to_offset))
        else:
            found.append(file)
    return found


def read_whole(name: str, data: bytes) -> WholeFile:
    """Verify a file. Raises BadFile."""
    header = read_file_header(name, data)
    expected = HEADER_BYTES + header.rows * ROW_BYTES
    if len(data) < expected:
        raise _bad(name, TORN, len(data), f"{header.rows} rows end at byte {expected}, the file at {len(data)}")
    if len(data) > expected:
        raise _bad(name, MALFORMED, expected, f"{len(data) - expected} bytes follow the {header.rows} rows")
    try:
        header, rows = split_archive(data)
    except ArchiveError as error:
        raise _bad(name, BAD_CRC, HEADER_BYTES, str(error)) from error
    return WholeFile(name, header, rows)


def read_file_header(name: str, data: bytes) -> ArchiveHeader:
    """Verify the header at the start of a file. Raises BadFile."""
    if not data:
        raise _bad(name, EMPTY, 0, "the file has no bytes")
    if not data.startswith(_MAGIC[: len(data)]):
        raise _bad(name, FOREIGN, 0, f"it starts with {data[:8]!r}, not with {_MAGIC!r}: it is no allocation archive")
    if len(data) < HEADER_BYTES:
        raise _bad(name, TORN, len(data), f"the file ends after {len(data)} of {HEADER_BYTES} header bytes")
    try:
        header = decode_header(data)
    except ArchiveError as error:
        newer = int.from_bytes(data[_VERSION_AT : _VERSION_AT + 2]) != ARCHIVE_VERSION and "version" in str(error)
        kind, position = (NEWER, _VERSION_AT) if newer else (BAD_CRC if "checksum" in str(error) else MALFORMED, 0)
        raise _bad(name, kind, position, str(error)) from error
    named = FileName(header.from_offset, header.to_offset).name
    if named != name:
        raise _bad(name, MISNAMED, _NAMED_AT, f"by its header this is {named}")
    return header


def read_span(
    span: FileName, names: Callable[[], Iterable[str]], read: Callable[[str], bytes]
) -> Iterator[Piece | Problem]:
    """Every row of the offsets in `span` once, from verified files, and the problems of the files that were read.

    `names` lists the directory, `read` gives a file's bytes, at most MAX_FILE_BYTES + 1. Both may raise OSError. A
    file that was merged away meanwhile is found in the one that it went into.
    """
    covered, gone = span.from_offset, ""
    before: FileName | None = None
    for _ in range(_ATTEMPTS):
        gone = ""
        for file in _overlapping(span, names()):
            if file.to_offset <= covered:
                continue
            try:
                whole = read_whole(file.name, read(file.name))
            except FileNotFoundError:
                gone = file.name
                break
            except (BadFile, OSError) as error:
                yield as_problem(file.name, error)
                continue
            if before is not None and before.from_offset < file.from_offset < covered:
                yield Problem(file.name, OVERLAP, _NAMED_AT, f"offsets up to {covered} are in the file before it too")
            yield Piece(whole, max(covered, file.from_offset), min(file.to_offset, span.to_offset))
            covered, before = file.to_offset, file
        if not gone:
            return
    yield Problem(gone, UNREADABLE, 0, f"it went away {_ATTEMPTS} times after the directory was listed")


def as_problem(name: str, error: BadFile | OSError) -> Problem:
    """What to report of a file that could not be read."""
    return error.problem if isinstance(error, BadFile) else Problem(name, UNREADABLE, 0, str(error))


def _overlapping(span: FileName, names: Iterable[str]) -> list[FileName]:
    """The files with offsets in `span`; of those that start at the same one, the widest first."""
    files = (file for name in names if (file := file_name(name)) is not None)
    inside = (file for file in files if file.from_offset < span.to_offset and file.to_offset > span.from_offset)
    return sorted(inside, key=lambda file: (file.from_offset, -file.to_offset))


def _bad(name: str, kind: str, position: int, detail: str) -> BadFile:
    return BadFile(Problem(name, kind, position, detail))
