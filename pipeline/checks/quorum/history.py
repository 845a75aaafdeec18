"""Who was given which block: all copies of all members as one table, and each block once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pipeline.checks.rows import PLACE
from pipeline.inputs import AuditInputs

ARCHIVE: Final = "archive"
LOG: Final = "log"
BLOCK: Final = ("offset", "first_id", "last_id", "broker_id", "broker_epoch", "timestamp_ms")
"""What is said of a block; the copies of one agree in all of it."""

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


def distinct_blocks(inputs: AuditInputs) -> DataFrame:
    """One row for each block that any copy tells of: BLOCK, PLACE of its first copy, `copies`, `members`, `version`.

    Copies that disagree about one offset are versions of it: 1 is what most members have. A copy without an offset
    counts only where no copy of the same block has one.
    """
    first = F.min(F.struct(*PLACE)).alias("place")
    counts = (F.count("*").alias("copies"), F.count_distinct("member").alias("members"))
    blocks = allocations(inputs).groupBy(*BLOCK).agg(first, *counts)
    same = Window.partitionBy(*BLOCK[1:])
    blocks = blocks.withColumn("known", F.max("offset").over(same)).filter("offset is not null or known is null")
    alone = F.when(F.col("offset").isNull(), F.struct(*BLOCK[1:]))
    most = [F.desc("members"), F.desc("copies"), *[F.asc(f"place.{name}") for name in PLACE]]
    version = F.row_number().over(Window.partitionBy("offset", alone).orderBy(*most, *BLOCK[1:]))
    return blocks.select(*BLOCK, "place.*", "copies", "members", version.alias("version"))


def history(inputs: AuditInputs) -> DataFrame:
    """The blocks that most members agree on: one for each offset."""
    return distinct_blocks(inputs).filter("version = 1").drop("version")
