"""`python -m bench.spark_start MASTER`: a session of the audit starts, sends one row to Python, and ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def main(master: str) -> None:
    """What every use of Spark with Python costs."""
    from pidkeeper.pipeline.session import session

    with session(master) as spark:
        assert spark.range(1).mapInArrow(_same, "id long").toArrow().num_rows == 1


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    main(*sys.argv[1:])
