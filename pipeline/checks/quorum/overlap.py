"""The one promise: no producer ID is in two blocks."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.order import order_faults
from pidkeeper.pipeline.checks.quorum.rows import block_text, findings, id_text, place
from pidkeeper.pipeline.findings import VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs


def overlap(inputs: AuditInputs) -> DataFrame:
    """IDs that two blocks share. One finding for each block that shares IDs with a block before it in order of ID.

    It names the one that reaches farthest, so that together the findings name every shared ID. Place, broker and
    offset are those of the block that was given out later.
    """
    found = order_faults(inputs).filter("other.last_id >= block.first_id")
    swapped = F.col("other.offset") > F.col("block.offset")
    pairs = found.select(
        "block.first_id",
        F.least("block.last_id", "other.last_id").alias("shared_to"),
        F.when(swapped, F.col("block")).otherwise(F.col("other")).alias("one"),
        F.when(swapped, F.col("other")).otherwise(F.col("block")).alias("two"),
    )
    first, last, two = F.col("first_id"), F.col("shared_to"), F.col("two")
    return findings(
        pairs,
        "overlap",
        VIOLATION,
        subject=id_text(first, last),
        first_id=first,
        last_id=last,
        **{name: two[name] for name in ("broker_id", "offset", "timestamp_ms")},
        **place(two),
        detail=F.format_string(
            "%s in two blocks: %s, and %s; two producers may have the same ID",
            F.when(first == last, F.format_string("ID %d is", first)).otherwise(
                F.format_string("%d IDs from %d to %d are", last - first + 1, first, last)
            ),
            block_text(F.col("one")),
            block_text(two),
        ),
    )
