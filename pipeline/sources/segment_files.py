"""Segments of Kafka: where they are, whose they are, and how reading them is shared out. Needs no Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from pidkeeper.pipeline.formats.log_segment import ByteRange, SegmentReader
from pidkeeper.pipeline.formats.record_batch import Chunk, Problem
from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES, split
from pidkeeper.pipeline.sources.files import FilePlace, find_files, join, open_file, parent

SUFFIX: Final = ".log"
MAX_INDEX_BYTES: Final = 10 << 20
"""Kafka's default `segment.index.bytes`, to which it preallocates the index of the active segment."""
MAX_META_BYTES: Final = 64 << 10
PARTS_PER_TASK: Final = 256
"""A task has little segments for as long as all of them have RANGE_BYTES, but not more than so many."""
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})")
_SEGMENT_NAME: Final = re.compile(r"\d{20}")
_NODE_ID: Final = re.compile(r"^(?:node|broker)\.id=(\d+)\s*$", re.MULTILINE)


class SegmentFile(msgspec.Struct, frozen=True):
    """A segment: `topic`, `partition` and `base_offset` are None where its path does not say them.

    `root` and `path` as in `pipeline.sources.files`. `size` is None if `why_unreadable` says why.
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

    A file that is named outright is taken under whatever name. Raises FileNotFoundError if there is nothing at a path.
    """
    return describe_segments(file for path in paths for file in find_files(path, SUFFIX))


def describe_segments(files: Iterable[FilePlace]) -> list[SegmentFile]:
    """The same of files that were found."""
    members: dict[tuple[str, str], str] = {}
    return [_describe(root, path, members) for root, path in sorted(set(files))]


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
        with open_file(file.root, f"{file.path.removesuffix(SUFFIX)}.index") as index:
            return index.read(MAX_INDEX_BYTES)
    except OSError:
        return b""


# Whose a segment is.


def _describe(root: str, path: str, members: dict[tuple[str, str], str]) -> SegmentFile:
    pure = PurePosixPath(path)
    folder = _PARTITION_FOLDER.fullmatch(pure.parent.name)
    logs = parent(parent(path))
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
        with open_file(root, join(logs, "meta.properties")) as file:
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
