"""The running maximum by ranges is that of one window over all rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.quorum_tables import tiny_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.rows import before, with_highest_before


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with tiny_tables(spark) as tiny:
        yield tiny


def test_ranges_give_what_one_window_over_all_rows_gives(session: SparkSession) -> None:
    """Ranges of four over keys that are null, negative, equal and far apart, and maxima carried over empty ranges."""
    chosen = random.Random(7)
    keys = [None, -9, -4, 0, 3, 4, 5, 40, 41, 1 << 62]
    rows = [(chosen.choice(keys), number, chosen.randrange(50), chosen.randrange(9)) for number in range(120)]
    frame = session.createDataFrame(rows, "key long, number long, high long, other long")
    frame = frame.withColumn("value", F.struct("high", "other"))
    plain = frame.withColumn("highest", F.max("value").over(before(F.asc_nulls_first("key"), "number")))
    ranged = with_highest_before(frame, {"highest": "value"}, "key", "number", bits=2)
    assert ranged.columns == plain.columns
    assert ranged.orderBy("number").collect() == plain.orderBy("number").collect()
