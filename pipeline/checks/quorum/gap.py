"""IDs that nobody was given. Gaps are legal (KIP-730); a record in the log should say why."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.history import committed
from pidkeeper.pipeline.checks.quorum.intervals import log_intervals, merged
from pidkeeper.pipeline.checks.quorum.order import order_faults
from pidkeeper.pipeline.checks.quorum.rows import PLACE, block_text, findings, id_text, place
from pidkeeper.pipeline.findings import NOTE, WARNING
from pidkeeper.pipeline.inputs import AuditInputs

JUMPS: Final = ("ProducerIdFloorRecord", "ZooKeeperBlockRecord", "SuccessionRecord")
"""The records that raise the next producer ID without giving a block to a broker (S3, F6)."""


def gap(inputs: AuditInputs) -> DataFrame:
    """IDs between one block and the next higher one that neither has; place and offset are those of the higher one.

    The last jump before a block goes to just where the block starts, so it is found by that ID. Below the first block
    of a quorum that came from ZooKeeper lie the IDs of ZooKeeper's brokers.
    """
    gaps = _gaps(inputs).join(_jumps(inputs), F.col("block.first_id") == F.col("next_producer_id"), "left")
    in_order = F.coalesce(F.col("jump.offset") < F.col("block.offset"), F.lit(True))
    gaps = gaps.withColumn("jump", F.when(in_order, F.col("jump"))).crossJoin(_log_runs(inputs))
    gaps = gaps.crossJoin(_migration(inputs)).withColumn("imported", F.col("migrated") & (F.col("gap_from") == 0))
    block, jump, first, last = F.col("block"), F.col("jump"), F.col("gap_from"), F.col("gap_to")
    return findings(
        gaps,
        "gap",
        F.when(jump.isNotNull() | F.col("imported"), F.lit(NOTE)).otherwise(F.lit(WARNING)),
        subject=id_text(first, last),
        first_id=first,
        last_id=last,
        offset=block["offset"],
        timestamp_ms=block["timestamp_ms"],
        **place(block),
        detail=F.format_string(
            "nobody has %s, the next are %s; %s", id_text(first, last), block_text(block), _reason()
        ),
    )


def _gaps(inputs: AuditInputs) -> DataFrame:
    """`gap_from`, `gap_to`, the `block` above, and `after`: the offset of the one below."""
    found = order_faults(inputs).filter("gap_from is not null")
    return found.select(
        "gap_from", (F.col("block.first_id") - 1).alias("gap_to"), "block", F.col("gap_offset").alias("after")
    )


def _jumps(inputs: AuditInputs) -> DataFrame:
    """The first committed `jump` to each `next_producer_id`."""
    jumps = committed(inputs).filter(F.col("record_type").isin(*JUMPS))
    return jumps.groupBy("next_producer_id").agg(F.min(F.struct("offset", "record_type", *PLACE)).alias("jump"))


def _migration(inputs: AuditInputs) -> DataFrame:
    """One row: whether a log or a snapshot tells of a migration from ZooKeeper."""
    phases = committed(inputs).select("phase").unionByName(inputs.snapshots.select("phase"))
    return phases.agg((F.count("phase") > 0).alias("migrated"))


def _log_runs(inputs: AuditInputs) -> DataFrame:
    """One row: `runs`, the intervals that some member's log still holds; a few, as a log has hardly any hole."""
    return merged(log_intervals(inputs)).agg(F.collect_list(F.struct("from_offset", "to_offset")).alias("runs"))


def _reason() -> Column:
    after, offset, jump = F.col("after"), F.col("block.offset"), F.col("jump")
    explained = F.format_string(
        "explained: %s at offset %s (member %s, %s, byte %d) raised the next producer ID to %d",
        jump["record_type"],
        F.coalesce(jump["offset"].cast("string"), F.lit("unknown")),
        *[jump[name] for name in PLACE],
        F.col("next_producer_id"),
    )
    between = F.format_string("between offsets %d and %d", after, offset)
    gone = F.format_string("the log that could explain it is gone: no member has all records %s any more", between)
    kept = F.exists("runs", lambda run: (run["from_offset"] <= after + 1) & (run["to_offset"] >= offset))
    told = (after + 1 >= offset) | kept
    silent = F.format_string("no record %s explains it: a block starts at the next producer ID", between)
    unknown = F.lit("the log that could explain it is gone: the offset of a block is unknown")
    return (
        F.when(jump.isNotNull(), explained)
        .when(F.col("imported"), F.lit("explained: the quorum came from ZooKeeper, whose brokers may have them"))
        .when(after.isNull() | offset.isNull(), unknown)
        .when(told, silent)
        .otherwise(gone)
    )
