"""What the report draws, aggregated in Spark: however much was audited, a bounded number of points is collected."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pidkeeper.pipeline.findings import VIOLATION, WARNING

MAX_BUCKETS: Final = 180
"""Intervals on a time axis: on a wide screen a bar of six pixels each."""
MAX_BROKERS: Final = 10
"""Brokers with a colour of their own: more cannot be told apart. The others are one."""
MAX_LIFETIMES: Final = 800
"""Bars of block lifetimes; of more blocks, neighbours of one broker share a bar."""
MAX_ANOMALIES: Final = 1000
"""Points of findings; those of one check and severity in one interval are one point."""
MAX_FINDINGS: Final = 300
"""Rows in the report's table; the table `findings` has all."""
MAX_BAD_FILES: Final = 200
OTHERS: Final = -2
"""Broker id of all brokers without a colour of their own."""
_STEPS_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_STEPS_MS: Final = (10, 20, 50, 100, 200, 500, *(1000 * seconds for seconds in _STEPS_SECONDS))
_DAY_MS: Final = 86_400_000


class Drawn(msgspec.Struct):
    """All that the report shows, of the time from `first_ms` to `last_ms`. Rows are dictionaries by column."""

    first_ms: int
    last_ms: int
    bucket_ms: int
    allocations: list[dict[str, Any]]
    lifetimes: list[dict[str, Any]]
    blocks_per_bar: int
    curve: list[dict[str, Any]]
    anomalies: list[dict[str, Any]]
    timeless: int
    findings: list[dict[str, Any]]
    bad_files: list[dict[str, Any]]
    sources: list[dict[str, Any]]
    partitions: list[dict[str, Any]]


def draw_from(blocks: DataFrame, findings: DataFrame, files: DataFrame, batches: DataFrame, span: range) -> Drawn:
    """`span`: from the first to the last moment in milliseconds since the epoch."""
    timed = blocks.where(F.col("timestamp_ms") >= 0)
    # Kafka's segments may reach back years before the first block: each axis has its own steps.
    edges = timed.agg(F.min("timestamp_ms"), F.max("timestamp_ms")).first()
    assert edges is not None, "an aggregate without groups has one row"
    bucket = bucket_ms((edges[1] or 0) - (edges[0] or 0) + 1)
    bars, per_bar = _lifetimes(timed, edges[1] or 0)
    return Drawn(
        first_ms=span.start,
        last_ms=span.stop - 1,
        bucket_ms=bucket,
        allocations=_rows(_allocations(timed, bucket)),
        lifetimes=bars,
        blocks_per_bar=per_bar,
        curve=_rows(_curve(timed, bucket)),
        anomalies=_rows(_anomalies(findings, bucket_ms(len(span))).limit(MAX_ANOMALIES)),
        timeless=findings.where("timestamp_ms is null").count(),
        findings=_rows(_worst_first(findings).limit(MAX_FINDINGS)),
        bad_files=_rows(files.where("problems > 0").orderBy("file").limit(MAX_BAD_FILES)),
        sources=_rows(_sources(files)),
        partitions=_rows(_topics(batches)),
    )


def bucket_ms(span_ms: int) -> int:
    """The least step for which `span_ms` has at most MAX_BUCKETS of them: a round one up to a day, then whole days."""
    least = span_ms / (MAX_BUCKETS - 1)
    return next((step for step in _STEPS_MS if step >= least), math.ceil(least / _DAY_MS) * _DAY_MS)


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _bucket(bucket: int) -> Any:
    return (F.floor(F.col("timestamp_ms") / bucket) * bucket).alias("at_ms")


def _ids() -> Any:
    return F.sum(F.col("last_id") - F.col("first_id") + 1)


def _allocations(blocks: DataFrame, bucket: int) -> DataFrame:
    top = blocks.groupBy("broker_id").agg(_ids().alias("_ids")).orderBy(F.desc("_ids"), "broker_id").limit(MAX_BROKERS)
    own = F.when(F.col("_ids").isNull(), OTHERS).otherwise(F.col("broker_id"))
    named = blocks.join(F.broadcast(top), "broker_id", "left").withColumn("broker_id", own)
    counted = named.groupBy("broker_id", _bucket(bucket)).agg(_ids().alias("ids"), F.count("*").alias("blocks"))
    return counted.orderBy("broker_id", "at_ms")


def _lifetimes(blocks: DataFrame, end_ms: int) -> tuple[list[dict[str, Any]], int]:
    """A bar for each block, or for so many neighbours of one broker: from its allocation to the broker's next one."""
    top = blocks.groupBy("broker_id").agg(_ids().alias("_ids")).orderBy(F.desc("_ids"), "broker_id").limit(MAX_BROKERS)
    kept = blocks.join(F.broadcast(top), "broker_id")
    per_bar = max(1, math.ceil(kept.count() / (MAX_LIFETIMES - MAX_BROKERS)))
    turn = Window.partitionBy("broker_id").orderBy("timestamp_ms", "offset", "first_id")
    ordered = kept.select(
        "broker_id",
        "first_id",
        "last_id",
        "timestamp_ms",
        F.lead("timestamp_ms").over(turn).alias("next_ms"),
        F.floor((F.row_number().over(turn) - 1) / per_bar).alias("bar"),
    )
    bars = ordered.groupBy("broker_id", "bar").agg(
        F.min("first_id").alias("first_id"),
        F.max("last_id").alias("last_id"),
        F.min("timestamp_ms").alias("from_ms"),
        F.max(F.coalesce("next_ms", F.lit(end_ms))).alias("to_ms"),
        F.max(F.col("next_ms").isNull()).alias("open"),
        F.count("*").alias("blocks"),
    )
    return _rows(bars.orderBy("broker_id", "bar")), per_bar


def _curve(blocks: DataFrame, bucket: int) -> DataFrame:
    """The highest ID given out by the end of each interval."""
    tops = blocks.groupBy(_bucket(bucket)).agg(F.max("last_id").alias("top"), F.max("timestamp_ms").alias("last_ms"))
    so_far = Window.orderBy("at_ms").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return tops.select("last_ms", F.max("top").over(so_far).alias("highest_id")).orderBy("last_ms")


def _anomalies(findings: DataFrame, bucket: int) -> DataFrame:
    timed = findings.where("timestamp_ms is not null")
    grouped = timed.groupBy("check", "severity", _bucket(bucket)).agg(
        F.count("*").alias("findings"),
        F.min("timestamp_ms").alias("first_ms"),
        F.min_by("subject", "timestamp_ms").alias("subject"),
    )
    return grouped.orderBy(_rank(), "first_ms")


def _rank() -> Any:
    return F.when(F.col("severity") == VIOLATION, 0).when(F.col("severity") == WARNING, 1).otherwise(2)


def _worst_first(findings: DataFrame) -> DataFrame:
    return findings.orderBy(_rank(), "check", "timestamp_ms", "first_id", "file", "position")


def _sources(files: DataFrame) -> DataFrame:
    counted = files.groupBy("source", "member").agg(
        F.count("*").alias("files"),
        F.sum("bytes").alias("bytes"),
        F.sum("rows").alias("rows"),
        F.sum((F.col("problems") > 0).cast("int")).alias("bad"),
    )
    return counted.orderBy("source", "member").limit(MAX_BAD_FILES)


def _topics(batches: DataFrame) -> DataFrame:
    counted = batches.groupBy("topic").agg(
        F.countDistinct("partition").alias("partitions"),
        F.sum("batches").alias("batches"),
        F.sum("records").alias("records"),
        F.min("first_timestamp_ms").alias("first_ms"),
        F.max("last_timestamp_ms").alias("last_ms"),
    )
    return counted.orderBy(F.desc("batches"), "topic").limit(MAX_BAD_FILES)
