"""Segments of Kafka: where they are, whose they are, and how reading them is shared out. Needs no Spark."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from pidkeeper.pipeline.files.finding import Found, find_files
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.log_segment import ByteRange, SegmentReader
from pidkeeper.pipeline.formats.record_batch import HEADER_BYTES, PREFIX_BYTES, START, Chunk, Problem
from pidkeeper.pipeline.formats.segment_ranges import RANGE_BYTES, split

SUFFIX: Final = ".log"
MAX_INDEX_BYTES: Final = 10 << 20
"""Kafka's default `segment.index.bytes`, to which it preallocates the index of the active segment."""
MAX_META_BYTES: Final = 64 << 10
PARTS_PER_TASK: Final = 256
"""A task has little segments for as long as all of them have RANGE_BYTES, but not more than so many."""
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})")
_SEGMENT_NAME: Final = re.compile(r"\d{20}")
T = TypeVar("T")
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

    A file that is named outright is taken under whatever name. The last segment of a folder is left out while it is
    empty: a broker makes the one that it will write to when all before it are full or expired. Raises
    FileNotFoundError if there is nothing at a path.
    """
    members: dict[Location, str] = {}
    found = {one.location: one for path in paths for one in find_files(path, SUFFIX)}
    files = [_describe(one, members) for _, one in sorted(found.items())]
    active = {file.location.parent: file for file in files if file.base_offset is not None}
    return [file for file in files if file.size or active.get(file.location.parent) is not file]


def plan(files: Sequence[SegmentFile], *, whole: bool = False, range_bytes: int = RANGE_BYTES) -> list[list[Part]]:
    """What each task reads: about `range_bytes`, a part of a large segment or many small ones. `whole`: no parts."""
    ranges = ((file, [ByteRange(0, file.size)] if whole else ranges_of(file, range_bytes)) for file in files)
    parts = (Part(file, each) for file, of_file in ranges for each in of_file)
    return share_out(parts, lambda part: part.range, range_bytes)


def share_out(parts: Iterable[T], range_of: Callable[[T], ByteRange], range_bytes: int = RANGE_BYTES) -> list[list[T]]:
    """Parts in their order, some `range_bytes` of them in a task."""
    tasks: list[list[T]] = []
    room = 0
    for part in parts:
        size = range_of(part).end - range_of(part).start
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


def read_behind(part: Part) -> Iterator[Chunk]:
    """The same behind the first batch of the part, which an earlier audit has read."""
    chunks = read_part(part)
    first = next(chunks, Chunk())
    if first.positions[:1].tolist() != [part.range.start]:
        first = Chunk(problems=[Problem("unreadable", part.range.start, "the file was written anew meanwhile")])
        chunks = iter(())
    del first.headers[:HEADER_BYTES], first.positions[:1]
    yield first
    yield from chunks


def has_batch(file: SegmentFile, position: int, end: int, last_offset: int, crc: int) -> bool:
    """Whether the header of a batch is at `position` that goes to `end`, with this last offset and CRC."""
    try:
        with file.location.open() as opened:
            opened.seek(position)
            base_offset, length, _, _, found, _, delta = START.unpack(opened.read(START.size))
    except (OSError, struct.error):
        return False
    return (position + PREFIX_BYTES + length, base_offset + delta, found) == (end, last_offset, crc)


def ranges_of(file: SegmentFile, range_bytes: int = RANGE_BYTES) -> list[ByteRange]:
    """The parts in which a segment is read. That it cannot be read is for whoever does so to say."""
    if file.size <= range_bytes:
        return [ByteRange(0, file.size)]
    try:
        with file.location.open() as opened:
            return split(
                opened, file.size, base_offset=file.base_offset, index=_read_index(file), range_bytes=range_bytes
            )
    except (OSError, EOFError):
        return [ByteRange(0, file.size)]


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
