"""Brokers that ask as fast as the members let them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.limits import DEFAULT, Limits
from pidkeeper.pipeline.checks.quorum.history import blocks_of_brokers
from pidkeeper.pipeline.checks.quorum.rows import findings
from pidkeeper.pipeline.findings import WARNING
from pidkeeper.pipeline.inputs import AuditInputs


def quota(inputs: AuditInputs, limits: Limits = DEFAULT) -> DataFrame:
    """Brokers that used up `quota_share` of the burst of `broker_allocations`; one finding each, at the peak.

    A token bucket of rate r is used up by k(t) - r t, above its lowest value so far, where k counts the blocks.
    """
    order = Window.partitionBy("broker_id").orderBy("timestamp_ms", "first_id")
    refilled = F.col("timestamp_ms") * (limits.quota_per_second / 1000)
    blocks = blocks_of_brokers(inputs).withColumn("taken", F.row_number().over(order) - refilled)
    lowest = F.min(F.col("taken") - 1).over(order)
    blocks = blocks.withColumn("used", F.round(F.col("taken") - lowest).cast("long"))
    peak = F.max(F.struct("used", "timestamp_ms", "first_id", "last_id")).alias("peak")
    peaks = blocks.groupBy("broker_id").agg(peak)
    peaks = peaks.filter(F.col("peak.used") >= limits.quota_share * limits.quota_burst)
    return findings(
        peaks,
        "quota",
        WARNING,
        subject=F.format_string("broker %d", F.col("broker_id")),
        broker_id=F.col("broker_id"),
        **{name: F.col(f"peak.{name}") for name in ("first_id", "last_id", "timestamp_ms")},
        detail=F.format_string(
            f"broker %d had used %d of the burst of {limits.quota_burst} blocks of its quota, "
            f"{limits.quota_per_second:g} blocks a second: the members refuse it above",
            F.col("broker_id"),
            F.col("peak.used"),
        ),
    )
