"""Evidence as tables of a connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from pidkeeper.pipeline.engine.duck import make_tables
from pidkeeper.pipeline.engine.engine import Named

AT_ONCE_BYTES: Final = 4 << 20
"""Batches wait until they have so many together: each statement takes longer than a few rows do."""


def load(con: Any, found: Iterable[Named], schemas: Mapping[str, Any]) -> None:
    """Put evidence into tables by `schemas`, which are made also where there is none; other evidence is left out."""
    make_tables(con, schemas)
    add(con, (named for named in found if named[0] in schemas))


def add(con: Any, found: Iterable[Named]) -> None:
    """Put evidence into tables that are there; those of its columns that it does not have are null."""
    waiting: dict[tuple[str, Any], list[Any]] = {}
    size = 0
    for name, batch in found:
        if batch.num_rows:
            waiting.setdefault((name, batch.schema), []).append(batch)
            size += batch.nbytes
        if size >= AT_ONCE_BYTES:
            _insert(con, waiting)
            size = 0
    _insert(con, waiting)


def _insert(con: Any, waiting: dict[tuple[str, Any], list[Any]]) -> None:
    for (name, _), batches in waiting.items():
        con.register("rows", pa.Table.from_batches(batches))
        con.execute(f'insert into "{name}" by name from rows')
        con.unregister("rows")
    waiting.clear()
