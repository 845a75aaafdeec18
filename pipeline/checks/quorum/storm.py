"""Brokers that take blocks as in a restart loop (KIP-730 leaves the rate to the controller)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.limits import DEFAULT, Limits
from pidkeeper.pipeline.checks.quorum.history import blocks_of_brokers
from pidkeeper.pipeline.checks.quorum.rows import findings
from pidkeeper.pipeline.findings import WARNING
from pidkeeper.pipeline.inputs import AuditInputs

_MINUTE_MS: Final = 60_000


def storm(inputs: AuditInputs, limits: Limits = DEFAULT) -> DataFrame:
    """Brokers above `storm_blocks_per_minute` in some minute, or `storm_ratio` times the mean of the others.

    One finding for each broker, with its busiest minute, by the leaders' clocks.
    """
    brokers = (
        _within_minutes(blocks_of_brokers(inputs))
        .groupBy("broker_id")
        .agg(
            F.sum(F.when(F.col("more") > 0, F.col("more"))).alias("blocks"),
            F.max(F.struct("in_minute", -F.col("timestamp_ms"))).alias("peak"),
            F.min("first_id").alias("first_id"),
            F.max("last_id").alias("last_id"),
        )
    )
    everyone = Window.partitionBy()
    others = (F.sum("blocks").over(everyone) - F.col("blocks")) / (F.count("*").over(everyone) - 1)
    several = F.count("*").over(everyone) > 1
    brokers = brokers.withColumn("others", F.when(several, others)).withColumn("peak_blocks", F.col("peak.in_minute"))
    fast = F.col("peak_blocks") > limits.storm_blocks_per_minute
    greedy = (F.col("blocks") >= limits.storm_least_blocks) & (F.col("blocks") > limits.storm_ratio * F.col("others"))
    shared = F.when(F.col("others").isNotNull(), F.format_string("; the others took %.1f on average", F.col("others")))
    return findings(
        brokers.filter(fast | greedy),
        "storm",
        WARNING,
        subject=F.format_string("broker %d", F.col("broker_id")),
        first_id=F.col("first_id"),
        last_id=F.col("last_id"),
        broker_id=F.col("broker_id"),
        timestamp_ms=-F.col("peak")["col2"],
        detail=F.format_string(
            "broker %d took %d blocks, %d of them within one minute%s; is it in a restart loop?",
            F.col("broker_id"),
            F.col("blocks"),
            F.col("peak_blocks"),
            F.coalesce(shared, F.lit("")),
        ),
    )


def _within_minutes(blocks: DataFrame) -> DataFrame:
    """Each block twice, when it was given and a minute later: `in_minute` counts one up, and then down again.

    Cost: one sort of both by broker and time, however dense a minute is.
    """
    given = blocks.select("broker_id", "timestamp_ms", "first_id", "last_id", F.lit(1).alias("more"))
    later = F.try_add(F.col("timestamp_ms"), F.lit(_MINUTE_MS)).alias("timestamp_ms")
    past = blocks.select("broker_id", later, F.lit(-1).alias("more"))
    order = Window.partitionBy("broker_id").orderBy("timestamp_ms", "more").rowsBetween(Window.unboundedPreceding, 0)
    counted = given.unionByName(past, allowMissingColumns=True)
    return counted.withColumn("in_minute", F.sum("more").over(order))
