"""The one promise: no producer ID is in two blocks."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pipeline.checks.quorum.history import BLOCK, history
from pipeline.checks.rows import (
    ID_RANGE_BITS,
    PLACE,
    block_text,
    findings,
    id_text,
    place,
    with_highest_before,
)
from pipeline.findings import VIOLATION
from pipeline.inputs import AuditInputs


def overlap(inputs: AuditInputs) -> DataFrame:
    """IDs that two blocks share. One finding for each block that shares IDs with a block before it in order of ID.

    It names the one that reaches farthest, so that together the findings name every shared ID. Place, broker and
    offset are those of the block that was given out later.
    """
    whole = F.struct("last_id", *[name for name in BLOCK if name != "last_id"], *PLACE)
    blocks = history(inputs).select(whole.alias("block"), "block.first_id", "block.last_id", "block.offset")
    in_order = ("first_id", "last_id", "offset")
    found = with_highest_before(blocks, "other", "block", *in_order, bits=ID_RANGE_BITS)
    found = found.filter("other.last_id >= first_id")
    swapped = F.col("other.offset") > F.col("block.offset")
    pairs = found.select(
        "first_id",
        F.least("last_id", "other.last_id").alias("shared_to"),
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
