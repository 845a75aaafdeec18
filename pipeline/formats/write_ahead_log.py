"""A member's write-ahead log, read by its documented format: which entries count, and what is torn or corrupt.

The log is the segments of a `wal/` directory in the order of their numbers (`log_segments` has their layout). An entry
frame with an index at or below an earlier one replaces that entry and everything after it. A restart marker replaces
everything before it: a snapshot was installed and the log goes on behind it.

A bad batch with nothing written after it was never acknowledged: `torn`, and legal. A bad batch with anything after it
was durable once: `corrupt`. Reading ends at either, and what stands before is given.

A log is read once, for it may be that of a running member, which is another one a moment later; what counts of it is
kept in memory. Two things happen to such a log. Segments that a snapshot makes superfluous go away: then it is read
once more, without them. And of two batches that are written while they are read, the later may be seen and the earlier
not: so a batch that seems to be missing before a later one is read once more.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.formats import log_segments
from pidkeeper.pipeline.formats.acceptance import Acceptance
from pidkeeper.pipeline.formats.log_segments import HEADER_BYTES, BadBatch, Batch, Frame, SegmentHeader, Window
from pidkeeper.pipeline.formats.problems import (
    CORRUPT,
    FOREIGN,
    MALFORMED,
    NEWER,
    NOT_READ,
    OFFSET_MISMATCH,
    TORN,
    UNREADABLE,
    BadFile,
    Problem,
)

_HARD_STATE_BYTES: Final = 5
_RECOVERING: Final = 4
"""The byte of a hard state that is 1 while the member has lost what it may have acknowledged."""
FIRST_INDEX: Final = 1


class LogDirectory(NamedTuple):
    """A `wal/` directory: the names in it, how to open one (may raise OSError), and whose it should be, if known."""

    names: Sequence[str]
    open_file: Callable[[str], BinaryIO]
    owner: tuple[str, uuid.UUID] | None = None


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that counts. `offset`: of its first record, None where it is not known."""

    index: int
    term: int
    payload: bytes
    segment: str
    position: int
    offset: int | None
    committed: bool


class SegmentSummary(msgspec.Struct, frozen=True):
    """What one segment holds: entry frames, replaced ones included (-1: none), and bytes up to its last good batch."""

    name: str
    cluster_id: str
    number: int
    first_sequence: int
    batches: int
    first_index: int
    last_index: int
    end: int


class RestartMarker(msgspec.Struct, frozen=True):
    """The log went on behind an installed snapshot of this index and term."""

    index: int
    term: int
    segment: str
    position: int


class LogSurvey(msgspec.Struct):
    """What a log holds. `commit_index` is the newest recorded; `frames` says how far the reading came.

    accepted: see `Acceptance.last`. entries: the frames of those that nothing later replaces. gone: segments that were
    listed and are not there any more.
    """

    segments: list[SegmentSummary] = []
    restarts: list[RestartMarker] = []
    problems: list[Problem] = []
    commit_index: int = 0
    accepted: dict[int, int] = {}
    last_index: int = 0
    frames: int = 0
    entries: list[Frame] = []
    gone: list[str] = []


def survey_log(log: LogDirectory) -> LogSurvey:
    """Read a log. Never raises for what the files hold."""
    gone: list[str] = []
    while True:
        survey = _read(log._replace(names=[name for name in log.names if name not in gone]))
        if not survey.gone:
            survey.gone = sorted(gone)
            return survey
        gone += survey.gone


def _read(log: LogDirectory) -> LogSurvey:
    survey = LogSurvey()
    scan, acceptance = _Scan(log, survey), Acceptance()
    for frame in scan.frames():
        if frame.type == log_segments.HARD_STATE:
            survey.commit_index = frame.index
            acceptance.hard_state(frame.term, recovering=frame.payload[_RECOVERING] != 0)
        elif frame.type == log_segments.RESTART:
            survey.restarts.append(RestartMarker(frame.index, frame.term, frame.segment, frame.position))
            survey.entries.clear()
            acceptance.restart(frame.index)
        elif frame.type == log_segments.ENTRY:
            if survey.entries:
                # Indexes follow one another without a gap.
                del survey.entries[max(frame.index - survey.entries[0].index, 0) :]
            survey.entries.append(frame)
            acceptance.entry(frame.term, frame.index)
        survey.frames += 1
    survey.accepted = acceptance.last
    survey.last_index = max(scan.next_index - 1, 0)
    if survey.segments and all(problem.kind in {TORN, FOREIGN} for problem in survey.problems):
        _check_end(survey, scan.snapshot)
    return survey


def read_entries(survey: LogSurvey, snapshots: Mapping[int, int]) -> Iterator[LogEntry | Problem]:
    """The entries that count, in order, and what is wrong with the number of their records.

    `snapshots`: of every whole snapshot beside the log, its index and its `next_offset`. The problems in `survey` are
    not repeated.
    """
    offset = _first_offset(survey, snapshots)
    for frame in survey.entries:
        committed = frame.index <= survey.commit_index
        yield LogEntry(frame.index, frame.term, frame.payload, frame.segment, frame.position, offset, committed)
        records = record_count(frame.payload)
        offset = None if offset is None or records is None else offset + records
        expected = snapshots.get(frame.index)
        if expected is not None and offset is not None and offset != expected:
            detail = f"the log has {offset} records up to entry {frame.index}, the snapshot there has {expected}"
            yield Problem(frame.segment, OFFSET_MISMATCH, frame.position, detail, frame.index)
        offset = offset if expected is None else expected


def record_count(payload: bytes) -> int | None:
    """How many records an entry holds, by the head of their msgpack array; None if that is none. 0 without payload."""
    if not payload:
        return 0
    if 0x90 <= payload[0] <= 0x9F:
        return payload[0] & 0x0F
    layout = {0xDC: ">H", 0xDD: ">I"}.get(payload[0])
    if layout is None or len(payload) <= struct.calcsize(layout):
        return None
    (count,) = struct.unpack_from(layout, payload, 1)
    return int(count)


def _check_end(survey: LogSurvey, snapshot: int) -> None:
    end = survey.segments[-1]
    for what, index in (("commit index", survey.commit_index), ("snapshot", snapshot)):
        if survey.last_index < index:
            detail = f"the log ends at {survey.last_index}, below the recorded {what} {index}"
            survey.problems.append(Problem(end.name, CORRUPT, end.end, detail, survey.last_index + 1))


def _first_offset(survey: LogSurvey, snapshots: Mapping[int, int]) -> int | None:
    """The offset of the first record of the first entry that counts: from the newest snapshot within reach."""
    if not survey.entries:
        return None
    first = survey.entries[0].index
    if first == FIRST_INDEX:
        return 0
    anchor = max((index for index in snapshots if index <= survey.last_index), default=0)
    if anchor < first - 1 or anchor not in snapshots:
        return None
    counts = [record_count(frame.payload) for frame in survey.entries[: anchor - first + 1]]
    return None if None in counts else snapshots[anchor] - sum(count or 0 for count in counts)


class _Scan:
    """One pass over the frames of a log, oldest first, up to the first thing that is torn or corrupt.

    It notes segments and problems in `survey`. Every frame is one that the log may hold at its place.
    """

    def __init__(self, log: LogDirectory, survey: LogSurvey) -> None:
        self.next_index = 0
        self.snapshot = 0
        self._log = log
        self._survey = survey
        self._names = sorted(name for name in log.names if log_segments.is_segment_name(name))
        self._foreign = sorted(set(log.names) - set(self._names))
        self._sequence = 0
        self._chain = 0
        self._stopped = False

    def frames(self) -> Iterator[Frame]:
        for name in self._foreign:
            self._note(name, FOREIGN, 0, "a log segment is not called so: it was left out")
        owner = self._log.owner
        following = self._header(self._names[0]) if self._names else None
        for position, name in enumerate(self._names):
            header = following
            if self._stopped or header is None:
                self._leave_out(name, header)
                continue
            last = position + 1 == len(self._names)
            following = None if last else self._header(self._names[position + 1])
            if position == 0:
                self._sequence, self._chain, self.next_index = header.first_sequence, header.chain, header.first_index
            owner = owner or _owner(header)
            if _owner(header) == owner:
                yield from self._segment(header, following, last)
            else:
                found, due = ("cluster {} and directory {}".format(*one) for one in (_owner(header), owner))
                self._stop(name, FOREIGN, 12, f"it is of {found}, not of {due}")

    def _header(self, name: str) -> SegmentHeader | None:
        try:
            with self._log.open_file(name) as file:
                return log_segments.read_header(name, Window(file))
        except BadFile as bad:
            self._survey.problems.append(bad.problem)
        except FileNotFoundError:
            self._survey.gone.append(name)
        except OSError as error:
            self._note(name, UNREADABLE, 0, str(error))
        return None

    def _segment(self, header: SegmentHeader, following: SegmentHeader | None, last: bool) -> Iterator[Frame]:
        name = segment_name(header)
        count, first_index, last_index, end = 0, -1, -1, HEADER_BYTES
        try:
            with self._log.open_file(name) as file:
                for batch in self._batches(header, following, last, Window(file)):
                    for frame in batch.frames:
                        if self._refuses(frame):
                            return
                        if frame.type == log_segments.ENTRY:
                            first_index, last_index = first_index if first_index >= 0 else frame.index, frame.index
                        yield frame
                    count, end = count + 1, batch.end
        except FileNotFoundError:
            self._survey.gone.append(name)
        except OSError as error:
            self._stop(name, UNREADABLE, end, str(error))
        finally:
            self._survey.segments.append(
                SegmentSummary(
                    name, header.cluster_id, header.number, header.first_sequence, count, first_index, last_index, end
                )
            )

    def _batches(
        self, header: SegmentHeader, following: SegmentHeader | None, last: bool, window: Window
    ) -> Iterator[Batch]:
        position, name = HEADER_BYTES, segment_name(header)
        # Once the next segment says that all is read, the rest is dead space.
        while following is None or (self._sequence, self._chain) != (following.first_sequence, following.chain):
            due = (name, window, position, self._sequence, header.seed, self._chain)
            try:
                batch = log_segments.read_batch(*due)
            except BadBatch as bad:
                later = log_segments.later_write(window, position, bad, header.seed) if last else None
                if later is None:
                    self._judge(header, last, position, bad)
                    return
                # What was written later is there: so this is too by now, if it ever was.
                window.forget()
                try:
                    batch = log_segments.read_batch(*due)
                except BadBatch as again:
                    self._stop(name, CORRUPT, again.position, f"{again.reason}, and byte {later} was written later")
                    return
            if batch is None:
                break
            yield batch
            if position == HEADER_BYTES and self.next_index != header.first_index:
                self._stop(name, CORRUPT, position, f"its entries start at log index {header.first_index}")
                return
            position, self._sequence, self._chain = batch.end, self._sequence + 1, batch.chain
        if position == HEADER_BYTES:
            self._stop(name, CORRUPT, position, "the batch that the segment was made with is missing")
        elif following is not None and (self._sequence, self._chain) != (following.first_sequence, following.chain):
            detail = f"it ends with batch {self._sequence - 1}, {segment_name(following)} starts with batch "
            self._stop(name, CORRUPT, position, f"{detail}{following.first_sequence}: batches are missing")
        elif last and (size := log_segments.file_bytes(window, position)) < header.size:
            self._stop(name, TORN, position, f"the file has {size} of its {header.size} bytes")

    def _judge(self, header: SegmentHeader, last: bool, position: int, bad: BadBatch) -> None:
        """Of a bad batch in a segment before the last, or with nothing written later."""
        name = segment_name(header)
        if not last:
            self._stop(name, CORRUPT, bad.position, f"{bad.reason}, and a later segment is there")
        elif position == HEADER_BYTES:
            self._stop(name, CORRUPT, bad.position, f"{bad.reason}, in the batch that the segment was made with")
        else:
            self._stop(name, TORN, position, f"{bad.reason} (byte {bad.position})")

    def _refuses(self, frame: Frame) -> bool:
        """Follow the log over one frame. Whether no log may hold it here; then reading has stopped."""
        detail = ""
        if frame.type == log_segments.ENTRY:
            if frame.index > self.next_index:
                detail = f"entry {frame.index} follows entry {self.next_index - 1}: there is a gap"
            elif frame.index <= self.snapshot:
                detail = f"entry {frame.index} is below the snapshot at {self.snapshot}"
        elif frame.type == log_segments.HARD_STATE:
            if len(frame.payload) != _HARD_STATE_BYTES:
                detail = f"a hard state of {len(frame.payload)} bytes where {_HARD_STATE_BYTES} were due"
        elif frame.type not in {log_segments.RESTART, log_segments.BASE, log_segments.CLOSE}:
            self._stop(frame.segment, NEWER, frame.position, f"unknown frame type {frame.type}")
            return True
        if detail:
            self._stop(frame.segment, MALFORMED, frame.position, detail)
            return True
        if frame.type in {log_segments.RESTART, log_segments.BASE}:
            self.snapshot = frame.index
        if frame.type in {log_segments.RESTART, log_segments.ENTRY}:
            self.next_index = frame.index + 1
        return False

    def _stop(self, name: str, kind: str, position: int, detail: str) -> None:
        self._note(name, kind, position, detail)
        self._stopped = True

    def _note(self, name: str, kind: str, position: int, detail: str) -> None:
        self._survey.problems.append(Problem(name, kind, position, detail, self.next_index or None))

    def _leave_out(self, name: str, header: SegmentHeader | None) -> None:
        """Pass over a segment; what is wrong with a header that was looked at is noted already."""
        if self._stopped or header is not None:
            self._note(name, NOT_READ, 0, "reading ended before this segment")
        self._stopped = True


def segment_name(header: SegmentHeader) -> str:
    """The name of a segment's file."""
    return f"{header.number:016d}-{header.first_index:020d}.wal"


def _owner(header: SegmentHeader) -> tuple[str, uuid.UUID]:
    return header.cluster_id, header.directory_id
