"""The files that rows stand in, by number, and what the files before each of them in its log leave behind.

A log is one copy of a partition: the folder that its segments lie in. Two replicas, or two backups of one, never run
into each other. Tables of many rows carry the numbers below in place of paths and names; whoever makes findings of a
few of those rows gives them their names back with `named`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.inputs import AuditInputs

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: a client may write any number, and beyond it differences could overflow."""
HOLES: Final = ("bad_crc", "lost_boundary", "torn", "foreign", "unreadable")
"""Kinds of problems behind which batches of producers may be lost."""
COORDINATOR_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Written by brokers in the name of producers: always with sequence 0, which nobody checks."""
NAMES: Final = ("member", "file", "topic", "partition")

_SEGMENT_NAME: Final = r"(\d{20})\.log$"
_FOLDER: Final = r"^(.*)[/\\]"
_OF_BATCH: Final = (*NAMES, "segment_base_offset")
_FIGURES: Final = ("reach", "newest_ms", "clock_ms", "holes")


def usable_ms() -> Column:
    """The greatest timestamp of a batch, null if it is no time."""
    stamp = F.col("max_timestamp_ms")
    return F.when(stamp.between(0, LATEST_MS), stamp)


def by_broker() -> Column:
    """Whether the timestamp is of the broker's clock: of a marker, or of a topic with LogAppendTime."""
    return F.col("is_control") | (F.col("timestamp_type") == "LogAppendTime")


def hole_problems(inputs: AuditInputs) -> DataFrame:
    """Problems of the kinds in HOLES."""
    return inputs.problems.where(F.col("kind").isin(*HOLES))


@derived
def segment_files(inputs: AuditInputs) -> DataFrame:
    """One row for each file that batches or problems of HOLES lie in: NAMES, segment_base_offset, and

    `file_id` in the order of member and path; `log_id` of its folder; `partition_id` of its topic and partition, in
    their order, the same in all copies (a folder whose name is none is a partition of its own); `topic_id`;
    `sequenced`: whether brokers check sequences there. Of the file: `newest_ms`, `clock_ms` by brokers' clocks,
    `holes`. Of the files before it in its log, by segment_base_offset and path: `reached_before`, the highest offset,
    `seen_before`, the newest timestamp, and `holes_before`.

    Cost: one pass over the batches with partial aggregation, so that a row for each file and task is moved; then one
    task numbers the files.
    """
    batches = inputs.batches.groupBy(*_OF_BATCH).agg(
        F.max(F.when(F.col("base_offset") >= 0, F.col("last_offset"))).alias("reach"),
        F.max(usable_ms()).alias("newest_ms"),
        F.max(F.when(by_broker(), usable_ms())).alias("clock_ms"),
    )
    named = F.regexp_extract("file", _SEGMENT_NAME, 1).try_cast("long").alias("segment_base_offset")
    holes = hole_problems(inputs).groupBy("member", "file", named).agg(F.count("*").alias("holes"))
    rows = batches.unionByName(holes, allowMissingColumns=True)
    columns = [name for name in (*_OF_BATCH, *_FIGURES) if name != "file"]
    files = rows.groupBy("file").agg(*[F.max(name).alias(name) for name in columns])
    return _carried(_numbered(files)).drop("reach", "folder")


def _numbered(files: DataFrame) -> DataFrame:
    files = files.withColumn("folder", F.regexp_extract("file", _FOLDER, 1))
    # What a problem does not say of its file, the batches of the log do.
    log = Window.partitionBy("folder")
    files = files.withColumns({name: F.max(name).over(log) for name in ("member", "topic", "partition")})
    alone = F.when(F.col("topic").isNull(), F.col("folder"))
    return files.withColumns(
        {
            "holes": F.coalesce(F.col("holes"), F.lit(0)),
            "sequenced": ~F.coalesce(F.col("topic").isin(*COORDINATOR_TOPICS), F.lit(False)),
            "file_id": F.row_number().over(Window.orderBy("member", "file")),
            "log_id": F.dense_rank().over(Window.orderBy("folder")),
            "partition_id": F.dense_rank().over(Window.orderBy("topic", "partition", alone)),
            "topic_id": F.dense_rank().over(Window.orderBy("topic")),
        }
    )


def _carried(files: DataFrame) -> DataFrame:
    order = Window.partitionBy("log_id").orderBy("segment_base_offset", "file_id")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    return files.withColumns(
        {
            "reached_before": F.max("reach").over(before),
            "seen_before": F.max("newest_ms").over(before),
            "holes_before": F.coalesce(F.sum("holes").over(before), F.lit(0)),
        }
    )


def about_files(inputs: AuditInputs, *columns: str) -> DataFrame:
    """Columns of `segment_files`, for a join that sends them to all tasks: some 300 bytes a file at most."""
    return F.broadcast(segment_files(inputs).select(*columns))


def named(frame: DataFrame, inputs: AuditInputs) -> DataFrame:
    """`frame`, which has `file_id`, with NAMES. For rows that become findings."""
    return frame.join(about_files(inputs, "file_id", *NAMES), "file_id")
