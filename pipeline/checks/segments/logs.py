"""Rows of every segment in the order of its bytes, with what is missing and what is damaged before them.

`missing` is counted in two levels: within a file by a window over it, and over the files of a log from one row for each
file. So a task sorts the headers of one segment, however large the partition is.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.files import about_files, by_broker, hole_problems, segment_files, usable_ms
from pidkeeper.pipeline.inputs import AuditInputs


def _batch_rows(inputs: AuditInputs) -> DataFrame:
    data = ~F.col("is_control")
    return inputs.batches.select(
        "file",
        "position",
        "base_offset",
        "last_offset",
        F.when(F.col("producer_id") >= 0, F.col("producer_id")).alias("producer_id"),
        F.col("producer_epoch").cast("int").alias("epoch"),
        "base_sequence",
        "last_sequence",
        "is_transactional",
        "is_control",
        # The cleaner empties batches, but never from the start of an open transaction on.
        (F.col("is_transactional") & data & (F.col("record_count") > 0)).alias("opens"),
        usable_ms().alias("timestamp_ms"),
        by_broker().alias("broker_clock"),
        F.lit(0).alias("hole"),
    )


def file_rows(inputs: AuditInputs) -> DataFrame:
    """The batches of producers, and the last row of every file; `producer_id` is null if that one has none.

    Three running figures, up to and with the row. Of the file: `missing`, offsets that no batch has, by compaction or
    loss; what is missing between two files counts in the later one, and nothing before the first batch of the log.
    Of the log: `holes`, problems of HOLES; `seen_ms`, the newest timestamp, which is the earliest time at which the
    batch can have been appended while clocks are right. `file_end` marks the last row of a file.

    Cost: one exchange by file and one sort of about 120 bytes a batch; beyond Spark's limits the sort spills to disk.
    """
    holes = hole_problems(inputs).select("file", "position", F.lit(1).alias("hole"))
    rows = _batch_rows(inputs).unionByName(holes, allowMissingColumns=True)
    rows = rows.join(about_files(inputs, "file", "file_id"), "file").drop("file")
    order = Window.partitionBy("file_id").orderBy("position", "hole")
    to_here = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reach = F.when(F.col("base_offset") >= 0, F.col("last_offset"))
    rows = rows.withColumns(
        {
            "reached": F.max(reach).over(order.rowsBetween(Window.unboundedPreceding, -1)),
            "newest": F.max("timestamp_ms").over(to_here),
            "holes": F.sum("hole").over(to_here),
            "file_end": F.lead(F.lit(True)).over(order).isNull(),
        }
    )
    places = ("log_id", "partition_id", "sequenced", "reached_before", "seen_before", "holes_before")
    rows = rows.join(about_files(inputs, "file_id", *places), "file_id")
    rows = rows.withColumn("missing", F.sum(_step()).over(to_here))
    rows = rows.where(F.col("producer_id").isNotNull() | F.col("file_end"))
    rows = rows.withColumn("seen_ms", F.greatest("newest", "seen_before"))
    rows = rows.withColumn("holes", F.col("holes") + F.col("holes_before"))
    return rows.drop("reached", "newest", "hole", "last_offset", "reached_before", "seen_before", "holes_before")


def _step() -> Column:
    """Offsets that are missing just before a batch."""
    reached = F.greatest("reached", "reached_before")
    gap = F.when((reached >= 0) & (F.col("base_offset") > reached), F.col("base_offset") - reached - 1)
    return F.coalesce(gap, F.lit(0))


def missing_before(rows: DataFrame, inputs: AuditInputs) -> DataFrame:
    """From `rows` of `file_rows`: for each `file_id` `missing_before`, the offsets missing before it in its log."""
    order = Window.partitionBy("log_id").orderBy("segment_base_offset", "file_id")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    totals = segment_files(inputs).select("log_id", "segment_base_offset", "file_id")
    totals = totals.join(rows.where("file_end").select("file_id", "missing"), "file_id")
    return totals.select("file_id", F.coalesce(F.sum("missing").over(before), F.lit(0)).alias("missing_before"))
