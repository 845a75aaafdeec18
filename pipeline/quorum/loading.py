"""Evidence as tables of a connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from pidkeeper.pipeline.engine.engine import Named


def load(con: Any, found: Iterable[Named], schemas: Mapping[str, Any]) -> None:
    """Put evidence into tables by `schemas`, which are made also where there is none; other evidence is left out."""
    for name, schema in schemas.items():
        con.register("rows", schema.empty_table())
        con.execute(f'create table if not exists "{name}" as from rows')
        con.unregister("rows")
    for name, batch in found:
        if name in schemas and batch.num_rows:
            con.register("rows", pa.Table.from_batches([batch]))
            con.execute(f'insert into "{name}" by name from rows')
            con.unregister("rows")
