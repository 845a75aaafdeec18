"""Which log offsets a member's files hold. An interval is `from_offset` to before `to_offset`."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pipeline.checks.quorum.history import committed
from pipeline.inputs import AuditInputs


def archive_intervals(inputs: AuditInputs) -> DataFrame:
    """The archive files whose rows were read: `member`, `file`, `from_offset`, `to_offset`, `superseded`.

    A file that says it has rows and gave none is damaged, or a wider one was read in its place.
    """
    read = inputs.archive_blocks.groupBy("member", "file").agg(F.count("*").alias("found"))
    files = inputs.archive_files.filter("from_offset is not null").join(read, ["member", "file"], "left")
    held = files.filter("found > 0 or (rows = 0 and not superseded)")
    return held.select("member", "file", "from_offset", "to_offset", "superseded")


def log_intervals(inputs: AuditInputs) -> DataFrame:
    """The runs of committed records in each member's log: `member`, `file` of the first, `from_offset`, `to_offset`."""
    rows = committed(inputs).filter("offset is not null").select("member", "file", "offset")
    number = F.dense_rank().over(Window.partitionBy("member").orderBy("offset"))
    runs = rows.withColumn("run", F.col("offset") - number).groupBy("member", "run")
    start, end = F.min("offset").alias("from_offset"), (F.max("offset") + 1).alias("to_offset")
    return runs.agg(F.min(F.struct("offset", "file"))["file"].alias("file"), start, end).drop("run")


def held_intervals(inputs: AuditInputs) -> DataFrame:
    """Both: `member`, `from_offset`, `to_offset`."""
    columns = ("member", "from_offset", "to_offset")
    return archive_intervals(inputs).select(*columns).unionByName(log_intervals(inputs).select(*columns))


def merged(intervals: DataFrame, *keys: str) -> DataFrame:
    """The intervals of each key with those joined that overlap or touch: `keys`, `from_offset`, `to_offset`."""
    order = Window.partitionBy(*keys).orderBy("from_offset", "to_offset")
    reached = F.max("to_offset").over(order.rowsBetween(Window.unboundedPreceding, -1))
    starts = intervals.withColumn("starts", F.coalesce(F.col("from_offset") > reached, F.lit(True)).cast("int"))
    runs = starts.withColumn("run", F.sum("starts").over(order)).groupBy(*keys, "run")
    bounds = (F.min("from_offset").alias("from_offset"), F.max("to_offset").alias("to_offset"))
    return runs.agg(*bounds).drop("run")
