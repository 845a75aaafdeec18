"""One segment of a member's write-ahead log: its header and its batches, read from a window of the file.

The layout, every integer big-endian. A segment starts with 136 bytes:

    magic `PIDWAL01`, u16 version, 2 zeroes, 64 bytes cluster id, 16 bytes uuid of the data directory, u64 number,
    u64 first index, u64 sequence number of the first batch, u32 CRC32C at the end of the segment before (the chain),
    u64 bytes preallocated, u32 CRC32C of all these 128 bytes, 4 zeroes

Batches follow, each at a multiple of 8 bytes, then zeroes to the end. A batch:

    magic `PIDBATCH`, u64 sequence number, u32 bytes of the batch, u32 CRC32C of the u64 position and these 20 bytes,
    continued from the CRC32C of the header's first 120 bytes (the seed); frames, the last a commit frame; zeroes

A frame: u32 bytes of payload, u8 type, u64 term, u64 index, payload, u32 CRC32C continued from the frame before.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import google_crc32c
import msgspec

from pidkeeper.pipeline.formats.problems import BAD_CRC, CORRUPT, EMPTY, FOREIGN, MISNAMED, NEWER, BadFile, Problem
from pidkeeper.snapshots.cluster_id import unpack_cluster_id

ENTRY: Final = 1
HARD_STATE: Final = 2
RESTART: Final = 3
BASE: Final = 4
COMMIT: Final = 5
CLOSE: Final = 6

HEADER_BYTES: Final = 136
WINDOW_BYTES: Final = 1 << 20
"""Read ahead at once: what a segment costs in memory, unless a single batch is larger."""
MAX_BATCH_BYTES: Final = 1024 * (256 * 1024 + 25) + 4096
"""1024 entries of 256 KiB with their frames, and a hard state: the most that one append writes."""

_VERSION: Final = 1
_MAGIC: Final = b"PIDWAL01"
_HEADER: Final = struct.Struct(">8sH2s64s16sQQQIQI4s")
_SEED_BYTES: Final = 120
_CHECKED_BYTES: Final = 128
_BATCH_MAGIC: Final = b"PIDBATCH"
_BATCH_HEAD: Final = struct.Struct(">8sQII")
_BATCH_CHECKED: Final = 20
_FRAME_HEAD: Final = struct.Struct(">IBQQ")
_CRC_BYTES: Final = 4
_ALIGNMENT: Final = 8
_LEAST_BATCH: Final = _BATCH_HEAD.size + _FRAME_HEAD.size + 2 * _CRC_BYTES
_NAME: Final = re.compile(r"(\d{16})-(\d{20})\.wal")


class SegmentHeader(NamedTuple):
    """The fields of a header; `seed` is where the checksums of the batch heads continue from."""

    cluster_id: str
    directory_id: uuid.UUID
    number: int
    first_index: int
    first_sequence: int
    chain: int
    size: int
    seed: int


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame and its place."""

    segment: str
    position: int
    type: int
    term: int
    index: int
    payload: bytes


class Batch(NamedTuple):
    """A whole batch: its frames without the commit frame, the position after it, the chain after it."""

    frames: list[Frame]
    end: int
    chain: int


class BadBatch(Exception):  # noqa: N818 - a finding, judged by the caller
    """Not the batch that was due at `position`. `extent`: from where on any byte is a later write, if known."""

    def __init__(self, position: int, reason: str, extent: int | None = None) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason
        self.extent = extent


def is_segment_name(name: str) -> bool:
    """Whether a segment may have this name."""
    return _NAME.fullmatch(name) is not None


class Window:
    """The bytes of an open file, of which WINDOW_BYTES are in memory, or one batch if that is larger."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = 0
        self._data = b""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        at = position - self._start
        if at < 0 or at + size > len(self._data):
            self._file.seek(position)
            self._data = self._file.read(max(size, WINDOW_BYTES))
            self._start, at = position, 0
        return self._data[at : at + size]

    def forget(self) -> None:
        """Read from the file again what is asked for from now on."""
        self._data = b""

    def chunks(self, position: int, overlap: int = 0) -> Iterator[tuple[int, bytes]]:
        """The rest of the file from `position` in pieces, each with `overlap` bytes of the one after it."""
        while chunk := self.read(position, WINDOW_BYTES):
            yield position, chunk
            if len(chunk) < WINDOW_BYTES:
                return
            position += WINDOW_BYTES - overlap


def read_header(name: str, window: Window) -> SegmentHeader:
    """The header of the segment `name`. Raises BadFile."""
    data = window.read(0, HEADER_BYTES)
    if not data:
        raise _bad(name, EMPTY, 0, "the file has no bytes")
    if not data.startswith(_MAGIC[: len(data)]):
        raise _bad(name, FOREIGN, 0, f"it starts with {data[:8]!r}, not with {_MAGIC!r}: it is no log segment")
    if len(data) < HEADER_BYTES:
        raise _bad(name, CORRUPT, len(data), f"the file ends after {len(data)} of {HEADER_BYTES} header bytes")
    _, version, zero, cluster, directory, number, index, sequence, chain, size, checksum, tail = _HEADER.unpack(data)
    if checksum != google_crc32c.value(data[:_CHECKED_BYTES]) or any(tail):
        raise _bad(name, BAD_CRC, 0, "the checksum of the segment header does not match its content")
    if version != _VERSION or any(zero):
        raise _bad(name, NEWER, 8, f"segment version {version}: this build reads version {_VERSION}")
    try:
        cluster_id = unpack_cluster_id(cluster)
    except ValueError as error:
        raise _bad(name, FOREIGN, 12, str(error)) from error
    if name != f"{number:016d}-{index:020d}.wal":
        raise _bad(name, MISNAMED, 84, f"by its header this is segment {number:016d}-{index:020d}.wal")
    seed = google_crc32c.value(data[:_SEED_BYTES])
    return SegmentHeader(cluster_id, uuid.UUID(bytes=directory), number, index, sequence, chain, size, seed)


def read_batch(name: str, window: Window, position: int, sequence: int, seed: int, chain: int) -> Batch | None:
    """The batch at `position`, or None if nothing but zeroes follows. Raises BadBatch."""
    head = window.read(position, _BATCH_HEAD.size)
    if not any(head) and _first_written(window, position) is None:
        return None
    found = _batch_head(head, position, seed)
    if found is None:
        raise BadBatch(position, "there is no batch head here")
    found_sequence, size = found
    if found_sequence != sequence:
        raise BadBatch(position, f"this is batch {found_sequence} where batch {sequence} was due", position)
    data = window.read(position, size)
    if len(data) < size:
        raise BadBatch(position + len(data), f"the file ends within batch {sequence}", position + size)
    frames, at, chain = _frames(name, data, position, chain)
    if frames[-1] != Frame(name, position + at, COMMIT, 0, sequence, struct.pack(">I", at)):
        raise BadBatch(position + at, f"the commit frame does not close batch {sequence}", position + size)
    closed = at + _FRAME_HEAD.size + 2 * _CRC_BYTES
    if size - closed >= _ALIGNMENT or any(data[closed:]):
        raise BadBatch(position + closed, "the padding after the commit frame is not zero", position + size)
    return Batch(frames[:-1], position + size, chain)


def later_write(window: Window, position: int, bad: BadBatch, seed: int) -> int | None:
    """Where something is that was written after the bad batch at `position`: the proof that it was whole once.

    Nothing is written after a batch before its sync returned. If the batch's extent is known, any byte behind it that
    is not zero is the proof; otherwise a batch head whose checksum is right.
    """
    if bad.extent is not None:
        return _first_written(window, bad.extent)
    for start, chunk in window.chunks(position + _ALIGNMENT, _BATCH_HEAD.size):
        found = chunk.find(_BATCH_MAGIC)
        while found >= 0:
            at = start + found
            if at % _ALIGNMENT == 0 and _batch_head(chunk[found : found + _BATCH_HEAD.size], at, seed) is not None:
                return at
            found = chunk.find(_BATCH_MAGIC, found + 1)
    return None


def file_bytes(window: Window, position: int) -> int:
    """Bytes of the file, which has at least `position`."""
    end = position
    for start, chunk in window.chunks(position):
        end = start + len(chunk)
    return end


def _bad(name: str, kind: str, position: int, detail: str) -> BadFile:
    return BadFile(Problem(name, kind, position, detail))


def _batch_head(head: bytes, position: int, seed: int) -> tuple[int, int] | None:
    """Sequence number and size, if this is a good batch head."""
    if len(head) < _BATCH_HEAD.size:
        return None
    magic, sequence, size, checksum = _BATCH_HEAD.unpack(head)
    if checksum != google_crc32c.extend(seed, struct.pack(">Q", position) + head[:_BATCH_CHECKED]):
        return None
    if magic != _BATCH_MAGIC or not _LEAST_BATCH <= size <= MAX_BATCH_BYTES or size % _ALIGNMENT:
        return None
    return sequence, size


def _frames(name: str, data: bytes, position: int, chain: int) -> tuple[list[Frame], int, int]:
    """The frames of a batch up to its commit frame, where that one starts within `data`, and the chain after it."""
    frames: list[Frame] = []
    at = _BATCH_HEAD.size
    end = position + len(data)
    while True:
        body = at + _FRAME_HEAD.size
        if body + _CRC_BYTES > len(data):
            raise BadBatch(position + at, "the batch ends without a commit frame", end)
        size, kind, term, index = _FRAME_HEAD.unpack_from(data, at)
        after = body + size
        if after + _CRC_BYTES > len(data):
            raise BadBatch(position + at, f"a frame of {size} bytes reaches beyond its batch", end)
        chain = google_crc32c.extend(chain, data[at:after])
        if int.from_bytes(data[after : after + _CRC_BYTES]) != chain:
            raise BadBatch(position + at, "the checksum of a frame does not match its content", end)
        frames.append(Frame(name, position + at, kind, term, index, data[body:after]))
        if kind == COMMIT:
            return frames, at, chain
        at = after + _CRC_BYTES


def _first_written(window: Window, position: int) -> int | None:
    """Where the first byte from `position` on is that is not zero."""
    for start, chunk in window.chunks(position):
        if rest := chunk.lstrip(b"\0"):
            return start + len(chunk) - len(rest)
    return None
