"""Reading the log back: what is whole, what was torn by a crash, what is corrupt.

A bad batch with nothing written after it was never acknowledged: it is cut off, and the member counts as recovering,
because a batch whose sync did return looks the same if the disk lost it. A bad batch with anything after it was durable
once, so the log is refused (Alagappan et al., "Protocol-Aware Recovery", FAST'18: cutting there would lose committed
entries without a word).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import NamedTuple

import msgspec

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.directory import DirectoryMeta
from pidkeeper.controller.storage.errors import LogCorruption
from pidkeeper.controller.storage.frames import BadBatch, Batch, Frame
from pidkeeper.controller.storage.segment import (
    BROKEN_SUFFIX,
    HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    index_in_name,
    segment_names,
)
from pidkeeper.disk.files import Files
from pidkeeper.snapshots.snapshot_id import SnapshotId

NO_SNAPSHOT = SnapshotId(0, 0)


class TruncatedTail(msgspec.Struct, frozen=True):
    """What was cut off the end: from byte `offset` of `segment`, `size` bytes, kept in the file `copy` beside it."""

    segment: str
    offset: int
    copy: str
    size: int
    reason: str


class RecoveredLog(msgspec.Struct):
    """What the log holds.

    `snapshot`: the newest restart marker, (0, 0) if there is none. `entries`: contiguous, possibly from before the
    newest snapshot on. `truncated`: what a crash left torn. `clean`: the log was closed on purpose.
    """

    hard_state: HardState
    snapshot: SnapshotId
    entries: list[Entry]
    truncated: TruncatedTail | None
    clean: bool


class ReadSegment(NamedTuple):
    """A segment as read: `highest`, the index of the last entry in it; `end`, the offset after its last batch."""

    header: SegmentHeader
    highest: int
    end: int


class LogReader:
    """One pass over the segments in `path`; `batches` drives it, the attributes say how far it came.

    `identity`: whose log it must be; None reads anyone's. Attributes after the pass: `segments`, `tail` (bytes of the
    last one), `sequence` and `chain` for the next batch, `next_index`, `truncated`.
    """

    def __init__(self, files: Files, path: PurePath, identity: DirectoryMeta | None) -> None:
        self._files = files
        self._path = path
        self._identity = identity
        self.names = segment_names(files, path)
        self.segments: list[ReadSegment] = []
        self.tail = b""
        self.sequence = 1
        self.chain = 0
        self.next_index = 1
        self.truncated: TruncatedTail | None = None

    def batches(self) -> Iterator[tuple[SegmentHeader, Batch]]:
        """Every whole batch in order. Raises LogCorruption at the first thing that should not be as it is."""
        following = self._header(self.names[0]) if self.names else None
        for position in range(len(self.names)):
            header = following
            assert header is not None, f"segment {position} of {len(self.names)} has no header"
            following = self._header(self.names[position + 1]) if position + 1 < len(self.names) else None
            if not self.segments:
                self.sequence, self.chain, self.next_index = header.first_sequence, header.chain, header.first_index
            yield from self._segment(header, following)

    def corrupt(self, segment: str, offset: int, reason: str) -> LogCorruption:
        """The error that refuses this log at this place."""
        return LogCorruption(segment, offset, self.next_index, reason)

    def _header(self, name: str) -> SegmentHeader:
        handle = self._files.open(self._path / name)
        try:
            data = self._files.pread(handle, HEADER_BYTES, 0)
        finally:
            self._files.close(handle)
        try:
            header = decode_segment_header(data)
            self._check_identity(header)
            if header.name != name:
                raise ValueError(f"by its header this is segment {header.name}")
        except ValueError as error:
            raise LogCorruption(name, 0, index_in_name(name), str(error)) from error
        return header

    def _check_identity(self, header: SegmentHeader) -> None:
        expected = self._identity
        if expected and header.cluster_id != expected.cluster_id:
            raise ValueError(f"it was written for cluster {header.cluster_id}, not for {expected.cluster_id}")
        if expected and header.directory_id != expected.directory_id:
            raise ValueError(
                f"it was written for the directory with id {header.directory_id}, not for {expected.directory_id}"
            )

    def _segment(self, header: SegmentHeader, following: SegmentHeader | None) -> Iterator[tuple[SegmentHeader, Batch]]:
        data = self._files.read_bytes(self._path / header.name)
        position, highest, seed = HEADER_BYTES, 0, header.seed
        # Once the next segment says that all is read, the rest is dead space.
        while following is None or (self.sequence, self.chain) != (following.first_sequence, following.chain):
            try:
                batch = frames.decode_batch(data, position, self.sequence, seed, self.chain)
            except BadBatch as bad:
                self._judge(header, following, data, position, bad)
                break
            if batch is None:
                break
            highest = self._follow(batch) or highest
            if position == HEADER_BYTES and self.next_index != header.first_index:
                raise self.corrupt(header.name, position, f"its entries start at log index {header.first_index}")
            position, self.sequence, self.chain = batch.end, batch.sequence + 1, batch.chain
            yield header, batch
        if position == HEADER_BYTES:
            raise self.corrupt(header.name, position, "the batch that the segment was made with is missing")
        self._finish(header, following, data, position)
        self.segments.append(ReadSegment(header, highest, position))
        self.tail = data

    def _finish(self, header: SegmentHeader, following: SegmentHeader | None, data: bytes, position: int) -> None:
        if following is not None:
            if (self.sequence, self.chain) != (following.first_sequence, following.chain):
                raise self.corrupt(
                    header.name,
                    position,
                    f"it ends with batch {self.sequence - 1}, but {following.name} starts with batch "
                    f"{following.first_sequence}: batches are missing",
                )
        elif self.truncated is None and len(data) < header.size:
            reason = f"the file has {len(data)} of its {header.size} bytes"
            self._truncate(header, data, position, reason)

    def _follow(self, batch: Batch) -> int:
        """Move `next_index` over a batch; the index of the last entry in it, 0 without one."""
        last = 0
        for _, frame in batch.frames:
            if frame.type in (frames.ENTRY, frames.RESTART):
                self.next_index = frame.index + 1
            if frame.type == frames.ENTRY:
                last = frame.index
        return last

    def _judge(
        self, header: SegmentHeader, following: SegmentHeader | None, data: bytes, position: int, bad: BadBatch
    ) -> None:
        if following is not None:
            raise self.corrupt(header.name, bad.offset, f"{bad.reason}, and {following.name} was written later")
        later = frames.proof_of_later_write(data, position, bad, header.seed)
        if later is not None:
            raise self.corrupt(header.name, bad.offset, f"{bad.reason}, and byte {later} was written later")
        if position == HEADER_BYTES:
            raise self.corrupt(header.name, bad.offset, f"{bad.reason}, in the batch that the segment was made with")
        self._truncate(header, data, position, bad.reason)

    def _truncate(self, header: SegmentHeader, data: bytes, position: int, reason: str) -> None:
        size = len(data[position:].rstrip(b"\0"))
        copy = f"{header.name}.{position}{BROKEN_SUFFIX}"
        self.truncated = TruncatedTail(header.name, position, copy, size, reason)


class Replay:
    """Builds the hard state and the entries from frames in log order."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.hard_state = HardState()
        self.snapshot = NO_SNAPSHOT
        self.entries: list[Entry] = []
        self.next_index: int | None = None
        self.clean = False

    def apply(self, segment: SegmentHeader, batch: Batch) -> None:
        """Take one batch. Raises LogCorruption for a gap or a frame that this build does not know."""
        self.clean = False
        if self.next_index is None:
            self.next_index = segment.first_index
        for offset, frame in batch.frames:
            try:
                self._frame(frame)
            except ValueError as error:
                raise LogCorruption(segment.name, offset, self.next_index, str(error)) from error

    def _frame(self, frame: Frame) -> None:
        if frame.type == frames.ENTRY:
            self._entry(Entry(frame.term, frame.index, frame.payload))
        elif frame.type == frames.HARD_STATE:
            self.hard_state = frames.decode_hard_state(frame)
        elif frame.type == frames.RESTART:
            self.snapshot = SnapshotId(frame.index, frame.term)
            self.entries = []
            self.next_index = frame.index + 1
        elif frame.type == frames.BASE:
            self.snapshot = SnapshotId(frame.index, frame.term)
        elif frame.type == frames.CLOSE:
            self.clean = True
        else:
            raise ValueError(f"unknown frame type {frame.type}: upgrade this member")

    def _entry(self, entry: Entry) -> None:
        assert self.next_index is not None, "an entry before any segment"
        if entry.index > self.next_index:
            raise ValueError(f"entry {entry.index} follows entry {self.next_index - 1}: there is a gap")
        if entry.index <= self.snapshot.index:
            raise ValueError(f"entry {entry.index} is below the snapshot at {self.snapshot.index}")
        if self.entries:
            del self.entries[max(0, entry.index - self.entries[0].index) :]
        self.entries.append(entry)
        self.next_index = entry.index + 1


class Recovery(NamedTuple):
    """What `recover` found: the content, and the reader for the places."""

    log: RecoveredLog
    reader: LogReader


def recover(files: Files, path: PurePath, identity: DirectoryMeta | None) -> Recovery:
    """Read the log in `path`, changing nothing. Raises LogCorruption unless all that was ever durable is there."""
    reader = LogReader(files, path, identity)
    replay = Replay(reader)
    for segment, batch in reader.batches():
        replay.apply(segment, batch)
    last = reader.next_index - 1
    end = reader.segments[-1] if reader.segments else None
    for what, index in (("commit index", replay.hard_state.commit), ("snapshot", replay.snapshot.index)):
        if end is not None and last < index:
            raise reader.corrupt(end.header.name, end.end, f"the log ends at {last}, below the recorded {what} {index}")
    log = RecoveredLog(
        hard_state=replay.hard_state,
        snapshot=replay.snapshot,
        entries=replay.entries,
        truncated=reader.truncated,
        clean=replay.clean and reader.truncated is None,
    )
    return Recovery(log, reader)
