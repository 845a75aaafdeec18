"""The index of a segment: where offsets and times are in it, and which of its transactions were aborted. Pure.

It lies beside the segment, so that a segment is read with these two alone: a CRC-32C of four bytes, big-endian, and
what it covers, a msgpack array (`_Stored`). Like Kafka's indices it has an entry every few KiB, not for every batch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import google_crc32c
import msgspec

from pidkeeper.protocol.log_messages import AbortedTransaction
from pidkeeper.protocol.logs import MAX_INT64

INDEX_INTERVAL_BYTES: Final = 4096
"""Between two entries, unless one batch is larger (Kafka's `index.interval.bytes`)."""

MAX_INDEX_BYTES: Final = 8 << 20
"""Of 27 bytes at most an entry and an aborted transaction: the 8,192 entries of the largest object, and the 200,000
transactions that the quorum keeps of all logs, take 6 MB."""

NO_TIME: Final = -MAX_INT64 - 1
"""Where no record comes before: below every timestamp."""

_CRC_BYTES: Final = 4
_FIXED_BYTES: Final = 1024
"""Of one in memory, beside its columns."""

_Column = list[int]


class IndexDamagedError(ValueError):
    """Bytes that are no index, or not the one of this segment."""


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is stored: the segment's offsets and size, and the columns of the entries and of aborted transactions."""

    version: Literal[0]
    base_offset: int
    end_offset: int
    size: int
    offsets: _Column
    positions: _Column
    latest: _Column
    producer_ids: _Column
    first_offsets: _Column
    marker_offsets: _Column


class Span(NamedTuple):
    """Bytes of a segment, from the beginning of a batch to the end of one."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start


class SegmentIndex:
    """An index in memory, of a segment of `size` bytes. `bytes`: what it takes itself.

    An entry is a batch's offset and position, and the latest timestamp of the records before it, NO_TIME for none.
    """

    __slots__ = ("_aborted", "_latest", "_offsets", "_positions", "base_offset", "bytes", "end_offset", "size")

    def __init__(
        self,
        base_offset: int,
        end_offset: int,
        size: int,
        entries: Sequence[Sequence[int]],
        aborted: Iterable[AbortedTransaction],
    ) -> None:
        """`entries`: three columns, offset, position and latest timestamp, ascending."""
        self.base_offset, self.end_offset, self.size = base_offset, end_offset, size
        self._offsets, self._positions, self._latest = (array("q", column) for column in entries)
        rows = sorted((one.marker_offset, one.producer_id, one.first_offset) for one in aborted)
        self._aborted = [array("q", column) for column in zip(*rows, strict=True)] or [array("q")] * 3
        columns = (self._offsets, self._positions, self._latest, *self._aborted)
        self.bytes = _FIXED_BYTES + sum(len(column) * column.itemsize for column in columns)

    # Questions.

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """All aborted transactions that have something in the segment, in the order of their markers."""
        return self._transactions(0, MAX_INT64)

    def span(self, offset: int, max_bytes: int) -> Span:
        """What to read for `max_bytes` from the batch that holds an offset on; that one is in it, whatever its size."""
        assert self.base_offset <= offset < self.end_offset, f"{offset} is not in this segment"
        start, end = self._entry(bisect_right(self._offsets, offset) - 1)
        last = bisect_right(self._positions, start + max_bytes) - 1
        whole = self.size if self.size <= start + max_bytes else self._positions[last]
        return Span(start, max(end, whole))

    def spans_at(self, timestamp: int, offset: int) -> Iterable[Span]:
        """What to read, one after the other, for the first record from `offset` on with that time or later."""
        first = max(bisect_left(self._latest, timestamp) - 1, bisect_right(self._offsets, offset) - 1, 0)
        return (Span(*self._entry(row)) for row in range(first, len(self._offsets)))

    def aborted_between(self, offset: int, last_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have something between two offsets, both included (as KIP-98 has it)."""
        return self._transactions(bisect_left(self._aborted[0], offset), last_offset)

    def _transactions(self, first: int, last_offset: int) -> list[AbortedTransaction]:
        rows = zip(*(column[first:] for column in self._aborted), strict=True)
        return [AbortedTransaction(who, began, marker) for marker, who, began in rows if began <= last_offset]

    def _entry(self, row: int) -> tuple[int, int]:
        """From an entry's position to that of the next one."""
        behind = self._positions[row + 1] if row + 1 < len(self._positions) else self.size
        return self._positions[row], behind

    # Bytes.

    def encode(self) -> bytes:
        """As it is stored. Raises ValueError if it has more than MAX_INDEX_BYTES."""
        markers, producer_ids, firsts = (column.tolist() for column in self._aborted)
        columns = self._offsets.tolist(), self._positions.tolist(), self._latest.tolist()
        stored = _Stored(0, self.base_offset, self.end_offset, self.size, *columns, producer_ids, firsts, markers)
        data: bytes = msgspec.msgpack.encode(stored)
        if len(data) + _CRC_BYTES > MAX_INDEX_BYTES:
            raise ValueError(f"an index has {MAX_INDEX_BYTES} bytes at most, not {len(data) + _CRC_BYTES}")
        crc: int = google_crc32c.value(data)
        return crc.to_bytes(_CRC_BYTES, "big") + data


def decode_index(data: bytes) -> SegmentIndex:
    """The index that `data` is. Raises IndexDamagedError."""
    covered = data[_CRC_BYTES:]
    if len(data) < _CRC_BYTES or google_crc32c.value(covered) != int.from_bytes(data[:_CRC_BYTES], "big"):
        raise IndexDamagedError("the index has another CRC than its bytes")
    try:
        stored = msgspec.msgpack.decode(covered, type=_Stored)
        return _checked(stored)
    except (msgspec.DecodeError, OverflowError, ValueError) as error:
        raise IndexDamagedError(f"the index makes no sense: {error}") from error


def _checked(stored: _Stored) -> SegmentIndex:
    offsets, positions, latest = stored.offsets, stored.positions, stored.latest
    if not len(offsets) == len(positions) == len(latest) >= 1:
        raise ValueError(f"{len(offsets)} offsets, {len(positions)} positions, {len(latest)} times")
    if not len(stored.producer_ids) == len(stored.first_offsets) == len(stored.marker_offsets):
        raise ValueError("columns of aborted transactions of several lengths")
    if offsets[0] != stored.base_offset or positions[0] != 0:
        raise ValueError(f"it begins at offset {offsets[0]} and position {positions[0]}")
    if not (_rises([*offsets, stored.end_offset]) and _rises([*positions, stored.size])):
        raise ValueError("its entries do not rise to its end")
    if latest != sorted(latest):
        raise ValueError("its times fall")
    rows = zip(stored.producer_ids, stored.first_offsets, stored.marker_offsets, strict=True)
    aborted = [AbortedTransaction(*row) for row in rows]
    return SegmentIndex(stored.base_offset, stored.end_offset, stored.size, (offsets, positions, latest), aborted)


def _rises(column: Sequence[int]) -> bool:
    return all(one < following for one, following in pairwise(column))
