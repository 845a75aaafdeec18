"""The highest producer ID in any file, committed or not: what a quorum that starts anew has to stay above.

After a disaster it is better to burn IDs than to hand one out twice, so everything counts that can be read at all: logs
without regard to what was committed, rows of archive files whose checksum is wrong, batches behind damage. What cannot
be read is said. Needs neither Spark nor numpy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

import msgspec

from pidkeeper.pipeline.files.folders import by_folder
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.archive import MAX_FILE_BYTES, as_problem, file_name, read_whole
from pidkeeper.pipeline.formats.log_records import RecordRow, record_rows
from pidkeeper.pipeline.formats.problems import FOREIGN, UNREADABLE, BadFile, Problem
from pidkeeper.pipeline.formats.write_ahead_log import LogDirectory, LogEntry, read_entries, survey_log
from pidkeeper.pipeline.paths import ARCHIVE_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, AuditPaths, LoadingError
from pidkeeper.pipeline.segments.segment_files import SegmentFile, list_segments, plan, read_part
from pidkeeper.protocol.ids import MAX_BLOCK_SIZE, MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import HEADER_BYTES, ROW_BYTES, decode_row
from pidkeeper.snapshots.snapshot_format import MAX_SNAPSHOT_BYTES, SnapshotError, decode_snapshot

_IDS: Final = struct.Struct(f">qq{ROW_BYTES - 16}x")
"""The first and the last ID of an archive row; what the header says of them is not believed."""
SUSPICIOUS_LEAP: Final = 1_000_000_000
"""A damaged file that is so far above everything verified holds a wrong bit rather than an ID."""


class Seen(msgspec.Struct):
    """One kind of evidence: how many files, the highest ID in them (null without one), and the file that shows it."""

    kind: str
    files: int = 0
    highest: int | None = None
    file: str | None = None


class Unread(msgspec.Struct, frozen=True):
    """What could not be read: from this byte on, unless more of the file is counted under `damaged archive files`."""

    file: str
    position: int
    kind: str
    detail: str


class Floor(msgspec.Struct):
    """`floor`: the number to raise to, null without any ID. `warning`: why to look twice, empty if all is well."""

    highest: int | None
    margin: int
    floor: int | None
    command: str | None
    warning: str
    evidence: list[Seen]
    unread: list[Unread]


def find_floor(paths: AuditPaths, margin: int) -> Floor:
    """Look through everything. Raises LoadingError if a path cannot be listed."""
    search = _Search()
    try:
        for suffix, look in (
            (ARCHIVE_SUFFIX, search.archive),
            (LOG_SUFFIX, search.log),
            (SNAPSHOT_SUFFIX, search.snapshots),
        ):
            for folder, found in by_folder(paths.having(suffix), suffix).items():
                look(folder, [one.location.name for one in found])
        for segment in list_segments(paths.segments) if paths.segments else []:
            search.segment(segment)
    except OSError as error:
        raise LoadingError(str(error)) from error
    return search.result(margin)


class _Search:
    """What was seen so far."""

    def __init__(self) -> None:
        kinds = ("archive files", "damaged archive files", "logs", "snapshots", "Kafka segments")
        self._seen = {kind: Seen(kind) for kind in kinds}
        self._unread: list[Unread] = []

    def archive(self, folder: Location, names: list[str]) -> None:
        """Every file, whether a wider one has its rows or not."""
        for name in names:
            path = str(folder / name)
            try:
                data = (folder / name).read(MAX_FILE_BYTES + 1)
            except OSError as error:
                self._note(folder, as_problem(name, error))
                continue
            try:
                whole = read_whole(name, data)
            except BadFile as bad:
                self._note(folder, bad.problem)
                if bad.problem.kind != FOREIGN:
                    self._add(
                        "damaged archive files", path, max((one.last for one in _plausible(name, data)), default=-1)
                    )
                continue
            self._add(
                "archive files", path, max([whole.header.last_id, *(last for _, last in _IDS.iter_unpack(whole.rows))])
            )

    def log(self, folder: Location, names: list[str]) -> None:
        """All entries that nothing replaced; with damage, of every segment by itself what precedes it in there."""
        whole = LogDirectory(names, _opener(folder))
        survey = survey_log(whole)
        for problem in survey.problems:
            self._note(folder, problem)
        parts = [whole]
        if survey.problems:
            parts += [LogDirectory([name], _opener(folder)) for name in names]
        self._add_files("logs", len(names))
        for part in parts:
            for row in self._rows(part, folder, say=part is whole):
                self._raise("logs", str(folder / row.segment), _highest(row))

    def snapshots(self, folder: Location, names: list[str]) -> None:
        """The next ID, and those of transactions."""
        for name in names:
            try:
                image = decode_snapshot((folder / name).read(MAX_SNAPSHOT_BYTES + 1), name, None)
            except (SnapshotError, OSError) as error:
                self._note(folder, Problem(name, UNREADABLE, 0, str(error)))
                continue
            ids = [image.next_producer_id - 1, *(one.producer_id for one in image.transactions)]
            self._add("snapshots", str(folder / name), max(ids))

    def segment(self, file: SegmentFile) -> None:
        """The producers of all good batches."""
        highest = -1
        for part in (part for task in plan([file], whole=True) for part in task):
            for chunk in read_part(part):
                highest = max(highest, max(chunk.column("producer_id"), default=-1))
                for problem in chunk.problems:
                    self._unread.append(Unread(file.path, problem.position, problem.kind, problem.detail))
        self._add("Kafka segments", file.path, highest)

    def result(self, margin: int) -> Floor:
        """The sum of it all."""
        verified = [one.highest for kind, one in self._seen.items() if kind != "damaged archive files"]
        damaged = self._seen["damaged archive files"].highest
        sure = max((value for value in verified if value is not None), default=-1)
        highest = max(sure, -1 if damaged is None else damaged)
        floor = min(highest + 1 + margin, MAX_PRODUCER_ID)
        warning = ""
        if damaged is not None and damaged - sure > SUSPICIOUS_LEAP:
            warning = (
                f"ID {damaged} stands in a damaged file and is far above {sure}, the highest that is verified: it may "
                f"be a wrong bit. Without it the floor would be {sure + 1 + margin}"
            )
        return Floor(
            highest=None if highest < 0 else highest,
            margin=margin,
            floor=None if highest < 0 else floor,
            command=None if highest < 0 else _command(floor),
            warning=warning,
            evidence=list(self._seen.values()),
            unread=self._unread,
        )

    def _rows(self, log: LogDirectory, folder: Location, *, say: bool) -> Iterator[RecordRow]:
        for item in read_entries(survey_log(log), {}):
            for row in record_rows(item) if isinstance(item, LogEntry) else [item]:
                if isinstance(row, RecordRow):
                    yield row
                elif say:
                    self._note(folder, row)

    def _add(self, kind: str, path: str, highest: int) -> None:
        self._add_files(kind, 1)
        self._raise(kind, path, highest)

    def _add_files(self, kind: str, count: int) -> None:
        self._seen[kind].files += count

    def _raise(self, kind: str, path: str, highest: int) -> None:
        seen = self._seen[kind]
        if highest >= 0 and (seen.highest is None or highest > seen.highest):
            seen.highest, seen.file = highest, path

    def _note(self, folder: Location, problem: Problem) -> None:
        self._unread.append(Unread(str(folder / problem.file), problem.position, problem.kind, problem.detail))


def _highest(row: RecordRow) -> int:
    following = -1 if row.next_producer_id is None else row.next_producer_id - 1
    return max(following, *(-1 if value is None else value for value in (row.last_id, row.producer_id)))


def _plausible(name: str, data: bytes) -> Iterator[AllocatedBlock]:
    """The rows of a damaged file that may be blocks: within what the file is named for, of a size that is allowed."""
    covers = file_name(name)
    for at in range(HEADER_BYTES, len(data) - ROW_BYTES + 1, ROW_BYTES):
        row = _row(data[at : at + ROW_BYTES])
        if row is None or row.last - row.first >= MAX_BLOCK_SIZE:
            continue
        if covers is None or covers.from_offset <= row.offset < covers.to_offset:
            yield row


def _opener(folder: Location) -> Callable[[str], BinaryIO]:
    return lambda name: (folder / name).open()


def _row(data: bytes) -> AllocatedBlock | None:
    try:
        return decode_row(data)
    except ValueError:
        return None


def _command(floor: int) -> str:
    """What raises the floor of a new quorum, whose IDs begin at 0."""
    force = " --force --token-file OPERATORS-TOKEN" if floor > MAX_FLOOR_JUMP else ""
    return f"pidkeeper ids raise-floor {floor}{force}"
