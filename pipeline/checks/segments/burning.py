"""Clients that take a new producer ID for next to nothing, and how many IDs ever wrote."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.blocks import allocated_blocks
from pidkeeper.pipeline.checks.segments.files import segment_files
from pidkeeper.pipeline.checks.segments.ids import producer_epochs, producer_ids
from pidkeeper.pipeline.checks.segments.rows import findings, text
from pidkeeper.pipeline.findings import NOTE, WARNING
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.protocol.ids import OWN

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

    Cost: one exchange of a row for each epoch of a producer in a log, and one of the distinct blocks.
    """
    return _bursts(inputs, window_ms, few_batches, many_producers).unionByName(_shares(inputs))


def _by_topic(inputs: AuditInputs) -> DataFrame:
    """For each producer of a topic its `batches` of data, in the copy of each partition that has most."""
    partitions = segment_files(inputs).select("log_id", "topic_id").distinct()
    rows = (
        producer_epochs(inputs)
        .where("data_batches > 0")
        .select("producer_id", "log_id", "partition_id", "data_batches", "data_ms")
    )
    rows = rows.withColumnsRenamed({"data_batches": "batches", "data_ms": "timestamp_ms"}).repartition("producer_id")
    earliest = F.min("timestamp_ms").alias("timestamp_ms")
    copies = rows.groupBy("producer_id", "partition_id", "log_id").agg(F.sum("batches").alias("batches"), earliest)
    copies = copies.join(F.broadcast(partitions), "log_id")
    most = copies.groupBy("producer_id", "topic_id", "partition_id").agg(F.max("batches").alias("batches"), earliest)
    return most.groupBy("producer_id", "topic_id").agg(F.sum("batches").alias("batches"), earliest)


def _bursts(inputs: AuditInputs, window_ms: int, few_batches: int, many_producers: int) -> DataFrame:
    began = F.floor(F.col("timestamp_ms") / window_ms) * window_ms
    found = (
        _by_topic(inputs)
        .where((F.col("batches") <= few_batches) & F.col("timestamp_ms").isNotNull())
        .groupBy("topic_id", began.alias("timestamp_ms"))
        .agg(
            F.count("*").alias("ids"),
            F.min("producer_id").alias("first_id"),
            F.max("producer_id").alias("last_id"),
            F.sum("batches").alias("batches"),
        )
        .where(F.col("ids") >= many_producers)
    )
    topics = F.broadcast(segment_files(inputs).select("topic_id", "topic").distinct())
    found = found.join(topics, "topic_id")
    detail = text(
        "{ids} producer ids wrote {batches} batches in all from here on for {window} s: clients make a producer for "
        "next to nothing, let them keep one",
        window=F.lit(window_ms // 1000),
    )
    return findings(found, "id_burner", WARNING, detail, subject=text("topic {topic}"))


def _shares(inputs: AuditInputs) -> DataFrame:
    wrote = producer_ids(inputs).where("data_batches > 0 AND block IS NOT NULL")
    used = wrote.groupBy(F.col("block.broker_id").alias("broker_id")).agg(F.count("*").alias("used"))
    blocks = allocated_blocks(inputs).distinct()
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
    own = F.lit("the quorum's own blocks, for transactions")
    subject = F.when(F.col("broker_id") == OWN, own).otherwise(text("broker {broker_id}"))
    return findings(found, "id_burner", NOTE, detail, subject=subject)
