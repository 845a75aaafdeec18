"""Two small checks with the schema of findings, so that running them is tested and not what they find."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pidkeeper.pipeline.findings import FINDINGS, VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs


def overlap(inputs: AuditInputs) -> DataFrame:
    """Blocks that start at or below the end of one before them."""
    blocks = inputs.archive_blocks.dropDuplicates(["first_id", "last_id", "offset"])
    before = Window.orderBy("first_id", "last_id").rowsBetween(Window.unboundedPreceding, -1)
    bad = blocks.withColumn("_end", F.max("last_id").over(before)).where("first_id <= _end")
    subject = F.concat(F.lit("IDs "), "first_id", F.lit(" to "), "last_id")
    return findings(bad.withColumns({"check": F.lit("overlap"), "subject": subject}))


def repeated(inputs: AuditInputs) -> DataFrame:
    """Sequences that a partition has twice."""
    one = Window.partitionBy("member", "topic", "partition", "producer_id", "producer_epoch", "base_sequence")
    bad = inputs.batches.withColumn("_copies", F.count("*").over(one)).where("_copies > 1 and producer_id >= 0")
    named = {
        "check": F.lit("repeated"),
        "subject": F.concat_ws("-", "topic", "partition"),
        "offset": F.col("base_offset"),
    }
    return findings(bad.withColumns(named))


def findings(rows: DataFrame) -> DataFrame:
    """Rows with all columns of findings, null where they have none; all are violations."""
    known: dict[str, Any] = {"severity": F.lit(VIOLATION), "detail": F.col("subject")}
    columns = []
    for field in FINDINGS:
        value = known.get(field.name, F.col(field.name) if field.name in rows.columns else F.lit(None))
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*columns)
