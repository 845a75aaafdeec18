"""Archived blocks as Arrow record batches, column by column from the rows' bytes: no Python for a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pidkeeper.pipeline.formats.archive import Piece
from pidkeeper.pipeline.formats.archive_rows import piece_rows

BATCH_ROWS: Final = 64 * 1024
"""Rows in a record batch: 16 of them are a file of the largest size."""

_NUMBERS: Final = {
    "first_id": np.int64,
    "last_id": np.int64,
    "offset": np.int64,
    "broker_id": np.int32,
    "broker_epoch": np.int64,
    "timestamp_ms": np.int64,
}


def record_batches(piece: Piece, member: str, file: str, schema: Any) -> Iterator[Any]:
    """The rows of a piece with the columns of `schemas.ARCHIVE_BLOCKS`; `schema` is the Arrow schema that is due."""
    rows, positions = piece_rows(piece)
    texts = {"member": member, "cluster_id": piece.file.header.cluster_id, "file": file}
    for start in range(0, len(rows), BATCH_ROWS):
        part = rows[start : start + BATCH_ROWS]
        columns: dict[str, Any] = {name: pa.repeat(pa.scalar(text), len(part)) for name, text in texts.items()}
        columns["position"] = pa.array(positions[start : start + BATCH_ROWS])
        columns |= {name: pa.array(part[name].astype(kind)) for name, kind in _NUMBERS.items()}
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
