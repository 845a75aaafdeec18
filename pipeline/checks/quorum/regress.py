"""Blocks ascend with the log: none starts below an ID that was handed out before (S1)."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.order import order_faults
from pidkeeper.pipeline.checks.quorum.rows import block_text, findings, id_text, place
from pidkeeper.pipeline.findings import VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs


def regress(inputs: AuditInputs) -> DataFrame:
    """Blocks that lie wholly below the highest one given out before them, in order of offset.

    A block that shares IDs with that one is not named here: `overlap` names the two.
    """
    found = order_faults(inputs).filter("block.last_id < highest.first_id")
    block = F.col("block")
    return findings(
        found,
        "regress",
        VIOLATION,
        subject=id_text(block["first_id"], block["last_id"]),
        **{name: block[name] for name in ("first_id", "last_id", "broker_id", "offset", "timestamp_ms")},
        **place(block),
        detail=F.format_string(
            "%s came after %s: the next producer ID fell", block_text(block), block_text(F.col("highest"))
        ),
    )
