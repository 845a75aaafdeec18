"""The report of an audit, from its verdict and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.files.parquet import ParquetFiles
from pidkeeper.pipeline.report.aggregates import draw_from
from pidkeeper.pipeline.report.render import render
from pidkeeper.pipeline.verdict import Verdict

THREADS: Final = 2


def draw(verdict: Verdict, tables: Mapping[str, Any], blocks: ParquetFiles) -> str:
    """The page; `tables`: those of `tables.WRITTEN`, as Arrow tables."""
    with connect(threads=THREADS) as con:
        blocks.show(con, "blocks")
        for name, table in tables.items():
            con.register(name, table)
        return render(verdict, draw_from(con, verdict))
