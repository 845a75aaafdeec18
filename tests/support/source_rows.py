"""What a source gives, read without a session: the same planning and the same functions that run on an executor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource

from pidkeeper.pipeline.formats.archive import Piece
from pidkeeper.pipeline.sources.archive_spans import read_pieces
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import ROW_BYTES, decode_row


def table(source_type: type[DataSource], path: Path, name: str, **options: str) -> list[dict[str, Any]]:
    """The rows of one table whose rows are tuples, by column."""
    source = source_type({"path": str(path), "table": name, **options})
    schema: Any = source.schema()
    reader = source.reader(schema)
    found: list[Any] = [row for partition in reader.partitions() for row in reader.read(partition)]
    return [dict(zip(schema.fieldNames(), row, strict=True)) for row in found]


def piece_blocks(partitions: Iterable[Any]) -> list[AllocatedBlock]:
    """The blocks of partitions of archive rows, decoded by `archive_format`. Raises AssertionError for a problem."""
    found = []
    for partition in partitions:
        for piece in read_pieces(partition.value):
            assert isinstance(piece, Piece), piece
            data = piece.file.rows
            decoded = [decode_row(data[at : at + ROW_BYTES]) for at in range(0, len(data), ROW_BYTES)]
            found += [row for row in decoded if piece.from_offset <= row.offset < piece.to_offset]
    return found
