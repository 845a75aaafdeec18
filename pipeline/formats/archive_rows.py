"""The rows of verified archive files as numpy arrays, and what of them breaks the format."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pidkeeper.pipeline.formats.archive import WholeFile
from pidkeeper.pipeline.formats.problems import MALFORMED, Problem
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID, OWN
from pidkeeper.snapshots.archive_format import ARCHIVE_VERSION, HEADER_BYTES, ROW_BYTES

_LONGS: Final = ("first_id", "last_id", "offset", "broker_epoch", "timestamp_ms")
ROW_TYPE: Final = np.dtype([*((name, ">i8") for name in _LONGS), ("broker_id", ">i4"), ("reserved", ">u4")])
"""A row of `snapshots.archive_format`."""
Columns = dict[str, npt.NDArray[Any]]
"""By the names of ROW_TYPE, in the machine's byte order."""


class FileRows:
    """The rows of a verified file by columns; `name` and `header` are those of the file.

    Whether they are in order, or overlap, is for the checks to say.
    """

    def __init__(self, file: WholeFile) -> None:
        self.name, self.header = file.name, file.header
        rows = np.frombuffer(file.rows, dtype=ROW_TYPE)
        columns = ((name, rows[name]) for name in ROW_TYPE.names or ())
        self._columns: Columns = {name: column.astype(column.dtype.newbyteorder("=")) for name, column in columns}
        self._offset = self._columns["offset"]
        self._position = np.arange(len(rows), dtype=np.int64) * ROW_BYTES + HEADER_BYTES
        self._no_block = self._is_no_block()
        self._outside = (self._offset < file.header.from_offset) | (self._offset >= file.header.to_offset)
        self._in_order = not np.any(self._no_block) and bool(np.all(self._offset[1:] > self._offset[:-1]))

    def piece(self, from_offset: int, to_offset: int) -> tuple[Columns, npt.NDArray[np.int64]]:
        """The rows of these offsets that can be blocks, and the byte position of each in the file.

        A row of an offset that the file does not cover is in the piece with the file's end.
        """
        wanted = self._wanted(from_offset, to_offset)
        return {name: column[wanted] for name, column in self._columns.items()}, self._position[wanted]

    def _wanted(self, from_offset: int, to_offset: int) -> slice | npt.NDArray[np.bool_]:
        last = to_offset >= self.header.to_offset
        if self._in_order and not (last and np.any(self._outside)):
            return slice(*np.searchsorted(self._offset, (from_offset, to_offset)))
        due = (self._offset >= from_offset) & (self._offset < to_offset)
        if last:
            due |= self._outside
        return due & ~self._no_block

    @functools.cached_property
    def problems(self) -> Sequence[Problem]:
        """What breaks the format: rows that can be no blocks, or out of order; a header that is not what the rows are.

        Each kind once: where the first is, and how many there are.
        """
        first, last = self._columns["first_id"], self._columns["last_id"]
        strays = self._outside & ~self._no_block
        strays[1:] |= ((first[1:] <= last[:-1]) | (self._offset[1:] <= self._offset[:-1])) & ~self._no_block[1:]
        found = self._named(self._no_block, "can be no blocks and were left out")
        found += self._named(strays, "do not ascend, or lie outside of the offsets that the file is for")
        header = self.header
        ids, named = (int(first[0]), int(last[-1])) if len(first) else (-1, -1), (header.first_id, header.last_id)
        if ids != named:
            detail = f"the header names IDs {named[0]} to {named[1]}, the rows {ids}"
            found.append(Problem(self.name, MALFORMED, 0, detail))
        return found

    def _named(self, bad: npt.NDArray[np.bool_], what: str) -> list[Problem]:
        places = np.flatnonzero(bad)
        if not len(places):
            return []
        first = HEADER_BYTES + int(places[0]) * ROW_BYTES
        return [Problem(self.name, MALFORMED, first, f"{len(places)} rows {what}")]

    def _is_no_block(self) -> npt.NDArray[np.bool_]:
        first, last, offset, epoch, _, broker, reserved = (self._columns[name] for name in ROW_TYPE.names or ())
        bad = (first < 0) | (last < first) | (last >= MAX_PRODUCER_ID) | (reserved != 0)
        bad |= (offset < 0) | (offset == np.iinfo(np.int64).max)
        given = (broker >= 0) & (broker <= MAX_BROKER_ID) & (epoch >= 0)
        own = (broker == OWN) & (epoch == OWN) & (self.header.version >= ARCHIVE_VERSION)
        return np.asarray(bad | ~(given | own))
