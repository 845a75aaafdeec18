"""Batches and frames, the content of a log segment. Every integer is big-endian.

A batch is what one append made durable. It starts at a multiple of 8 bytes and is written by one call:

    offset  size
    0       8     magic `PIDBATCH`
    8       8     sequence number of the batch, one higher than that of the batch before it, u64
    16      4     bytes of the whole batch, this head and the padding included, u32
    20      4     CRC32C of the batch's position in the segment (u64) and the 20 bytes above, from the segment's seed
    24            frames, the last one being a commit frame
                  zeroes up to the next multiple of 8

A frame:

    0       4     bytes of payload, u32
    4       1     type
    5       8     term, u64
    13      8     index, u64
    21            payload
                  CRC32C of all of the above, continued from the frame before (in whatever segment), u32

    type           term            index            payload
    1 entry        its term        its index        its data
    2 hard state   current term    commit index     candidate voted for or 0, u32; 1 if recovering, else 0, u8
    3 restart      snapshot term   snapshot index   none: the log begins anew after an installed snapshot
    4 base         snapshot term   snapshot index   none: repeats the newest restart at the head of a segment
    5 commit       0               batch sequence   bytes from the batch's start to this frame, u32
    6 close        0               0                none: the process ended the log on purpose

Nothing is written after a batch until its sync returned. So bytes after a bad batch prove that it was whole once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import google_crc32c
import msgspec

from pidkeeper.controller.raft.messages import MAX_ENTRIES_PER_MESSAGE, MAX_ENTRY_BYTES, HardState

ENTRY: Final = 1
HARD_STATE: Final = 2
RESTART: Final = 3
BASE: Final = 4
COMMIT: Final = 5
CLOSE: Final = 6
TYPE_NAMES: Final = {
    ENTRY: "entry",
    HARD_STATE: "hard state",
    RESTART: "restart",
    BASE: "base",
    COMMIT: "commit",
    CLOSE: "close",
}

ALIGNMENT: Final = 8
_MAGIC: Final = b"PIDBATCH"
_BATCH_HEAD: Final = struct.Struct(">8sQI")
_BATCH_HEAD_BYTES: Final = _BATCH_HEAD.size + 4
_FRAME_HEAD: Final = struct.Struct(">IBQQ")
_FRAME_OVERHEAD: Final = _FRAME_HEAD.size + 4
_HARD_STATE: Final = struct.Struct(">IB")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_EMPTY_BATCH_BYTES: Final = _BATCH_HEAD_BYTES + _FRAME_OVERHEAD + _U32.size

MAX_BATCH_BYTES: Final = MAX_ENTRIES_PER_MESSAGE * (MAX_ENTRY_BYTES + _FRAME_OVERHEAD) + 4096
"""One full AppendEntries and a hard state; the length field holds sixteen times as much."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame without its framing."""

    type: int
    term: int
    index: int
    payload: bytes = b""


class Batch(NamedTuple):
    """A whole batch as read: `frames` with their byte offsets (the commit frame left out), `end`, the last CRC."""

    sequence: int
    frames: list[tuple[int, Frame]]
    end: int
    chain: int


class BadBatch(Exception):  # noqa: N818 - a finding, judged by the caller
    """Bytes that are not the batch that was due. `extent` is from where on any byte is a later write, if known."""

    def __init__(self, offset: int, reason: str, extent: int | None = None) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason
        self.extent = extent


def hard_state_frame(state: HardState) -> Frame:
    """The frame that keeps `state`."""
    return Frame(HARD_STATE, state.term, state.commit, _HARD_STATE.pack(state.vote or 0, state.recovering))


def decode_hard_state(frame: Frame) -> HardState:
    """The inverse of `hard_state_frame`. Raises ValueError for another payload than that makes."""
    if len(frame.payload) != _HARD_STATE.size:
        raise ValueError(f"a hard state of {len(frame.payload)} bytes where {_HARD_STATE.size} were due")
    vote, recovering = _HARD_STATE.unpack(frame.payload)
    return HardState(term=frame.term, vote=vote or None, commit=frame.index, recovering=bool(recovering))


def batch_bytes(frames: Sequence[Frame]) -> int:
    """Bytes that `encode_batch` will make of `frames`."""
    size = _EMPTY_BATCH_BYTES + len(frames) * _FRAME_OVERHEAD + sum([len(frame.payload) for frame in frames])
    return size + -size % ALIGNMENT


def encode_batch(frames: Sequence[Frame], sequence: int, position: int, seed: int, chain: int) -> tuple[bytes, int]:
    """The bytes of a batch at `position`, and the CRC that the next batch continues from."""
    extend = google_crc32c.extend
    size = batch_bytes(frames)
    assert size <= MAX_BATCH_BYTES, f"a batch of {size} bytes is above the limit of {MAX_BATCH_BYTES}"
    head = _BATCH_HEAD.pack(_MAGIC, sequence, size)
    parts = [head, _U32.pack(extend(seed, _U64.pack(position) + head))]
    written = _BATCH_HEAD_BYTES
    for frame in frames:
        body = _FRAME_HEAD.pack(len(frame.payload), frame.type, frame.term, frame.index) + frame.payload
        chain = extend(chain, body)
        parts += (body, _U32.pack(chain))
        written += len(body) + 4
    body = _FRAME_HEAD.pack(_U32.size, COMMIT, 0, sequence) + _U32.pack(written)
    chain = extend(chain, body)
    parts += (body, _U32.pack(chain), bytes(-(written + len(body) + 4) % ALIGNMENT))
    return b"".join(parts), chain


def decode_batch(data: bytes, position: int, sequence: int, seed: int, chain: int) -> Batch | None:
    """The batch at `position`, or None if nothing but zeroes follows: the unwritten end.

    Raises BadBatch if it is not the whole batch number `sequence`.
    """
    end = position + _decode_head(data, position, sequence, seed)
    if end == position:
        return None
    frames: list[tuple[int, Frame]] = []
    offset = position + _BATCH_HEAD_BYTES
    while True:
        frame, following, chain = _decode_frame(data, offset, end, chain)
        if frame.type == COMMIT:
            break
        frames.append((offset, frame))
        offset = following
    if frame.index != sequence or frame.payload != _U32.pack(offset - position):
        raise BadBatch(offset, f"the commit frame does not close batch {sequence}", end)
    if end - following >= ALIGNMENT or any(data[following:end]):
        raise BadBatch(following, "the padding after the commit frame is not what was written", end)
    return Batch(sequence, frames, end, chain)


def _decode_head(data: bytes, position: int, sequence: int, seed: int) -> int:
    """Bytes of the batch at `position`; 0 at the unwritten end."""
    if not any(data[position : position + _BATCH_HEAD_BYTES]) and first_written(data, position) is None:
        return 0
    found = _read_head(data, position, seed)
    if found is None:
        raise BadBatch(position, "there is no batch head here")
    found_sequence, size = found
    if found_sequence != sequence:
        raise BadBatch(position, f"this is batch {found_sequence} where batch {sequence} was due", position)
    if position + size > len(data):
        raise BadBatch(len(data), f"the file ends within batch {sequence}", position + size)
    return size


def _read_head(data: bytes, position: int, seed: int) -> tuple[int, int] | None:
    """Sequence number and size, if there is a good batch head at `position`."""
    head = data[position : position + _BATCH_HEAD.size]
    checksum = data[position + _BATCH_HEAD.size : position + _BATCH_HEAD_BYTES]
    if len(checksum) < _U32.size or checksum != _U32.pack(google_crc32c.extend(seed, _U64.pack(position) + head)):
        return None
    magic, sequence, size = _BATCH_HEAD.unpack(head)
    if magic != _MAGIC or not _EMPTY_BATCH_BYTES <= size <= MAX_BATCH_BYTES or size % ALIGNMENT:
        return None
    return sequence, size


def _decode_frame(data: bytes, offset: int, end: int, chain: int) -> tuple[Frame, int, int]:
    """A frame, the offset after it, its CRC."""
    payload_at = offset + _FRAME_HEAD.size
    if payload_at + 4 > end:
        raise BadBatch(offset, "the batch ends without a commit frame", end)
    size, kind, term, index = _FRAME_HEAD.unpack_from(data, offset)
    checksum_at = payload_at + size
    if checksum_at + 4 > end:
        raise BadBatch(offset, f"a frame of {size} bytes reaches beyond its batch", end)
    chain = google_crc32c.extend(chain, data[offset:checksum_at])
    if data[checksum_at : checksum_at + 4] != _U32.pack(chain):
        raise BadBatch(offset, "the checksum of a frame does not match its content", end)
    return Frame(kind, term, index, data[payload_at:checksum_at]), checksum_at + 4, chain


def first_written(data: bytes, position: int) -> int | None:
    """Where the first byte from `position` on is that is not zero."""
    rest = data[position:].lstrip(b"\0")
    return len(data) - len(rest) if rest else None


def proof_of_later_write(data: bytes, position: int, bad: BadBatch, seed: int) -> int | None:
    """Where something is that was written after the bad batch at `position`: then that batch was durable once.

    With a good head the batch's extent is known, and any byte after it is the proof: a segment starts out as zeroes.
    Otherwise only a batch head with a good checksum is one.
    """
    if bad.extent is not None:
        return first_written(data, bad.extent)
    found = data.find(_MAGIC, position + 1)
    while found >= 0:
        if found % ALIGNMENT == 0 and _read_head(data, found, seed) is not None:
            return found
        found = data.find(_MAGIC, found + 1)
    return None
