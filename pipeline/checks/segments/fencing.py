"""Batches of a producer that had been fenced."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.files import named
from pidkeeper.pipeline.checks.segments.producers import producer_rows
from pidkeeper.pipeline.checks.segments.rows import findings, once, text, where
from pidkeeper.pipeline.findings import VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs


def fenced_epoch(inputs: AuditInputs) -> DataFrame:
    """VIOLATION: data of an epoch below that of an earlier batch or marker of the same producer in the partition.

    One finding for all such batches of one epoch, at the first. Cost: only those batches are moved.
    """
    late = producer_rows(inputs).where(F.col("fenced_by").isNotNull() & ~F.col("is_control"))
    first = F.struct("base_offset", "file_id", "position", "timestamp_ms", "fenced_by")
    grouped = late.groupBy("log_id", "producer_id", "epoch").agg(
        F.min(first).alias("start"), F.count("*").alias("batches")
    )
    found = named(grouped.select("producer_id", "epoch", "batches", "start.*"), inputs)
    detail = text(
        "{batches} batches of epoch {epoch}, the first at offset {base_offset}, stand behind epoch {fenced_by}, which "
        "fences them: the broker should have refused them"
    )
    rows = findings(
        found, "fenced_epoch", VIOLATION, detail,
        subject=text("{where}, producer {producer_id}", where=where()),
        first_id="producer_id", last_id="producer_id", offset="base_offset",
    )  # fmt: skip
    return once(rows, "first_id", "offset")
