"""Blocks ascend with the log: none starts below an ID that was handed out before (S1)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pipeline.checks.quorum.history import BLOCK, history
from pipeline.checks.rows import PLACE, block_text, findings, id_text, place, with_highest_before
from pipeline.findings import VIOLATION
from pipeline.inputs import AuditInputs


def regress(inputs: AuditInputs) -> DataFrame:
    """Blocks that lie wholly below the highest one given out before them, in order of offset.

    A block that shares IDs with that one is not named here: `overlap` names the two.
    """
    whole = F.struct("last_id", *[name for name in BLOCK if name != "last_id"], *PLACE)
    known = history(inputs).filter("offset is not null")
    blocks = with_highest_before(known.withColumn("block", whole), "highest", "block", "offset")
    found = blocks.filter("last_id < highest.first_id")
    return findings(
        found,
        "regress",
        VIOLATION,
        subject=id_text(F.col("first_id"), F.col("last_id")),
        **{name: F.col(name) for name in ("first_id", "last_id", "broker_id", "offset", "timestamp_ms")},
        **place(),
        detail=F.format_string(
            "%s came after %s: the next producer ID fell",
            block_text(F.col("block")),
            block_text(F.col("highest")),
        ),
    )
