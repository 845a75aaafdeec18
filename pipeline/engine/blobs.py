"""Record batches as bytes, for Spark to carry: one value a batch, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from pidkeeper.pipeline.engine.engine import Named


def to_blob(batch: Any) -> bytes:
    """An Arrow IPC stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_blob(blob: Any) -> Any:
    """The record batch again."""
    with pa.ipc.open_stream(blob) as reader:
        return reader.read_next_batch()


def record_batch(schema: Any, rows: Sequence[Sequence[Any]]) -> Any:
    """Rows, of which there is one at least, as a record batch."""
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def evidence(name: str, schema: Any, rows: Sequence[Sequence[Any]]) -> Iterator[Named]:
    """Rows for a table of that name; nothing where there are none."""
    if rows:
        yield name, record_batch(schema, rows)
