"""The rows of verified archive files as numpy arrays, and which of them break the format."""

from __future__ import annotations

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
    """The rows of a piece that keep to the format, and the byte position of each in its file."""
    rows = np.frombuffer(piece.file.rows, dtype=ROW_TYPE)
    offset = rows["offset"]
    wanted = np.flatnonzero((offset >= piece.from_offset) & (offset < piece.to_offset) & ~_bad_rows(piece.file))
    return rows[wanted], (wanted * ROW_BYTES + HEADER_BYTES).astype(np.int64)


def row_problem(file: WholeFile) -> Problem | None:
    """The first row that breaks the format and how many do, or the header that is not what the rows are."""
    bad = np.flatnonzero(_bad_rows(file))
    if len(bad):
        position = HEADER_BYTES + int(bad[0]) * ROW_BYTES
        return Problem(file.name, MALFORMED, position, f"{len(bad)} rows are no blocks or do not ascend; left out")
    rows = np.frombuffer(file.rows, dtype=ROW_TYPE)
    found = (int(rows["first_id"][0]), int(rows["last_id"][-1])) if len(rows) else (-1, -1)
    named = (file.header.first_id, file.header.last_id)
    if found == named:
        return None
    return Problem(file.name, MALFORMED, 0, f"the header names IDs {named[0]} to {named[1]}, the rows {found}")


def _bad_rows(file: WholeFile) -> npt.NDArray[np.bool_]:
    rows = np.frombuffer(file.rows, dtype=ROW_TYPE)
    first, last, offset = rows["first_id"], rows["last_id"], rows["offset"]
    bad = (first < 0) | (last < first) | (last >= MAX_PRODUCER_ID) | (rows["reserved"] != 0)
    given = (rows["broker_id"] >= 0) & (rows["broker_id"] <= MAX_BROKER_ID) & (rows["broker_epoch"] >= 0)
    own = (rows["broker_id"] == OWN) & (rows["broker_epoch"] == OWN) & (file.header.version >= ARCHIVE_VERSION)
    bad |= ~(given | own)
    bad |= (offset < file.header.from_offset) | (offset >= file.header.to_offset)
    bad[1:] |= (first[1:] <= last[:-1]) | (offset[1:] <= offset[:-1])
    return np.asarray(bad)
