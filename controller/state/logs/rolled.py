"""The segments of one partition's log: the part of it that agents rolled, in the order of its offsets."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pidkeeper.controller.state.logs.columns import copied, empty, packed, unpacked

_SEGMENTS: Final = "qqqIIq"
"""Base offset, end offset, key of the object, size, size of the index, and latest timestamp."""


class LocatedSegment(NamedTuple):
    """The offsets from `base_offset` to `end_offset - 1` of a log, in the object `key`. Sizes are in bytes."""

    base_offset: int
    end_offset: int
    key: int
    size: int
    index_size: int
    max_timestamp: int


class Segments:
    """Segments of one log, each of which begins where the one before it ends. `size`: bytes of all, without indices."""

    __slots__ = ("_columns", "size")

    def __init__(self) -> None:
        self._columns = empty(_SEGMENTS)
        self.size = 0

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[LocatedSegment]:
        return map(LocatedSegment._make, zip(*self._columns, strict=True))

    def clone(self) -> Segments:
        """An equal one, to be changed for itself."""
        other = Segments()
        other._columns, other.size = copied(self._columns), self.size
        return other

    # Changes.

    def append(self, segment: LocatedSegment) -> None:
        """One more, behind all others."""
        assert not len(self) or self._columns[1][-1] == segment.base_offset, f"L7: {segment} does not follow the last"
        for column, value in zip(self._columns, segment, strict=True):
            column.append(value)
        self.size += segment.size

    def cut_from(self, first: int) -> array[int]:
        """Without those from the index `first` on; the keys of their objects."""
        return self._cut(slice(first, None))

    def cut_below(self, offset: int) -> array[int]:
        """Without those that end at or below an offset; the keys of their objects."""
        return self._cut(slice(0, bisect_right(self._columns[1], offset)))

    def _cut(self, rows: slice) -> array[int]:
        keys = self._columns[2][rows]
        self.size -= sum(self._columns[3][rows])
        for column in self._columns:
            del column[rows]
        return keys

    # Questions.

    def keys(self) -> array[int]:
        """The key of each one's object."""
        return self._columns[2]

    def beginning_at(self, offset: int) -> int | None:
        """The index of the one that begins at an offset."""
        bases = self._columns[0]
        found = bisect_left(bases, offset)
        return found if found < len(bases) and bases[found] == offset else None

    def holding(self, offset: int) -> LocatedSegment | None:
        """The one that an offset is in."""
        found = bisect_right(self._columns[1], offset)
        return self._row(found) if found < len(self) and self._columns[0][found] <= offset else None

    def trailing(self, most: int) -> list[LocatedSegment]:
        """The last ones, ascending."""
        return [self._row(row) for row in range(max(len(self) - most, 0), len(self))]

    def first_at(self, timestamp: int) -> LocatedSegment | None:
        """The first one with a record of that time or later."""
        found = next((row for row, latest in enumerate(self._columns[5]) if latest >= timestamp), None)
        return None if found is None else self._row(found)

    def latest(self) -> LocatedSegment | None:
        """The first one of those with the latest record."""
        timestamps = self._columns[5]
        return self._row(timestamps.index(max(timestamps))) if timestamps else None

    def _row(self, row: int) -> LocatedSegment:
        return LocatedSegment._make(column[row] for column in self._columns)

    # Snapshots.

    def packed(self) -> tuple[bytes, ...]:
        """As a snapshot keeps them."""
        return packed(self._columns)

    def restore(self, columns: Sequence[bytes]) -> None:
        """Become what a snapshot kept. Raises ValueError."""
        self._columns = unpacked(_SEGMENTS, columns)
        bases, ends = self._columns[0], self._columns[1]
        if any(base >= end for base, end in zip(bases, ends, strict=True)) or bases[1:] != ends[:-1]:
            raise ValueError("the segments of a log do not follow each other")
        self.size = sum(self._columns[3])
