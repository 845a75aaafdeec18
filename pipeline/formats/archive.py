"""The allocation archive of one member: which of its files count (`archive_rows` has their rows).

`snapshots.archive_format` has the layout of a file. A file holds at most MAX_ARCHIVE_ROWS rows (48 MiB) under one
checksum, so it is read at once: the bytes whose checksum was right are the ones that the rows come from. A file whose
checksum is wrong gives no row, because nothing says which of them is good.

Members merge their files: the wider file is there before the ones that it replaces go. So files that overlap are one
span of offsets, from which the widest whole file counts and the others only where that one does not reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from pidkeeper.pipeline.formats.problems import (
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
from pidkeeper.snapshots.archive_format import (
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
_CLUSTER_AT: Final = 12
_NAMED_AT: Final = 76
_ATTEMPTS: Final = 3
"""Listings of a directory in which files may be merged away. A merge comes once in 17 snapshots."""


File = TypeVar("File")
"""A file that was verified, as whoever reads it has it."""


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


class Piece(NamedTuple, Generic[File]):
    """The rows of a verified file that count are those from offset `from_offset` to before `to_offset`."""

    file: File
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


def read_whole(name: str, data: bytes, cluster_id: str | None = None) -> WholeFile:
    """Verify a file; `cluster_id` None accepts any cluster's. Raises BadFile."""
    header = read_file_header(name, data, cluster_id)
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


def read_file_header(name: str, data: bytes, cluster_id: str | None = None) -> ArchiveHeader:
    """Verify the header at the start of a file; `cluster_id` None accepts any cluster's. Raises BadFile."""
    if not data:
        raise _bad(name, EMPTY, 0, "the file has no bytes")
    if not data.startswith(_MAGIC[: len(data)]):
        raise _bad(name, FOREIGN, 0, f"it starts with {data[:8]!r}, not with {_MAGIC!r}: it is no allocation archive")
    if len(data) < HEADER_BYTES:
        raise _bad(name, TORN, len(data), f"the file ends after {len(data)} of {HEADER_BYTES} header bytes")
    try:
        header = decode_header(data)
    except ArchiveError as error:
        newer = int.from_bytes(data[_VERSION_AT : _VERSION_AT + 2]) > ARCHIVE_VERSION and "version" in str(error)
        kind, position = (NEWER, _VERSION_AT) if newer else (BAD_CRC if "checksum" in str(error) else MALFORMED, 0)
        raise _bad(name, kind, position, str(error)) from error
    named = FileName(header.from_offset, header.to_offset).name
    if named != name:
        raise _bad(name, MISNAMED, _NAMED_AT, f"by its header this is {named}")
    if cluster_id is not None and header.cluster_id != cluster_id:
        raise _bad(name, FOREIGN, _CLUSTER_AT, f"it is of cluster {header.cluster_id}, not of {cluster_id}")
    return header


def read_span(
    span: FileName,
    names: Callable[[], Iterable[str]],
    read: Callable[[str], File],
) -> Iterator[Piece[File] | Problem]:
    """Every row of the offsets in `span` once, from verified files, and the problems of the files that were read.

    `names` lists the directory, `read` verifies a file. Both may raise OSError, and the latter BadFile. A file that was
    merged away meanwhile is found in the one that it went into.
    """
    reading = _SpanReading(span, read)
    for _ in range(_ATTEMPTS):
        yield from reading.attempt(overlapping(span, names()))
        if reading.complete:
            break
    yield from reading.lost()


class _SpanReading(Generic[File]):
    """How far a span is read."""

    def __init__(self, span: FileName, read: Callable[[str], File]) -> None:
        self.complete = False
        self._span = span
        self._read = read
        self._covered = span.from_offset
        self._used: list[FileName] = []
        self._gone: set[FileName] = set()

    def attempt(self, files: Iterable[FileName]) -> Iterator[Piece[File] | Problem]:
        """Go on with the files of a directory, up to one that is not there any more."""
        self.complete = False
        for file in files:
            if file.to_offset <= self._covered:
                continue
            try:
                whole = self._read(file.name)
            except FileNotFoundError:
                self._gone.add(file)
                return
            except (BadFile, OSError) as error:
                yield as_problem(file.name, error)
                continue
            if self._used and self._used[-1].from_offset < file.from_offset < self._covered:
                detail = f"offsets up to {self._covered} are in the file before it too"
                yield Problem(file.name, OVERLAP, _NAMED_AT, detail)
            yield Piece(whole, max(self._covered, file.from_offset), min(file.to_offset, self._span.to_offset))
            self._covered = file.to_offset
            self._used.append(file)
        self.complete = True

    def lost(self) -> Iterator[Problem]:
        """The files that went away and are in no file that was read."""
        for file in sorted(self._gone):
            if not any(within(file, other) for other in self._used):
                yield Problem(file.name, UNREADABLE, 0, "it went away after the directory was listed")


def within(file: FileName, other: FileName) -> bool:
    """Whether `other` holds all offsets of `file`."""
    return other.from_offset <= file.from_offset and file.to_offset <= other.to_offset


def as_problem(name: str, error: BadFile | OSError) -> Problem:
    """What to report of a file that could not be read."""
    return error.problem if isinstance(error, BadFile) else Problem(name, UNREADABLE, 0, str(error))


def overlapping(span: FileName, names: Iterable[str]) -> list[FileName]:
    """The files with offsets in `span`; of those that start at the same one, the widest first."""
    files = (file for name in names if (file := file_name(name)) is not None)
    inside = (file for file in files if file.from_offset < span.to_offset and file.to_offset > span.from_offset)
    return sorted(inside, key=lambda file: (file.from_offset, -file.to_offset))


def _bad(name: str, kind: str, position: int, detail: str) -> BadFile:
    return BadFile(Problem(name, kind, position, detail))
