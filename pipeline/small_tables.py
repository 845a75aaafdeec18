"""Settings for tables of some thousand rows, where planning and compiling a query is nearly all of its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_ROWS: Final = 100_000
"""Up to here an audit is faster with them: 20,000 blocks of three members and as many batches took 59 and 63 s of
processor time instead of 70 and 72."""

_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""One task a stage, planned once and interpreted. They change no result."""


@contextmanager
def for_small_tables(spark: SparkSession) -> Iterator[None]:
    """Let queries of the session run so, for the time being."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
