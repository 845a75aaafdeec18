"""Which allocated block a producer ID lies in: an interval join that sorts, and compares no pairs.

IDs and blocks' first IDs are cut into ranges of 2^20. Within a range, sorted by ID, a running maximum of the last IDs
of the blocks begun so far says whether any reaches the ID: such a block exists if and only if that maximum does, also
where blocks overlap. Blocks begun in earlier ranges come in as one value a range, a running maximum over ranges.

Cost: n distinct IDs and b distinct blocks take a sort of n + b rows, spread over ranges; the running maximum over the
ranges is one task with one row for each 2^20 IDs in use; a task sorts at most 2^20 IDs and the blocks begun there.
Both tables are computed twice, so they should be kept ones.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.quorum.history import distinct_blocks
from pidkeeper.pipeline.inputs import AuditInputs

RANGE_BITS: Final = 20


def allocated_blocks(inputs: AuditInputs) -> DataFrame:
    """first_id, last_id and broker_id of each committed block, and of each version of it if members disagree."""
    return distinct_blocks(inputs).select("first_id", "last_id", "broker_id")


def with_block(ids: DataFrame, blocks: DataFrame) -> DataFrame:
    """`ids`, distinct by producer_id, with `block`: last_id, first_id and broker_id of a block around it, else null."""
    block = F.struct("last_id", "first_id", "broker_id")
    starts = blocks.select(F.col("first_id").alias("producer_id"), F.lit(0).alias("kind"), block.alias("reach"))
    points = ids.withColumn("kind", F.lit(1)).unionByName(starts, allowMissingColumns=True)
    id_range = F.shiftright("producer_id", RANGE_BITS).alias("id_range")
    points = points.select("*", id_range)
    up = Window.orderBy("id_range").rowsBetween(Window.unboundedPreceding, -1)
    begun = starts.groupBy(id_range).agg(F.max("reach").alias("reach"))
    ranges = begun.join(ids.select(id_range).distinct(), "id_range", "full")
    carried = ranges.select("id_range", F.max("reach").over(up).alias("carried"))
    within = Window.partitionBy("id_range").orderBy("producer_id", "kind")
    reach = F.max("reach").over(within.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    met = points.withColumn("reach", reach).where("kind = 1").join(carried, "id_range")
    furthest = F.greatest("reach", "carried")
    around = F.when(furthest["last_id"] >= F.col("producer_id"), furthest)
    return met.withColumn("block", around).drop("kind", "id_range", "reach", "carried")
