"""The write-ahead log: term, vote, commit index and entries in one order, each append durable when it returns.

One append is one write and one fdatasync into a segment of zeroes (`segment`, `frames`). After any failed write or sync
what is on disk is unknown (a second fsync may return success with the data gone), so the log refuses everything from
then on and the process has to exit. Opening copies the newest segment into a fresh file: what was read may be in memory
only, and nothing is written behind bytes whose durability is unknown.

One thread at a time may call the log, except `prepare_next`, which any thread may call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from pidkeeper.controller.raft.messages import MAX_ENTRY_BYTES, Entry, HardState
from pidkeeper.controller.storage import frames
from pidkeeper.controller.storage.directory import DirectoryMeta
from pidkeeper.controller.storage.errors import LogFailed, LogFull
from pidkeeper.controller.storage.frames import Frame
from pidkeeper.controller.storage.recovery import NO_SNAPSHOT, LogReader, RecoveredLog, Recovery, recover
from pidkeeper.controller.storage.segment import (
    BROKEN_SUFFIX,
    DEFAULT_SEGMENT_BYTES,
    HEADER_BYTES,
    MIN_SEGMENT_BYTES,
    SegmentHeader,
    allocate,
)
from pidkeeper.disk.files import Files, remove_temporary, write_durably
from pidkeeper.snapshots.snapshot_id import SnapshotId

_PREPARED_NAME: Final = "next-segment.tmp"
_TAIL_NAME: Final = "tail.tmp"


class _Segment(msgspec.Struct):
    """A segment on disk; `highest` is the index of the last entry in it, 0 without one."""

    header: SegmentHeader
    highest: int


class WriteAheadLog:
    """The open log. Counters: `fdatasyncs`, `bytes_written`, `appends`.

    Every method raises LogFailed once a write or sync has failed, and after `close`.
    """

    def __init__(self, files: Files, path: PurePath, identity: DirectoryMeta, segment_bytes: int) -> None:
        assert segment_bytes >= MIN_SEGMENT_BYTES, f"segments of {segment_bytes} bytes, below {MIN_SEGMENT_BYTES}"
        self.fdatasyncs = 0
        self.bytes_written = 0
        self.appends = 0
        self._files = files
        self._path = path
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._handle = -1
        self._position = 0
        self._seed = 0
        self._sequence = 1
        self._chain = 0
        self._next_index = 1
        self._last_term = 0
        self._hard_state = HardState(recovering=True)
        self._snapshot = NO_SNAPSHOT
        self._failure: str | None = None
        self._prepared: tuple[int, int] | None = None
        self._preparing = threading.Lock()

    @classmethod
    def open(
        cls, files: Files, path: PurePath, identity: DirectoryMeta, *, segment_bytes: int = DEFAULT_SEGMENT_BYTES
    ) -> tuple[WriteAheadLog, RecoveredLog]:
        """Open the log in the directory `path`, or make an empty one, whose member then counts as recovering.

        Raises LogCorruption for a log that lost something durable or is another's, LogFull if the disk has no room, and
        OSError. After any of these nothing was changed that a later open needs.
        """
        log = cls(files, path, identity, segment_bytes)
        recovery = recover(files, path, identity)
        remove_temporary(files, path)
        if recovery.reader.segments:
            log._resume(recovery)
        else:
            recovery.log.hard_state = log._hard_state
            log._roll(0)
        return log, recovery.log

    @property
    def next_index(self) -> int:
        """The index after the last entry."""
        return self._next_index

    @property
    def hard_state(self) -> HardState:
        """The newest hard state that is durable."""
        return self._hard_state

    @property
    def segment_count(self) -> int:
        """Segments on disk."""
        return len(self._segments)

    @property
    def wants_next_segment(self) -> bool:
        """Whether the segment in use is half full and `prepare_next` has not been called for the one after it."""
        return self._prepared is None and self._failure is None and 2 * self._position > self._segment_bytes

    def append(self, entries: Sequence[Entry], hard_state: HardState | None) -> None:
        """Make `entries` and `hard_state` durable, as one: after a crash either all or nothing of them is there.

        The entries follow each other; the first one may replace an older entry and everything after that. Raises
        LogFull, with nothing written, if a new segment is due and the disk has no room; LogFailed on any other trouble.
        """
        self._check_usable()
        new_frames = [frames.hard_state_frame(hard_state)] if hard_state is not None else []
        if entries:
            self._check_entries(entries, hard_state or self._hard_state)
            new_frames += [Frame(frames.ENTRY, entry.term, entry.index, entry.data) for entry in entries]
        if hard_state is not None:
            self._check_hard_state(hard_state, entries[-1].index if entries else self._next_index - 1)
        if not new_frames:
            return
        self._write(new_frames)
        self.appends += 1
        if hard_state is not None:
            self._hard_state = hard_state
        if entries:
            self._next_index = entries[-1].index + 1
            self._last_term = entries[-1].term
            self._segments[-1].highest = entries[-1].index

    def compact(self, keep_from: int) -> None:
        """Remove the oldest segments that hold no entry from index `keep_from` on. The newest one always stays.

        Call it once a snapshot up to `keep_from` - 1 or beyond is durable.
        """
        self._check_usable()
        assert keep_from <= self._next_index, f"compaction up to {keep_from} in a log that ends at {self._next_index}"
        while len(self._segments) > 1 and self._segments[0].highest < keep_from:
            self._remove_oldest()

    def restart_at(self, snapshot: SnapshotId, hard_state: HardState) -> None:
        """Drop all entries and go on at `snapshot.index` + 1. Call it once the received snapshot is durable."""
        self._check_usable()
        assert snapshot.index >= self._snapshot.index, f"restart at {snapshot} after one at {self._snapshot}"
        self._check_hard_state(hard_state, snapshot.index)
        self._roll(0, restart=(snapshot, hard_state))
        while len(self._segments) > 1:
            self._remove_oldest()

    def prepare_next(self) -> None:
        """Preallocate the next segment ahead of need. Raises LogFull if the disk has no room; the log stays usable."""
        with self._preparing:
            if self._prepared is None and self._failure is None:
                size = self._segment_bytes
                self._prepared = (allocate(self._files, self._path / _PREPARED_NAME, size), size)

    def close(self) -> None:
        """Mark the end as intended and give the file back. A failed log is not marked; a second call is nothing."""
        if self._handle < 0:
            return
        if self._failure is None:
            with contextlib.suppress(LogFull):
                self._write([Frame(frames.CLOSE, 0, 0)])
            self._failure = "it is closed"
        self._files.close(self._handle)
        self._handle = -1
        with self._preparing:
            if self._prepared is not None:
                self._files.close(self._prepared[0])
                self._prepared = None

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise LogFailed(f"the log in {self._path} takes no more calls: {self._failure}")

    def _check_entries(self, entries: Sequence[Entry], hard_state: HardState) -> None:
        first = entries[0].index
        assert first <= self._next_index, f"entry {first} would leave a gap after {self._next_index - 1}"
        assert first > self._hard_state.commit, (
            f"entry {first} would replace one up to commit {self._hard_state.commit}"
        )
        term = self._last_term if first == self._next_index else 0
        for expected, entry in enumerate(entries, first):
            assert entry.index == expected, f"entry {entry.index} where {expected} was due"
            assert entry.term >= term, f"entry {expected} has term {entry.term}, after one of term {term}"
            assert len(entry.data) <= MAX_ENTRY_BYTES, (
                f"entry {expected} has {len(entry.data)} > {MAX_ENTRY_BYTES} bytes"
            )
            term = entry.term
        assert term <= hard_state.term, f"an entry of term {term} is durable before term {hard_state.term} is left"

    def _check_hard_state(self, new: HardState, last_index: int) -> None:
        old = self._hard_state
        assert new.term >= old.term, f"the term falls from {old.term} to {new.term}"
        assert new.commit >= old.commit, f"the commit index falls from {old.commit} to {new.commit}"
        assert new.commit <= last_index, f"commit {new.commit} is beyond the last index {last_index}"
        if new.term == old.term and old.vote is not None:
            assert new.vote == old.vote, f"the vote in term {new.term} changes from {old.vote} to {new.vote}"

    def _write(self, new_frames: list[Frame]) -> None:
        size = frames.batch_bytes(new_frames)
        if self._position + size > self._segments[-1].header.size:
            self._roll(size)
        data, chain = frames.encode_batch(new_frames, self._sequence, self._position, self._seed, self._chain)
        try:
            self._files.pwrite(self._handle, data, self._position)
            self._files.fdatasync(self._handle)
        except OSError as error:
            raise self._fail(error) from error
        self._advance(len(data), chain)

    def _advance(self, written: int, chain: int) -> None:
        self.fdatasyncs += 1
        self.bytes_written += written
        self._position += written
        self._sequence += 1
        self._chain = chain

    def _fail(self, error: OSError) -> LogFailed:
        self._failure = f"an earlier write or sync failed: {error}"
        return LogFailed(f"writing the log in {self._path} failed: {error}; this process has to exit")

    def _roll(self, room: int, restart: tuple[SnapshotId, HardState] | None = None) -> None:
        """Begin a new segment with room for a batch of `room` bytes, after a restart if there is one."""
        snapshot, hard_state = restart or (self._snapshot, self._hard_state)
        marker = Frame(frames.RESTART if restart else frames.BASE, snapshot.term, snapshot.index)
        head = [frames.hard_state_frame(hard_state), marker]
        needed = HEADER_BYTES + frames.batch_bytes(head) + room
        header = SegmentHeader(
            cluster_id=self._identity.cluster_id,
            directory_id=self._identity.directory_id,
            number=self._segments[-1].header.number + 1 if self._segments else 1,
            first_index=snapshot.index + 1 if restart else self._next_index,
            first_sequence=self._sequence,
            chain=self._chain,
            size=max(self._segment_bytes, needed),
        )
        batch, chain = frames.encode_batch(head, self._sequence, HEADER_BYTES, header.seed, self._chain)
        # Until the segment has its own name, `prepare_next` would take its file away to make the next one.
        with self._preparing:
            temporary, handle = self._take_prepared(header.size)
            try:
                self._install(handle, temporary, header, header.encode() + batch)
            except OSError as error:
                raise self._fail(error) from error
        self._segments.append(_Segment(header, 0))
        self._advance(len(batch), chain)
        self._next_index, self._snapshot, self._hard_state = header.first_index, snapshot, hard_state
        if restart:
            self._last_term = snapshot.term

    def _take_prepared(self, size: int) -> tuple[PurePath, int]:
        """An allocated file of `size` bytes under its temporary name; under `_preparing`. Raises LogFull."""
        temporary = self._path / _PREPARED_NAME
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[1] == size:
            return temporary, prepared[0]
        if prepared is not None:
            self._files.close(prepared[0])
        try:
            return temporary, allocate(self._files, temporary, size)
        except OSError as error:
            raise self._fail(error) from error

    def _install(self, handle: int, temporary: PurePath, header: SegmentHeader, content: bytes) -> None:
        """Make `temporary` the segment of this header, durably, and write on there."""
        self._files.pwrite(handle, content, 0)
        self._files.fdatasync(handle)
        self._files.rename(temporary, self._path / header.name)
        self._files.fsync_directory(self._path)
        if self._handle >= 0:
            self._files.close(self._handle)
        self._handle, self._position, self._seed = handle, HEADER_BYTES, header.seed

    def _remove_oldest(self) -> None:
        """Unlink the oldest segment and what was once cut off it: one at a time, so that no crash leaves a gap."""
        name = self._segments[0].header.name
        try:
            for copy in self._files.listdir(self._path):
                if copy.startswith(name) and copy.endswith(BROKEN_SUFFIX):
                    self._files.unlink(self._path / copy)
            self._files.unlink(self._path / name)
            self._files.fsync_directory(self._path)
        except OSError as error:
            raise self._fail(error) from error
        del self._segments[0]

    def _resume(self, recovery: Recovery) -> None:
        """Go on after what was recovered, in a copy of the newest segment."""
        found, reader = recovery
        self._sequence, self._chain, self._next_index = reader.sequence, reader.chain, reader.next_index
        self._snapshot = found.snapshot
        self._last_term = found.entries[-1].term if found.entries else found.snapshot.term
        self._segments = [_Segment(segment.header, segment.highest) for segment in reader.segments]
        if found.truncated is not None:
            broken = reader.tail.rstrip(b"\0")
            write_durably(self._files, self._path / found.truncated.copy, broken)
            found.hard_state = msgspec.structs.replace(found.hard_state, recovering=True)
        self._hard_state = found.hard_state
        self._copy_tail(reader, [frames.hard_state_frame(found.hard_state)] if found.truncated is not None else [])

    def _copy_tail(self, reader: LogReader, extra: list[Frame]) -> None:
        """Replace the newest segment by a copy of its good part and, in the same step, a batch of `extra` frames."""
        newest = reader.segments[-1]
        old = newest.header
        size = max(self._segment_bytes, newest.end + frames.batch_bytes(extra))
        header = msgspec.structs.replace(old, size=size)
        assert header.seed == old.seed, f"the seed of {old.name} changed from {old.seed} to {header.seed}"
        content = header.encode() + reader.tail[HEADER_BYTES : newest.end]
        chain, batch = self._chain, b""
        if extra:
            batch, chain = frames.encode_batch(extra, self._sequence, newest.end, header.seed, self._chain)
        temporary = self._path / _TAIL_NAME
        handle = allocate(self._files, temporary, size)
        self._install(handle, temporary, header, content + batch)
        self._segments[-1].header = header
        self._position = newest.end
        if extra:
            self._advance(len(batch), chain)
