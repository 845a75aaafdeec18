"""Who was given which block: all copies of all members as one table, and each block once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pipeline.checks.rows import PLACE
from pipeline.derived import derived
from pipeline.inputs import AuditInputs

ARCHIVE: Final = "archive"
LOG: Final = "log"
BLOCK: Final = ("offset", "first_id", "last_id", "broker_id", "broker_epoch", "timestamp_ms")
"""What is said of a block; the copies of one agree in all of it."""

_POSITIONS: Final = 1 << 40
"""More than the bytes of any file, 1 TiB: a file's number and a position are one long up to 8 million files."""

ALLOCATION: Final = "AllocateProducerIdsRecord"


def committed(inputs: AuditInputs) -> DataFrame:
    """The log records that a member had recorded as committed; the others may still be replaced."""
    return inputs.log_records.filter("committed")


def allocations(inputs: AuditInputs) -> DataFrame:
    """Every copy of every block: BLOCK, PLACE, and `source`, ARCHIVE or LOG.

    A copy in a log that starts behind the last snapshot beside it has no offset.
    """
    columns = [*BLOCK, *PLACE]
    archived = inputs.archive_blocks.select(*columns, F.lit(ARCHIVE).alias("source"))
    logged = committed(inputs).filter(F.col("record_type") == ALLOCATION)
    return archived.unionByName(logged.select(*columns, F.lit(LOG).alias("source")))


@derived
def distinct_blocks(inputs: AuditInputs) -> DataFrame:
    """One row for each block that any copy tells of: BLOCK, PLACE of its first copy, `copies`, `members`, and versions.

    Copies that disagree about one offset are versions of it: `version` 1 is what most members have, `versions` is how
    many there are. A copy without an offset counts only where no copy of the same block has one.
    Cost for n copies: one shuffle by offset of n rows of 80 bytes; no text is sorted, since files go by number.
    """
    copies = _with_best_offset(allocations(inputs))
    files = _numbered_files(copies)
    placed = F.col("file_number") * _POSITIONS + F.col("position")
    numbered = copies.join(F.broadcast(files), ["member", "file"])
    numbered = numbered.select(*BLOCK, "member_number", placed.alias("place")).repartition("offset")
    counts = (F.count("*").alias("copies"), F.count_distinct("member_number").alias("members"))
    blocks = numbered.groupBy(*BLOCK).agg(F.min("place").alias("place"), *counts)
    alone = F.when(F.col("offset").isNull(), F.struct(*BLOCK[1:]))
    same = Window.partitionBy("offset", alone)
    order = same.orderBy(F.desc("members"), F.desc("copies"), "place", *BLOCK[1:])
    blocks = blocks.withColumn("version", F.row_number().over(order))
    blocks = blocks.withColumn("versions", F.max("version").over(same))
    blocks = blocks.withColumn("file_number", F.expr(f"place div {_POSITIONS}"))
    named = blocks.withColumn("position", F.col("place") % _POSITIONS).join(F.broadcast(files), "file_number")
    return named.select(*BLOCK, *PLACE, "copies", "members", "version", "versions")


def history(inputs: AuditInputs) -> DataFrame:
    """The blocks that most members agree on: one for each offset."""
    return distinct_blocks(inputs).filter("version = 1").drop("version", "versions")


def _with_best_offset(copies: DataFrame) -> DataFrame:
    """Without the copies that lack an offset which another copy of the block has. Only logs lack some, so few do."""
    known, unknown = copies.filter("offset is not null"), copies.filter("offset is null")
    content = [F.col(name) for name in BLOCK[1:]]
    unknown = unknown.withColumn("content", F.struct(*content))
    wanted = F.broadcast(unknown.select("content").distinct())
    told = known.select(F.struct(*content).alias("content")).join(wanted, "content", "left_semi").distinct()
    return known.unionByName(unknown.join(told, "content", "left_anti").drop("content"))


def _numbered_files(copies: DataFrame) -> DataFrame:
    """`member`, `file`, and their numbers in that order: one row for each file."""
    files = copies.select("member", "file").distinct()
    return files.select(
        "member",
        "file",
        F.dense_rank().over(Window.orderBy("member")).alias("member_number"),
        F.row_number().over(Window.orderBy("member", "file")).cast("long").alias("file_number"),
    )
