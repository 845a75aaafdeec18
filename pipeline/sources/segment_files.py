"""Segments of Kafka: where they are, whose they are, and how reading them is shared out. Needs no Spark."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

import msgspec

from pipeline.formats.log_segment import ByteRange, SegmentReader
from pipeline.formats.record_batch import Chunk, Problem
from pipeline.formats.segment_ranges import RANGE_BYTES, split

SUFFIX: Final = ".log"
MAX_INDEX_BYTES: Final = 10 << 20
"""Kafka's default `segment.index.bytes`, to which it preallocates the index of the active segment."""
MAX_META_BYTES: Final = 64 << 10
PARTS_PER_TASK: Final = 256
"""A task has little segments for as long as all of them have RANGE_BYTES, but not more than so many."""
_SCHEME: Final = "://"
_WILD: Final = "*?["
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})")
_SEGMENT_NAME: Final = re.compile(r"\d{20}")
_NODE_ID: Final = re.compile(r"^(?:node|broker)\.id=(\d+)\s*$", re.MULTILINE)


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment: `topic`, `partition` and `base_offset` are None where its path does not say them.

    `root`: a URI of its file system, empty on this machine. `size` is None if `why_unreadable` says why.
    """

    path: str
    root: str
    member: str
    topic: str | None
    partition: int | None
    base_offset: int | None
    size: int | None
    why_unreadable: str = ""


class Part(msgspec.Struct, frozen=True):
    """A range of a segment; `range` is None if the segment cannot be read."""

    file: SegmentFile
    range: ByteRange | None


def list_segments(paths: Iterable[str]) -> list[SegmentFile]:
    """The segments at files, directories (all below them) and globs, each once, sorted by path.

    A path with a scheme is looked up by pyarrow; any other is on this machine. A file that is named outright is taken
    under whatever name. Raises FileNotFoundError if there is nothing at a path.
    """
    found = {place for path in paths for place in (_remote_at(path) if _SCHEME in path else _local_at(path))}
    members: dict[tuple[str, str], str] = {}
    return [_describe(root, path, members) for root, path in sorted(found)]


def plan(
    files: Sequence[SegmentFile],
    *,
    whole: bool = False,
    range_bytes: int = RANGE_BYTES,
    since: Mapping[str, int] | None = None,
) -> list[list[Part]]:
    """What each task reads: about `range_bytes`, a part of a large segment or many small ones. `whole`: no parts.

    `since`: by path, the start of a batch; what stands before it is left out.
    """
    tasks: list[list[Part]] = []
    room = 0
    starts = since or {}
    parts = (part for file in files for part in _parts(file, range_bytes, whole=whole))
    for part in (kept for part in parts if (kept := _from(part, starts.get(part.file.path, 0))) is not None):
        size = 0 if part.range is None else part.range.end - part.range.start
        if not tasks or size > room or len(tasks[-1]) == PARTS_PER_TASK:
            tasks.append([])
            room = range_bytes
        tasks[-1].append(part)
        room -= size
    return tasks


def read_part(part: Part) -> Iterator[Chunk]:
    """Batches and problems; a file that cannot be read, or no further, is a problem of kind "unreadable"."""
    file = part.file
    if part.range is None or file.size is None:
        yield Chunk(problems=[Problem("unreadable", 0, file.why_unreadable)])
        return
    try:
        with open_file(file.root, file.path) as opened:
            yield from SegmentReader(opened, file.size, base_offset=file.base_offset, part=part.range).chunks()
    except (OSError, EOFError) as error:
        yield Chunk(problems=[Problem("unreadable", part.range.start, str(error))])


def open_file(root: str, path: str) -> BinaryIO:
    """Raises OSError."""
    if not root:
        return Path(path).open("rb")
    file: BinaryIO = _file_system(root)[0].open_input_file(path)
    return file


def _from(part: Part, start: int) -> Part | None:
    """What of a part lies behind `start`; None if nothing does."""
    if part.range is None or part.range.start >= start:
        return part
    found = part.range
    return Part(part.file, ByteRange(start, found.end, found.next_offset)) if start < found.end else None


def _parts(file: SegmentFile, range_bytes: int, *, whole: bool) -> list[Part]:
    if file.size is None:
        return [Part(file, None)]
    if whole or file.size <= range_bytes:
        return [Part(file, ByteRange(0, file.size))]
    try:
        with open_file(file.root, file.path) as opened:
            ranges = split(
                opened, file.size, base_offset=file.base_offset, index=_read_index(file), range_bytes=range_bytes
            )
    except (OSError, EOFError):
        ranges = [ByteRange(0, file.size)]  # Whoever reads it says what is wrong.
    return [Part(file, each) for each in ranges]


def _read_index(file: SegmentFile) -> bytes:
    try:
        with open_file(file.root, str(PurePosixPath(file.path).with_suffix(".index"))) as index:
            return index.read(MAX_INDEX_BYTES)
    except OSError:
        return b""


# Whose a segment is.


def _describe(root: str, path: str, members: dict[tuple[str, str], str]) -> SegmentFile:
    pure = PurePosixPath(path)
    folder = _PARTITION_FOLDER.fullmatch(pure.parent.name)
    logs = str(pure.parent.parent)
    if (root, logs) not in members:
        members[root, logs] = _member(root, logs)
    size, why = _size(root, path)
    return SegmentFile(
        path=path,
        root=root,
        member=members[root, logs],
        topic=folder["topic"] if folder else None,
        partition=int(folder["partition"]) if folder else None,
        base_offset=int(pure.stem) if _SEGMENT_NAME.fullmatch(pure.stem) else None,
        size=size,
        why_unreadable=why,
    )


def _member(root: str, logs: str) -> str:
    """The node id of the broker whose log directory this is, else the directory."""
    try:
        with open_file(root, str(PurePosixPath(logs) / "meta.properties")) as file:
            found = _NODE_ID.search(file.read(MAX_META_BYTES).decode(errors="replace"))
    except OSError:
        found = None
    return found[1] if found else logs


def _size(root: str, path: str) -> tuple[int | None, str]:
    try:
        with open_file(root, path) as file:
            return file.seek(0, os.SEEK_END), ""
    except OSError as error:
        return None, str(error)


# Looking up paths.


def uri(file: SegmentFile) -> str:
    """What `list_segments` finds this file by."""
    if not file.root:
        return file.path
    return file.root.removesuffix(_file_system(file.root)[1]) + file.path


def _is_glob(path: str) -> bool:
    return any(sign in path for sign in _WILD)


def _local_at(path: str) -> list[tuple[str, str]]:
    exact = Path(path).absolute()
    if exact.exists():
        matches = [exact]
    elif _is_glob(path):
        matches = list(Path(exact.anchor).glob(str(exact.relative_to(exact.anchor))))
    else:
        raise FileNotFoundError(f"there is nothing at {path}: name a segment, a directory above segments, or a glob")
    found: list[tuple[str, str]] = []
    for match in matches:
        if match.is_dir():
            found += [("", str(file)) for file in match.rglob(f"*{SUFFIX}") if file.is_file()]
        elif match.name.endswith(SUFFIX) or match == exact:
            found.append(("", str(match)))
    return found


def _file_system(uri: str) -> tuple[Any, str]:
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(uri)
    return system, path


def _remote_at(uri: str) -> list[tuple[str, str]]:
    from pyarrow import fs

    wild = min((uri.index(sign) for sign in _WILD if sign in uri), default=len(uri))
    base = uri if wild == len(uri) else uri[: uri.rindex("/", 0, wild)]
    system, path = _file_system(base)
    if system.get_file_info(path).is_file:
        return [(base, path)]
    pattern = path + uri[len(base) :]
    files = [each.path for each in system.get_file_info(fs.FileSelector(path, recursive=True)) if each.is_file]
    named = [each for each in files if each.endswith(SUFFIX)]
    matched = named if base == uri else [each for each in named if _matches(each, pattern)]
    return [(base, each) for each in matched]


def _matches(path: str, pattern: str) -> bool:
    return fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, f"{pattern}/*")
