"""The tables that an audit leaves, as Parquet partitioned by day (UTC). Their schema is stable, see `TABLES`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from pidkeeper.pipeline.checks.quorum.history import distinct_blocks
from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.pipeline.sources.segment_files import SegmentFile
from pidkeeper.pipeline.store import Place, locate

DAY: Final = "day"
MAX_TABLE_FILES: Final = 1
"""Parquet files for each day: a day has at most some million rows, and many small files are slow to read."""
_TEXT: Final = StringType()
_LONG: Final = LongType()
_INT: Final = IntegerType()


def _table(*columns: tuple[str, DataType, str]) -> StructType:
    day = StructField(DAY, _TEXT, True, {"comment": "yyyy-mm-dd in UTC; null where no time is known"})
    fields = [StructField(name, kind, True, {"comment": comment}) for name, kind, comment in columns]
    return StructType([*fields, day])


BLOCKS: Final = _table(
    ("first_id", _LONG, "first producer ID"),
    ("last_id", _LONG, "last producer ID, inclusive"),
    ("offset", _LONG, "log offset of the allocation; null where no copy knows it"),
    ("broker_id", _INT, "the owner"),
    ("broker_epoch", _LONG, "the owner's registration"),
    ("timestamp_ms", _LONG, "the leader's wall clock at the decision"),
    ("members", _LONG, "members whose files have the block"),
)
BATCHES_DAILY: Final = _table(
    ("topic", _TEXT, "topic of the batches"),
    ("partition", _INT, "its partition"),
    ("batches", _LONG, "batches, each counted once for every replica that was read"),
    ("records", _LONG, "records in them"),
    ("producers", _LONG, "distinct producer IDs, by HyperLogLog within 5 %"),
    ("first_timestamp_ms", _LONG, "least base timestamp"),
    ("last_timestamp_ms", _LONG, "greatest timestamp of a record"),
    ("last_offset", _LONG, "last offset"),
    ("replicas", _LONG, "brokers whose segments were read"),
)
FILES: Final = _table(
    ("source", _TEXT, "archive, snapshot, log or segment"),
    ("member", _TEXT, "whose copy"),
    ("file", _TEXT, "path"),
    ("bytes", _LONG, "length where it is known"),
    ("rows", _LONG, "blocks, batches or frames that were good"),
    ("problems", _LONG, "rows of problems; 0 for a good file"),
    ("kinds", _TEXT, "kinds of problems, by comma"),
    ("first_position", _LONG, "byte of the first problem"),
    ("detail", _TEXT, "the first problem, for the eye"),
)
TABLES: Final = {
    "blocks": BLOCKS,
    "batches_daily": BATCHES_DAILY,
    "findings": StructType([*FINDINGS.fields, BLOCKS[DAY]]),
    "files": FILES,
}


def write(out: Place, inputs: AuditInputs, findings: DataFrame, segments: Sequence[SegmentFile]) -> None:
    """Write all tables below `out`, over those of an earlier run."""
    frames = {
        "blocks": distinct_blocks(inputs).withColumn(DAY, _day(F.col("timestamp_ms"))),
        "batches_daily": batches_daily(inputs.batches),
        "findings": findings.withColumn(DAY, _day(F.col("timestamp_ms"))),
        "files": files(inputs, segments).withColumn(DAY, F.date_format(F.current_timestamp(), "yyyy-MM-dd")),
    }
    for name, frame in frames.items():
        typed = frame.select(*(F.col(field.name).cast(field.dataType) for field in TABLES[name]))
        by_day = typed.repartition(MAX_TABLE_FILES, DAY) if name == "files" else typed.repartition(DAY)
        by_day.write.mode("overwrite").partitionBy(DAY).parquet(locate(out, name))


def read(spark: SparkSession, out: Place, name: str) -> DataFrame:
    """A table that an audit left."""
    return spark.read.schema(TABLES[name]).parquet(locate(out, name))


def batches_daily(batches: DataFrame) -> DataFrame:
    """By partition and day of the batch's greatest timestamp."""
    stamped = batches.withColumn("_ms", F.greatest("max_timestamp_ms", F.lit(0)))
    producer = F.when(F.col("producer_id") >= 0, F.col("producer_id"))
    base = F.when(~F.col("has_delete_horizon") & (F.col("base_timestamp_ms") >= 0), F.col("base_timestamp_ms"))
    return stamped.groupBy("topic", "partition", _day(F.when(F.col("_ms") > 0, F.col("_ms"))).alias(DAY)).agg(
        F.count("*").alias("batches"),
        F.sum("record_count").alias("records"),
        F.approx_count_distinct(producer).alias("producers"),
        F.min(base).alias("first_timestamp_ms"),
        F.max("max_timestamp_ms").alias("last_timestamp_ms"),
        F.max("last_offset").alias("last_offset"),
        F.countDistinct("member").alias("replicas"),
    )


def files(inputs: AuditInputs, segments: Sequence[SegmentFile]) -> DataFrame:
    """Every file that was read or should have been, with what is wrong with it."""
    spark = inputs.problems.sparkSession
    columns = ("source", "member", "file", "bytes", "rows")
    counted = inputs.batches.groupBy("file").agg(F.count("*").alias("rows"))
    listed = spark.createDataFrame(
        [("segment", one.member, one.path, one.size) for one in segments],
        "source string, member string, file string, bytes long",
    )
    read_files = [
        inputs.archive_files.withColumn("source", F.lit("archive")).select(*columns),
        inputs.snapshots.withColumn("source", F.lit("snapshot")).withColumn("rows", F.lit(1)).select(*columns),
        inputs.log_files.withColumn("source", F.lit("log"))
        .withColumns({"bytes": F.lit(None).cast("long"), "rows": F.col("batches")})
        .select(*columns),
        listed.join(counted, "file", "left").fillna(0, ["rows"]).select(*columns),
    ]
    problems = inputs.problems.groupBy("file").agg(
        F.count("*").alias("problems"),
        F.array_join(F.array_sort(F.collect_set("kind")), ", ").alias("kinds"),
        F.min_by("member", "position").alias("_member"),
        F.min("position").alias("first_position"),
        F.min_by("detail", "position").alias("detail"),
    )
    known = read_files[0]
    for each in read_files[1:]:
        known = known.unionByName(each)
    return (
        known.dropDuplicates(["file"])
        .join(problems, "file", "full")
        .withColumn("member", F.coalesce("member", "_member"))
        .withColumn("source", F.coalesce("source", _source_of(F.col("file"))))
        .fillna(0, ["problems"])
    )


def _source_of(file: Column) -> Column:
    suffixes = (("arc", "archive"), ("snap", "snapshot"), ("wal", "log"), ("log", "segment"))
    found = F.lit("other")
    for suffix, source in suffixes:
        found = F.when(file.endswith(f".{suffix}"), F.lit(source)).otherwise(found)
    return found


def _day(milliseconds: Column) -> Column:
    return F.date_format(F.timestamp_millis(milliseconds), "yyyy-MM-dd")
