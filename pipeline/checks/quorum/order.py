"""Blocks in the order of the log and in the order of IDs: what does not follow on what came before.

In a lawful history without a jump the two orders are one, and each block begins just above the one before it. What
differs from that is all that `overlap`, `regress` and `gap` look at.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.history import KEY, WHOLE, history, located
from pidkeeper.pipeline.checks.quorum.rows import ID_RANGE_BITS, with_highest_before
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.inputs import AuditInputs

_ROLES = ("block", "highest", "other")


@derived
def in_log_order(inputs: AuditInputs) -> DataFrame:
    """KEY and `last_id` of each block, and `highest`: `last_id` and KEY of the one before it that reached farthest.

    A block without an offset is not in this order, so it has no `highest`.
    """
    blocks = history(inputs).select(*KEY, "last_id")
    reach = F.when(F.col("offset").isNotNull(), F.struct("last_id", *KEY))
    return with_highest_before(blocks.withColumn("_reach", reach), {"highest": "_reach"}, "offset").drop("_reach")


@derived
def out_of_order(inputs: AuditInputs) -> DataFrame:
    """The blocks that share IDs with one before in order of ID, fall in the log, or begin behind a gap.

    KEY of the `block`, of `highest` and of `other`, which reaches farthest of those before it in order of ID;
    `gap_from`: the first ID of the gap below it, else null; `gap_offset`: the offset of the block below the gap, -1
    without one. A block that did not raise the next ID has no gap below it: it is `overlap` or `regress` that has it.
    """
    rising = F.col("offset").isNull() | F.col("highest").isNull() | (F.col("last_id") > F.col("highest.last_id"))
    blocks = in_log_order(inputs).withColumns(
        {
            "_rising": rising,
            "_reach": F.struct("last_id", *KEY),
            "_risen": F.when(rising, F.struct("last_id", "offset")),
        }
    )
    values = {"other": "_reach", "below": "_risen"}
    met = with_highest_before(blocks, values, "first_id", "last_id", "offset", bits=ID_RANGE_BITS)
    gap_from = F.coalesce(F.col("below.last_id"), F.lit(-1)) + 1
    gap = F.col("_rising") & (gap_from < F.col("first_id"))
    falls = F.col("last_id") < F.col("highest.first_id")
    shares = F.col("other.last_id") >= F.col("first_id")
    return met.filter(gap | falls | shares).select(
        F.struct(*KEY).alias("block"),
        _key("highest").alias("highest"),
        _key("other").alias("other"),
        F.when(gap, gap_from).alias("gap_from"),
        F.when(F.col("below").isNull(), F.lit(-1).cast("long")).otherwise(F.col("below.offset")).alias("gap_offset"),
    )


@derived
def order_faults(inputs: AuditInputs) -> DataFrame:
    """`out_of_order` with `block`, `highest` and `other` in full: BLOCK and PLACE, null where there is none."""
    found = out_of_order(inputs).withColumnsRenamed({role: f"_{role}" for role in _ROLES})
    keys = F.array(*[f"_{role}" for role in _ROLES])
    asked = found.select("*", F.posexplode(keys).alias("_role", "_key")).filter("_key is not null")
    blocks = history(inputs).select(F.struct(*KEY).alias("_key"), F.struct(*WHOLE).alias("_whole"))
    told = asked.join(blocks, "_key").groupBy(*found.columns)
    roles = [F.max(F.when(F.col("_role") == at, F.col("_whole"))).alias(role) for at, role in enumerate(_ROLES)]
    return located(told.agg(*roles).drop(*[f"_{role}" for role in _ROLES]), inputs, *_ROLES)


def _key(reach: str) -> Column:
    return F.when(F.col(reach).isNotNull(), F.struct(*[F.col(f"{reach}.{name}") for name in KEY]))
