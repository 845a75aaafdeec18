"""Segments of Kafka: where they are, whose they are, and how reading them is shared out. Needs no Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from pidkeeper.pipeline.files.finding import Found, find_files
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.log_segment import ByteRange, SegmentReader
from pidkeeper.pipeline.formats.record_batch import Chunk, Problem
from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES, split

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

    `stamp` is another one whenever it was written.
    """

    location: Location
    member: str
    topic: str | None
    partition: int | None
    base_offset: int | None
    size: int
    stamp: str = ""

    @property
    def path(self) -> str:
        """Where it is, for the eye."""
        return self.location.path


class Part(msgspec.Struct, frozen=True):
    """A range of a segment."""

    file: SegmentFile
    range: ByteRange


def list_segments(paths: Iterable[str]) -> list[SegmentFile]:
    """The segments at files, directories (all below them) and globs, each once, sorted by path.

    A file that is named outright is taken under whatever name. Raises FileNotFoundError if there is nothing at a path.
    """
    members: dict[Location, str] = {}
    found = {one.location: one for path in paths for one in find_files(path, SUFFIX)}
    return [_describe(one, members) for _, one in sorted(found.items())]


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
        size = part.range.end - part.range.start
        if not tasks or size > room or len(tasks[-1]) == PARTS_PER_TASK:
            tasks.append([])
            room = range_bytes
        tasks[-1].append(part)
        room -= size
    return tasks


def read_part(part: Part) -> Iterator[Chunk]:
    """Batches and problems; a file that cannot be read, or no further, is a problem of kind "unreadable"."""
    file = part.file
    try:
        with file.location.open() as opened:
            yield from SegmentReader(opened, file.size, base_offset=file.base_offset, part=part.range).chunks()
    except (OSError, EOFError) as error:
        yield Chunk(problems=[Problem("unreadable", part.range.start, str(error))])


def _from(part: Part, start: int) -> Part | None:
    """What of a part lies behind `start`; None if nothing does."""
    if part.range.start >= start:
        return part
    found = part.range
    return Part(part.file, ByteRange(start, found.end, found.next_offset)) if start < found.end else None


def _parts(file: SegmentFile, range_bytes: int, *, whole: bool) -> list[Part]:
    if whole or file.size <= range_bytes:
        return [Part(file, ByteRange(0, file.size))]
    try:
        with file.location.open() as opened:
            ranges = split(
                opened, file.size, base_offset=file.base_offset, index=_read_index(file), range_bytes=range_bytes
            )
    except (OSError, EOFError):
        ranges = [ByteRange(0, file.size)]  # Whoever reads it says what is wrong.
    return [Part(file, each) for each in ranges]


def _read_index(file: SegmentFile) -> bytes:
    try:
        return (file.location.parent / f"{file.location.name.removesuffix(SUFFIX)}.index").read(MAX_INDEX_BYTES)
    except OSError:
        return b""


# Whose a segment is.


def _describe(found: Found, members: dict[Location, str]) -> SegmentFile:
    place = found.location
    folder, stem = _PARTITION_FOLDER.fullmatch(place.parent.name), place.name.removesuffix(SUFFIX)
    logs = place.parent.parent
    if logs not in members:
        members[logs] = _member(logs)
    return SegmentFile(
        location=place,
        member=members[logs],
        topic=folder["topic"] if folder else None,
        partition=int(folder["partition"]) if folder else None,
        base_offset=int(stem) if _SEGMENT_NAME.fullmatch(stem) else None,
        size=found.size,
        stamp=found.stamp,
    )


def _member(logs: Location) -> str:
    """The node id of the broker whose log directory this is, else the directory."""
    try:
        found = _NODE_ID.search((logs / "meta.properties").read(MAX_META_BYTES).decode(errors="replace"))
    except OSError:
        found = None
    return found[1] if found else logs.path
