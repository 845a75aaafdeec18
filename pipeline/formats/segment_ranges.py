"""Splits a Kafka log segment into ranges of bytes between batches, so that several can read one segment.

Every byte lies in exactly one range, and so does every batch. Where the walk meets something that is no batch, what is
left becomes one range: its reader deals with it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from google_crc32c import value as crc32c

from pidkeeper.pipeline.formats.log_segment import CHUNK_BYTES, ByteRange, ReadableFile, Window
from pidkeeper.pipeline.formats.record_batch import AFTER_CRC, LEAST_LENGTH, MAGIC, PREFIX_BYTES, START

RANGE_BYTES: Final = 64 << 20
"""A segment of Kafka's default size (1 GiB) keeps 16 readers busy."""
WALK_READ_BYTES: Final = 64 << 10
"""What the walk reads at once: more would be read past where batches are large, less is a call a batch where small."""
INDEX_ENTRY: Final = struct.Struct(">ii")
"""Offset relative to the segment's base offset, byte position of a batch. Kafka writes one about every 4 KiB."""


def split(
    file: ReadableFile, size: int, *, base_offset: int | None = None, index: bytes = b"", range_bytes: int = RANGE_BYTES
) -> list[ByteRange]:
    """Ranges of about `range_bytes`, at least one. `index`: the content of the segment's `.index`, if there is one.

    The index saves walking over all batches. It is believed only where it points at a batch whose CRC is right and
    whose offset is the one it says; Kafka preallocates it, so it may end in zeros.
    """
    if size <= range_bytes:
        return [ByteRange(0, size)]
    boundaries = _from_index(file, size, index, base_offset, range_bytes) if index and base_offset is not None else None
    cuts = [(0, 0), *(boundaries or _walk(file, size, range_bytes)), (size, 0)]
    ranges = [ByteRange(start, end, following) for (start, _), (end, following) in pairwise(cuts)]
    ranges[-1] = ByteRange(ranges[-1].start, size)
    return ranges


def _walk(file: ReadableFile, size: int, range_bytes: int) -> Iterator[tuple[int, int]]:
    """Position and base offset of the first batch behind every `range_bytes`."""
    window = Window(file, size, WALK_READ_BYTES)
    position, cut = 0, range_bytes
    while position + START.size <= size:
        start = window.hold(position, START.size)
        base_offset, length, _, magic, *_ = START.unpack_from(window.data, start)
        if magic != MAGIC or length < LEAST_LENGTH:
            return
        if position >= cut:
            yield position, base_offset
            cut = position + range_bytes
        position += PREFIX_BYTES + length


def _from_index(
    file: ReadableFile, size: int, index: bytes, base_offset: int, range_bytes: int
) -> list[tuple[int, int]]:
    """The same from the index; what it says is left out where it is not true."""
    found = []
    window = Window(file, size, CHUNK_BYTES)
    cut = range_bytes
    for relative, position in INDEX_ENTRY.iter_unpack(index[: len(index) // INDEX_ENTRY.size * INDEX_ENTRY.size]):
        if cut <= position < size:
            first = _batch_offset(window, size, position)
            if first is not None and base_offset <= first <= base_offset + relative:
                found.append((position, first))
                cut = position + range_bytes
    return found


def _batch_offset(window: Window, size: int, position: int) -> int | None:
    """The base offset of the good batch at `position`; None if there is none."""
    if position + START.size > size:
        return None
    start = window.peek(position, START.size)
    base_offset, length, _, magic, crc, *_ = START.unpack_from(start)
    if magic != MAGIC or not LEAST_LENGTH <= length <= min(CHUNK_BYTES, size - position) - PREFIX_BYTES:
        return None
    batch = window.peek(position, PREFIX_BYTES + length)
    return base_offset if crc32c(batch[AFTER_CRC:]) == crc else None
