"""The rows of verified archive files as numpy arrays, and what of them breaks the format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pidkeeper.pipeline.formats.archive import Piece, WholeFile
from pidkeeper.pipeline.formats.problems import MALFORMED, Problem
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID, OWN
from pidkeeper.snapshots.archive_format import ARCHIVE_VERSION, HEADER_BYTES, ROW_BYTES

ROW_TYPE: Final = np.dtype(
    [
        ("first_id", ">i8"),
        ("last_id", ">i8"),
        ("offset", ">i8"),
        ("broker_epoch", ">i8"),
        ("timestamp_ms", ">i8"),
        ("broker_id", ">i4"),
        ("reserved", ">u4"),
    ]
)
"""A row of `snapshots.archive_format`."""


def piece_rows(piece: Piece) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The rows of a piece that can be blocks, and the byte position of each in its file.

    Whether they are in order, or overlap, is for the checks to say. A row of an offset that its file does not cover is
    in the piece with the file's end.
    """
    rows, header = _rows(piece.file), piece.file.header
    offset = rows["offset"]
    due = (offset >= piece.from_offset) & (offset < piece.to_offset)
    if piece.to_offset >= header.to_offset:
        due |= _is_outside(piece.file)
    wanted = np.flatnonzero(due & ~_is_no_block(piece.file))
    return rows[wanted], (wanted * ROW_BYTES + HEADER_BYTES).astype(np.int64)


def row_problems(file: WholeFile) -> Iterator[Problem]:
    """What breaks the format: rows that can be no blocks, rows out of order, a header that is not what the rows are."""
    rows = _rows(file)
    first, last, offset = rows["first_id"], rows["last_id"], rows["offset"]
    no_block = _is_no_block(file)
    strays = _is_outside(file)
    strays[1:] |= (first[1:] <= last[:-1]) | (offset[1:] <= offset[:-1])
    found = [
        _of_rows(file, no_block, "can be no blocks and were left out"),
        _of_rows(file, strays & ~no_block, "do not ascend, or lie outside of the offsets that the file is for"),
    ]
    yield from (problem for problem in found if problem is not None)
    ids = (int(first[0]), int(last[-1])) if len(rows) else (-1, -1)
    named = (file.header.first_id, file.header.last_id)
    if ids != named:
        yield Problem(file.name, MALFORMED, 0, f"the header names IDs {named[0]} to {named[1]}, the rows {ids}")


def _of_rows(file: WholeFile, bad: npt.NDArray[np.bool_], what: str) -> Problem | None:
    """The first of the rows that are `bad`, and how many are."""
    places = np.flatnonzero(bad)
    if not len(places):
        return None
    return Problem(file.name, MALFORMED, HEADER_BYTES + int(places[0]) * ROW_BYTES, f"{len(places)} rows {what}")


def _rows(file: WholeFile) -> npt.NDArray[Any]:
    return np.frombuffer(file.rows, dtype=ROW_TYPE)


def _is_no_block(file: WholeFile) -> npt.NDArray[np.bool_]:
    rows = _rows(file)
    first, last, offset = rows["first_id"], rows["last_id"], rows["offset"]
    bad = (first < 0) | (last < first) | (last >= MAX_PRODUCER_ID) | (rows["reserved"] != 0)
    bad |= (offset < 0) | (offset == np.iinfo(np.int64).max)
    given = (rows["broker_id"] >= 0) & (rows["broker_id"] <= MAX_BROKER_ID) & (rows["broker_epoch"] >= 0)
    own = (rows["broker_id"] == OWN) & (rows["broker_epoch"] == OWN) & (file.header.version >= ARCHIVE_VERSION)
    return np.asarray(bad | ~(given | own))


def _is_outside(file: WholeFile) -> npt.NDArray[np.bool_]:
    offset = _rows(file)["offset"]
    return np.asarray((offset < file.header.from_offset) | (offset >= file.header.to_offset))
