"""Evidence as tables of a connection."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.engine import Named


def load(con: Any, found: Iterable[Named], schemas: Mapping[str, Any]) -> None:
    """Put evidence into tables by `schemas`, which are made also where there is none; other evidence is left out."""
    # As one text: small audits make more tables than they have rows for.
    con.execute(
        "".join(f'create table if not exists "{name}" ({_columns(schema)});' for name, schema in schemas.items())
    )
    for name, batch in found:
        if name in schemas and batch.num_rows:
            con.register("rows", pa.Table.from_batches([batch]))
            con.execute(f'insert into "{name}" by name from rows')
            con.unregister("rows")


@functools.cache
def _columns(schema: Any) -> str:
    """The columns of a table as DuckDB would make it from rows of an Arrow schema."""
    with connect() as con:
        con.register("rows", schema.empty_table())
        return ", ".join(f'"{name}" {kind}' for name, kind, *_ in con.execute("describe rows").fetchall())
