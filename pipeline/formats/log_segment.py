"""Reads the batches of a Kafka log segment, or of a range of one, in bounded memory, and goes on behind damage.

What is not a good batch becomes a Problem with one of these kinds:

    empty          the file has no byte
    foreign        the file has no batch at all
    bad_crc        a batch whose bytes are not those its CRC was made of; skipped by its length
    lost_boundary  no batch starts here, or its length is wrong; the search went on to the next good one
    torn           the segment ends inside this batch
    zero_tail      zeros to the end: preallocated and never written
    old_magic      messages of format 0 or 1, which know no producer
    offset_order   a good batch whose offsets are not between those of its neighbours; it is read
    bad_control    a control batch without a readable control record; it is read

A lost boundary is searched for, because one wrong bit in a length would otherwise hide up to a whole segment. The
search believes only in a batch that fits the segment's offsets and whose CRC is right. Where the records of a topic are
themselves segments of Kafka it could take a batch inside a record for one of the segment: behind a lost_boundary the
rows of such a topic need a look.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from pidkeeper.pipeline.formats.record_batch import (
    AFTER_CRC,
    CONTROL,
    HEADER_BYTES,
    KNOWN_ATTRIBUTES,
    LEAST_LENGTH,
    LEAST_OLD_LENGTH,
    MAGIC,
    PREFIX_BYTES,
    START,
    Chunk,
    Marker,
    Problem,
    read_marker,
)

CHUNK_BYTES: Final = 4 << 20
"""How much is read at once: four times Kafka's default `message.max.bytes`. A larger batch is checked in pieces."""
CHUNK_BATCHES: Final = 65_536
"""Headers handed on at once: 4 MB of them."""
CHUNK_PROBLEMS: Final = 4_096
MAX_RESYNC_BATCH_BYTES: Final = CHUNK_BYTES
"""The largest batch that the search for a lost boundary believes in: it must be in memory whole."""
SEGMENT_OFFSETS: Final = 1 << 31
"""A segment holds offsets below its base offset plus this: its index stores them as int32."""
CONTROL_BATCH_BYTES: Final = 1 << 10
"""How much of a control batch is looked at; a marker takes 78."""
_MAGIC_AT: Final = 16
_OLD_START: Final = struct.Struct(">qiIb")
"""Offset, length, CRC and magic of a message of format 0 or 1; the first three fields stand as in a batch."""
_OLD_HEADER_BYTES: Final = _OLD_START.size
_MAGIC_BYTE: Final = bytes([MAGIC])


class ReadableFile(Protocol):
    """What is read: a binary file of any file system."""

    def seek(self, offset: int, /) -> int: ...

    def read(self, size: int, /) -> bytes: ...


class ByteRange(msgspec.Struct, frozen=True):
    """Bytes [start, end) of a segment; each lies between two batches or at an end of the file.

    `next_offset`: the base offset of the batch at `end`, None at the end of the file.
    """

    start: int
    end: int
    next_offset: int | None = None


class Window:
    """The part of a file that is in memory. Raises EOFError if the file is shorter than it was said to be."""

    def __init__(self, file: ReadableFile, end: int, read_ahead: int = CHUNK_BYTES) -> None:
        self.data = b""
        self.origin = 0
        self._end = end
        self._file = file
        self._read_ahead = read_ahead

    def hold(self, position: int, size: int) -> int:
        """Where `position` is in `data`, which holds `size` bytes from there on, or all up to the end."""
        have = self.origin + len(self.data)
        needed = min(position + size, self._end)
        if self.origin <= position and needed <= have:
            return position - self.origin
        kept = self.data[position - self.origin :] if self.origin <= position < have else b""
        start = position + len(kept)
        self.data = kept + self._read(start, max(needed, min(start + self._read_ahead, self._end)))
        self.origin = position
        return 0

    def peek(self, position: int, size: int) -> bytes:
        """The same bytes, at most `size` of them, without moving the window."""
        until = min(position + size, self._end)
        if self.origin <= position and until <= self.origin + len(self.data):
            return self.data[position - self.origin : until - self.origin]
        return self._read(position, until)

    def _read(self, start: int, end: int) -> bytes:
        self._file.seek(start)
        pieces = []
        while start < end:
            piece = self._file.read(end - start)
            if not piece:
                raise EOFError(f"the file ends at byte {start}; it had {self._end} or more when it was listed")
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)


class SegmentReader:
    """Good batches and problems of a range of a segment.

    `size`: bytes of the file. `base_offset`: the one in the segment's file name, None if the name says none.
    """

    def __init__(
        self, file: ReadableFile, size: int, *, base_offset: int | None = None, part: ByteRange | None = None
    ) -> None:
        self._size = size
        self._part = part or ByteRange(0, size)
        self._end = self._part.end
        self._window = Window(file, self._end)
        self._first_offset = base_offset or 0
        self._offset_limit = (1 << 63) if base_offset is None else base_offset + SEGMENT_OFFSETS
        self._below = self._offset_limit if self._part.next_offset is None else self._part.next_offset
        self._last_offset = self._first_offset - 1
        self._chunk = Chunk()

    def chunks(self) -> Iterator[Chunk]:
        """All of the range, in its order; at most CHUNK_BATCHES and a window's worth of headers at a time."""
        position = self._part.start
        if self._size == 0:
            yield Chunk(problems=[Problem("empty", 0, "the file has no byte")])
        while position < self._end:
            position = self._good(position)
            if position < self._end and len(self._chunk) < CHUNK_BATCHES:
                position = self._odd(position)
            if len(self._chunk) >= CHUNK_BATCHES or len(self._chunk.problems) >= CHUNK_PROBLEMS:
                yield self._chunk
                self._chunk = Chunk()
        if len(self._chunk) or self._chunk.problems:
            yield self._chunk

    def _problem(self, kind: str, position: int, detail: str) -> None:
        self._chunk.problems.append(Problem(kind, position, detail))

    # The usual case.

    def _good(self, position: int) -> int:
        """Take batches from `position` on while they are good and the chunk has room; the position after them."""
        size = HEADER_BYTES
        while size and len(self._chunk) < CHUNK_BATCHES:
            index = self._take(self._window.hold(position, size))
            position = self._window.origin + index
            size = self._missing(position)
        return position

    def _missing(self, position: int) -> int:
        """Bytes of a batch that is only not in the window; 0 if it is something else that stops there."""
        left = self._window.origin + len(self._window.data) - position
        if left >= HEADER_BYTES:
            _, length, _, magic, *_ = START.unpack_from(self._window.data, len(self._window.data) - left)
            whole = PREFIX_BYTES + length
            fits = magic == MAGIC and left < whole <= CHUNK_BYTES and position + whole <= self._end
            return whole if fits else 0
        return HEADER_BYTES if position + HEADER_BYTES <= self._end else 0

    def _take(self, index: int) -> int:
        data, origin, chunk = self._window.data, self._window.origin, self._chunk
        headers, positions, last_offset, below = chunk.headers, chunk.positions, self._last_offset, self._below
        unpack, last = START.unpack_from, len(data) - HEADER_BYTES
        room = CHUNK_BATCHES - len(chunk)
        while index <= last and room > 0:
            base_offset, length, _, magic, crc, attributes, delta = unpack(data, index)
            stop = index + PREFIX_BYTES + length
            if magic != MAGIC or length < LEAST_LENGTH or stop > len(data) or crc32c(data[index + 21 : stop]) != crc:
                break
            if attributes & CONTROL:
                self._control(data[index:stop], origin + index)
            headers += data[index : index + HEADER_BYTES]
            positions.append(origin + index)
            room -= 1
            if base_offset <= last_offset or base_offset + delta >= below:
                self._out_of_order(origin + index, base_offset, base_offset + delta, last_offset)
            last_offset = base_offset + delta
            index = stop
        self._last_offset = last_offset
        return index

    def _control(self, batch: bytes, position: int) -> None:
        if batch[HEADER_BYTES - 4 : HEADER_BYTES] == bytes(4):
            return  # Compaction keeps a control batch without its record, for the producer's sake.
        try:
            kind, epoch = read_marker(batch)
        except ValueError as error:
            self._problem("bad_control", position, str(error))
        else:
            self._chunk.markers.append(Marker(len(self._chunk), kind, epoch))

    def _out_of_order(self, position: int, first: int, last: int, before: int) -> None:
        detail = f"a batch of offsets {first} to {last} where they should lie above {before} and below {self._below}"
        self._problem("offset_order", position, detail)

    # Everything else, one oddity at a time.

    def _odd(self, position: int) -> int:
        """Say what is at `position`, which is no good batch in the window; where to go on."""
        start = self._window.peek(position, HEADER_BYTES)
        if not any(start):
            return self._zeros(position)
        if len(start) < _OLD_HEADER_BYTES:
            return self._unknown(position, f"{len(start)} bytes are no header", cut_off=True)
        length = int.from_bytes(start[8:12], "big", signed=True)
        stop = position + PREFIX_BYTES + length
        magic = start[_MAGIC_AT]
        if magic not in {MAGIC, *LEAST_OLD_LENGTH}:
            return self._unknown(position, f"magic {magic} is none of 0, 1 and 2")
        least = LEAST_LENGTH if magic == MAGIC else LEAST_OLD_LENGTH[magic]
        if length < least:
            return self._unknown(position, f"a length of {length} is below the least of magic {magic}, {least}")
        if stop > self._end:
            return self._unknown(position, f"{self._end - position} bytes are there of {stop - position}", cut_off=True)
        return self._old(position) if magic != MAGIC else self._check(position, stop, start)

    def _unknown(self, position: int, why: str, *, cut_off: bool = False) -> int:
        found = self._search(position + 1, self._end)
        whole_tail = self._end == self._size
        if found is not None:
            self._problem("lost_boundary", position, f"{why}; the next good batch starts at byte {found}")
        elif position == 0 and whole_tail and not self._might_start(position):
            self._problem("foreign", position, f"no record batch in {self._size} bytes: {why}")
        elif cut_off and whole_tail:
            self._problem("torn", position, f"the segment ends inside a batch: {why}")
        else:
            self._problem("lost_boundary", position, f"{why}; no good batch up to byte {self._end}")
        return self._end if found is None else found

    def _might_start(self, position: int) -> bool:
        """Whether a batch of this segment could begin so; its length is not looked at."""
        start = self._window.peek(position, _OLD_HEADER_BYTES)
        offset = int.from_bytes(start[:8], "big", signed=True)
        known = len(start) == _OLD_HEADER_BYTES and start[_MAGIC_AT] <= MAGIC
        return known and self._first_offset <= offset < self._offset_limit

    def _zeros(self, position: int) -> int:
        at = position
        while at < self._end:
            piece = self._window.peek(at, CHUNK_BYTES)
            if any(piece):
                return self._unknown(position, "zeros where a batch should start")
            at += len(piece)
        if self._end < self._size:
            return self._unknown(position, "zeros where a batch should start")
        self._problem("zero_tail", position, f"{self._end - position} zero bytes to the end")
        return self._end

    def _old(self, position: int) -> int:
        """Messages of format 0 or 1 (uint32 CRC at byte 12) as far as they go: one problem for all of them."""
        at, count = position, 0
        while at + _OLD_HEADER_BYTES <= self._end:
            index = self._window.hold(at, _OLD_HEADER_BYTES)
            offset, length, _, magic = _OLD_START.unpack_from(self._window.data, index)
            stop = at + PREFIX_BYTES + length
            if magic not in LEAST_OLD_LENGTH or length < LEAST_OLD_LENGTH[magic] or stop > self._end:
                break
            self._last_offset = offset
            at, count = stop, count + 1
        magic = self._window.peek(position, _OLD_HEADER_BYTES)[_MAGIC_AT]
        self._problem("old_magic", position, f"{count} messages up to byte {at}, the first of format {magic}")
        return at

    def _check(self, position: int, stop: int, start: bytes) -> int:
        """A whole batch that is either larger than a chunk or bad."""
        crc = int.from_bytes(start[17:AFTER_CRC], "big")
        found = 0
        at = position + AFTER_CRC
        while at < stop:
            piece = self._window.peek(at, min(CHUNK_BYTES, stop - at))
            found = extend_crc32c(found, piece)
            at += len(piece)
        if found == crc:
            self._accept(position, start)
            return stop
        return self._bad_crc(position, stop, f"the CRC-32C of its bytes is {found:#010x}, its header says {crc:#010x}")

    def _accept(self, position: int, header: bytes) -> None:
        base_offset, *_, attributes, delta = START.unpack_from(header)
        if attributes & CONTROL:
            self._control(self._window.peek(position, CONTROL_BATCH_BYTES), position)
        self._chunk.headers += header
        self._chunk.positions.append(position)
        if base_offset <= self._last_offset or base_offset + delta >= self._below:
            self._out_of_order(position, base_offset, base_offset + delta, self._last_offset)
        self._last_offset = base_offset + delta

    def _bad_crc(self, position: int, stop: int, why: str) -> int:
        """Skip by the length, unless no good batch starts there but one within: then it is the length that is wrong."""
        ends_well = stop == self._end or self._is_good(stop)
        found = None if ends_well else self._search(position + 1, stop)
        if found is not None:
            self._problem("lost_boundary", position, f"{why}; the next good batch starts at byte {found}, not {stop}")
            return found
        self._problem("bad_crc", position, f"{why}; skipped its {stop - position} bytes")
        return stop

    def _search(self, position: int, before: int) -> int | None:
        """Where the first good batch starts in [position, before); None if there is none."""
        while position < before and position + HEADER_BYTES <= self._end:
            index = self._window.hold(position, HEADER_BYTES)
            at = self._window.data.find(_MAGIC_BYTE, index + _MAGIC_AT)
            if at < 0:
                position = self._window.origin + len(self._window.data) - _MAGIC_AT
                continue
            position = self._window.origin + at - _MAGIC_AT
            if position < before and self._is_good(position):
                return position
            position += 1
        return None

    def _is_good(self, position: int) -> bool:
        if position + HEADER_BYTES > self._end:
            return False
        index = self._window.hold(position, HEADER_BYTES)
        offset, length, _, magic, crc, attributes, delta = START.unpack_from(self._window.data, index)
        whole = PREFIX_BYTES + length
        fits = length >= LEAST_LENGTH and whole <= min(MAX_RESYNC_BATCH_BYTES, self._end - position)
        known = magic == MAGIC and attributes & ~KNOWN_ATTRIBUTES == 0 and delta >= 0
        if not (fits and known and self._first_offset <= offset < self._offset_limit):
            return False
        index = self._window.hold(position, whole)
        return bool(crc32c(self._window.data[index + AFTER_CRC : index + whole]) == crc)
