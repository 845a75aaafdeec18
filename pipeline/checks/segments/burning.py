"""Clients that take a new producer ID for next to nothing, and how many IDs ever wrote."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pipeline.checks.segments.blocks import allocated_blocks, with_block
from pipeline.checks.segments.logs import LATEST_MS
from pipeline.checks.segments.rows import findings, text
from pipeline.findings import NOTE, WARNING
from pipeline.inputs import AuditInputs

WINDOW_MS: Final = 3_600_000
FEW_BATCHES: Final = 2
MANY_PRODUCERS: Final = 100
"""A hundred clients an hour in one topic of two batches at most: a producer made for each record."""


def id_burner(
    inputs: AuditInputs,
    *,
    window_ms: int = WINDOW_MS,
    few_batches: int = FEW_BATCHES,
    many_producers: int = MANY_PRODUCERS,
) -> DataFrame:
    """WARNING: `many_producers` IDs or more that begin in a topic within `window_ms` and write `few_batches` at most.

    Windows are of the clients' or brokers' timestamps, aligned to the epoch. NOTE: for each broker how many of the IDs
    in its blocks ever wrote, in the segments that were given; retention removes others.

    Cost: two aggregations with partial ones first; one row for each ID of each partition is moved.
    """
    data = inputs.batches.where("producer_id >= 0 AND NOT is_control")
    return _bursts(data, window_ms, few_batches, many_producers).unionByName(_shares(inputs, data))


def _bursts(data: DataFrame, window_ms: int, few_batches: int, many_producers: int) -> DataFrame:
    stamp = F.when(F.col("max_timestamp_ms").between(0, LATEST_MS), F.col("max_timestamp_ms"))
    copies = data.groupBy("topic", "partition", "member", "producer_id").agg(
        F.count("*").alias("batches"), F.min(stamp).alias("timestamp_ms")
    )
    partitions = copies.groupBy("topic", "partition", "producer_id").agg(
        F.max("batches").alias("batches"), F.min("timestamp_ms").alias("timestamp_ms")
    )
    producers = partitions.groupBy("topic", "producer_id").agg(
        F.sum("batches").alias("batches"), F.min("timestamp_ms").alias("timestamp_ms")
    )
    began = F.floor(F.col("timestamp_ms") / window_ms) * window_ms
    found = (
        producers.where((F.col("batches") <= few_batches) & F.col("timestamp_ms").isNotNull())
        .groupBy("topic", began.alias("timestamp_ms"))
        .agg(
            F.count("*").alias("ids"),
            F.min("producer_id").alias("first_id"),
            F.max("producer_id").alias("last_id"),
            F.sum("batches").alias("batches"),
        )
        .where(F.col("ids") >= many_producers)
    )
    detail = text(
        "{ids} producer ids wrote {batches} batches in all from here on for {window} s: clients make a producer for "
        "next to nothing, let them keep one",
        window=F.lit(window_ms // 1000),
    )
    return findings(found, "id_burner", WARNING, detail, subject=text("topic {topic}"))


def _shares(inputs: AuditInputs, data: DataFrame) -> DataFrame:
    blocks = allocated_blocks(inputs)
    wrote = with_block(data.select("producer_id").distinct(), blocks).where("block IS NOT NULL")
    used = wrote.groupBy(F.col("block.broker_id").alias("broker_id")).agg(F.count("*").alias("used"))
    size = F.col("last_id").cast("decimal(20,0)") - F.col("first_id") + 1
    given = blocks.groupBy("broker_id").agg(
        F.count("*").alias("blocks"),
        F.sum(size).alias("ids"),
        F.min("first_id").alias("first_id"),
        F.max("last_id").alias("last_id"),
    )
    found = given.join(used, "broker_id")
    percent = F.round(F.col("used") * 100.0 / F.col("ids"), 2)
    detail = text(
        "{used} of {ids} IDs in {blocks} blocks wrote, {percent} percent, in the segments that were given",
        percent=percent,
    )
    return findings(found, "id_burner", NOTE, detail, subject=text("broker {broker_id}"))
