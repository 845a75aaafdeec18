"""Which log offsets a member's files hold. An interval is `from_offset` to before `to_offset`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.history import ARCHIVE, LOG, block_files, committed
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.inputs import AuditInputs

_COLUMNS: Final = ("member", "file", "from_offset", "to_offset")


@derived
def held_intervals(inputs: AuditInputs) -> DataFrame:
    """What archive files and the runs of committed records in logs cover: one row for each, a few for each member.

    `source` is ARCHIVE or LOG; `member`, `file`, `from_offset`, `to_offset`; `superseded`: a wider archive file holds
    all of it. A run of a log is named by its first file.
    """
    return _archived(inputs).unionByName(_logged(inputs))


def archive_intervals(inputs: AuditInputs) -> DataFrame:
    """The archive files of `held_intervals`."""
    return held_intervals(inputs).filter(F.col("source") == ARCHIVE)


def log_intervals(inputs: AuditInputs) -> DataFrame:
    """The runs of logs in `held_intervals`."""
    return held_intervals(inputs).filter(F.col("source") == LOG)


def _archived(inputs: AuditInputs) -> DataFrame:
    """The archive files whose rows were read.

    One that says it has rows and gave none is damaged, or a wider one was read in its place.
    """
    files = inputs.archive_files.filter("from_offset is not null")
    read = files.join(block_files(inputs).select("member", "file", "copies"), ["member", "file"], "left")
    held = read.filter("copies > 0 or (rows = 0 and not superseded)")
    return held.select(F.lit(ARCHIVE).alias("source"), *_COLUMNS, "superseded")


def _logged(inputs: AuditInputs) -> DataFrame:
    rows = committed(inputs).filter("offset is not null").select("member", "file", "offset")
    number = F.dense_rank().over(Window.partitionBy("member").orderBy("offset"))
    start, end = F.min("offset").alias("from_offset"), (F.max("offset") + 1).alias("to_offset")
    first = F.min(F.struct("offset", "file"))["file"].alias("file")
    runs = rows.withColumn("run", F.col("offset") - number).groupBy("member", "run").agg(first, start, end)
    return runs.select(F.lit(LOG).alias("source"), *_COLUMNS, F.lit(False).alias("superseded"))


def merged(intervals: DataFrame, *keys: str) -> DataFrame:
    """The intervals of each key with those joined that overlap or touch: `keys`, `from_offset`, `to_offset`."""
    order = Window.partitionBy(*keys).orderBy("from_offset", "to_offset")
    reached = F.max("to_offset").over(order.rowsBetween(Window.unboundedPreceding, -1))
    starts = intervals.withColumn("starts", F.coalesce(F.col("from_offset") > reached, F.lit(True)).cast("int"))
    runs = starts.withColumn("run", F.sum("starts").over(order)).groupBy(*keys, "run")
    bounds = (F.min("from_offset").alias("from_offset"), F.max("to_offset").alias("to_offset"))
    return runs.agg(*bounds).drop("run")
