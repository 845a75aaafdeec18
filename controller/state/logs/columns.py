"""Columns of integers: arrays in memory, little-endian bytes in a snapshot."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

Columns = tuple["array[int]", ...]


def empty(codes: str) -> Columns:
    """A column for each type code of `array`."""
    return tuple(array(code) for code in codes)


def copied(columns: Columns) -> Columns:
    """The same, for somebody else to append to."""
    return tuple(column[:] for column in columns)


def packed(columns: Columns) -> tuple[bytes, ...]:
    """As a snapshot keeps them."""
    return tuple(_little_endian(column).tobytes() for column in columns)


def unpacked(codes: str, packed: Sequence[bytes]) -> Columns:
    """From a snapshot. Raises ValueError if there are more or fewer columns, or they differ in their length."""
    if len(packed) != len(codes):
        raise ValueError(f"{len(packed)} columns, where {len(codes)} are kept")
    columns = empty(codes)
    for column, data in zip(columns, packed, strict=True):
        column.frombytes(data)
        if sys.byteorder == "big":
            column.byteswap()
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"columns of {[len(column) for column in columns]} rows")
    return columns


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
