"""Rows of every copy of a partition in the order of its log, with what is missing and what is damaged before them.

A copy is the folder that its segments lie in: two replicas, or two backups of one, never run into each other.

Cost: one exchange by folder and one sort. A task holds the headers of one copy of one partition, about 200 bytes a
batch; beyond Spark's limits the sort spills to disk, and the window keeps running values only.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pipeline.inputs import AuditInputs

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: a client may write any number, and beyond it differences could overflow."""
HOLES: Final = ("bad_crc", "lost_boundary", "torn", "foreign", "unreadable")
"""Kinds of problems behind which batches of producers may be lost."""
COORDINATOR_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Written by brokers in the name of producers: always with sequence 0, which nobody checks."""

_FOLDER: Final = r"^(.*)[/\\]"
_SEGMENT_NAME: Final = r"(\d{20})\.log$"
_COPIED: Final = ("member", "file", "position", "topic", "partition", "segment_base_offset", "base_offset")
_COPIED_TOO: Final = ("last_offset", "producer_id", "record_count", "is_transactional", "is_control", "marker")


def _usable(stamp: Column) -> Column:
    return F.when(stamp.between(0, LATEST_MS), stamp)


def _batch_rows(batches: DataFrame) -> DataFrame:
    return batches.select(
        *_COPIED,
        *_COPIED_TOO,
        F.regexp_extract("file", _FOLDER, 1).alias("log"),
        F.col("producer_epoch").cast("int").alias("epoch"),
        F.col("base_sequence").cast("long").alias("base_sequence"),
        F.col("last_sequence").cast("long").alias("last_sequence"),
        _usable(F.col("max_timestamp_ms")).alias("timestamp_ms"),
        (F.col("is_control") | (F.col("timestamp_type") == "LogAppendTime")).alias("broker_clock"),
        F.lit(0).alias("hole"),
    )


def _hole_rows(problems: DataFrame) -> DataFrame:
    return problems.where(F.col("kind").isin(*HOLES)).select(
        "member",
        "file",
        "position",
        F.regexp_extract("file", _FOLDER, 1).alias("log"),
        F.regexp_extract("file", _SEGMENT_NAME, 1).try_cast("long").alias("segment_base_offset"),
        F.lit(1).alias("hole"),
    )


def ordered_rows(inputs: AuditInputs) -> DataFrame:
    """The batches, with three running figures of their log up to and with each of them.

    `missing`: offsets that no batch has, by compaction or loss, from the first retained one on. `holes`: problems.
    `seen_ms`: the newest timestamp, which is the earliest time at which the batch can have been appended while clocks
    are right. Rows of problems are in it too, with all else null.
    """
    rows = _batch_rows(inputs.batches).unionByName(_hole_rows(inputs.problems), allowMissingColumns=True)
    order = Window.partitionBy("log").orderBy("segment_base_offset", "file", "position")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    to_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reached = F.max(F.when(F.col("base_offset") >= 0, F.col("last_offset"))).over(before)
    step = F.when(F.col("base_offset") > F.col("reached"), F.col("base_offset") - F.col("reached") - 1).otherwise(0)
    return (
        rows.withColumn("reached", F.when(reached >= 0, reached))
        .withColumn("missing", F.sum(F.coalesce(step, F.lit(0))).over(to_here))
        .withColumn("holes", F.sum("hole").over(to_here))
        .withColumn("seen_ms", F.max("timestamp_ms").over(to_here))
        .drop("reached", "hole")
    )


def producer_rows(inputs: AuditInputs) -> DataFrame:
    """The batches and markers of producers, with `fenced_by`: the newest epoch before, if it is above theirs."""
    order = Window.partitionBy("log", "producer_id").orderBy("base_offset", "file", "position")
    newest = F.max("epoch").over(order.rowsBetween(Window.unboundedPreceding, -1))
    rows = ordered_rows(inputs).where(F.col("producer_id") >= 0).withColumn("newest_epoch", newest)
    return rows.withColumn("fenced_by", F.when(F.col("newest_epoch") > F.col("epoch"), F.col("newest_epoch"))).drop(
        "newest_epoch"
    )
