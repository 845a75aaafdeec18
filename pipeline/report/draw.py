"""The report of an audit, from its verdict and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.report.aggregates import draw_from
from pidkeeper.pipeline.report.render import render
from pidkeeper.pipeline.verdict import Verdict

THREADS: Final = 2


def draw(verdict: Verdict, tables: Mapping[str, Any]) -> str:
    """The page; `tables`: those of `tables.TABLES`, as Arrow tables or datasets."""
    with connect(threads=THREADS) as con:
        for name, table in tables.items():
            con.register(name, table)
        return render(verdict, draw_from(con, verdict))
