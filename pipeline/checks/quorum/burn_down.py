"""When the producer IDs will be used up: they are never given back (KIP-730, "Motivation")."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.limits import DEFAULT, Limits
from pidkeeper.pipeline.checks.quorum.gap import JUMPS
from pidkeeper.pipeline.checks.quorum.history import committed, history
from pidkeeper.pipeline.checks.quorum.rows import findings
from pidkeeper.pipeline.findings import NOTE, WARNING
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

_DAY_MS: Final = 86_400_000
_YEAR_DAYS: Final = 365.25
_LAST_DATED_DAYS: Final = 365_250.0
"""A thousand years: farther dates say nothing, and those above the year 9999 have no form."""


def burn_down(inputs: AuditInputs, limits: Limits = DEFAULT) -> DataFrame:
    """IDs left, how fast they go, and until when: one finding; none without a block.

    The rate is the higher one of the last day with blocks and of the whole span.
    """
    blocks = history(inputs)
    ends = blocks.agg(F.max("timestamp_ms").alias("newest"), F.min("timestamp_ms").alias("oldest"))
    dated = blocks.crossJoin(ends.filter("newest is not null"))
    # As long, so many IDs a day times the milliseconds of one would be none from 10^11 on.
    ids = (F.col("last_id") - F.col("first_id") + 1).cast("double")
    sums = dated.groupBy("newest", "oldest").agg(
        F.sum(ids).alias("ids"),
        F.sum(F.when(F.col("timestamp_ms") > F.col("newest") - _DAY_MS, ids).otherwise(0)).alias("day_ids"),
    )
    span = F.col("newest") - F.col("oldest")
    rates = sums.crossJoin(_next_id(inputs)).select(
        "*",
        (F.lit(MAX_PRODUCER_ID) - F.col("next_id")).alias("left"),
        F.when(span > 0, F.col("ids") * _DAY_MS / span).alias("whole"),
        F.when(span > 0, F.col("day_ids") * _DAY_MS / F.least(span, F.lit(_DAY_MS))).alias("day"),
    )
    rates = rates.withColumn("days", F.col("left") / F.greatest("whole", "day"))
    soon = F.col("days") <= limits.horizon_days
    return findings(
        rates,
        "burn_down",
        F.when(soon, F.lit(WARNING)).otherwise(F.lit(NOTE)),
        subject=F.format_string("%d IDs left", F.col("left")),
        first_id=F.col("next_id"),
        last_id=F.lit(MAX_PRODUCER_ID - 1),
        timestamp_ms=F.col("newest"),
        detail=F.concat(F.format_string("%d IDs are left; ", F.col("left")), _prospect()),
    )


def _next_id(inputs: AuditInputs) -> DataFrame:
    """One row: `next_id`, the lowest ID that is neither handed out nor passed over."""
    jumps = committed(inputs).filter(F.col("record_type").isin(*JUMPS))
    known = (
        history(inputs)
        .select((F.col("last_id") + 1).alias("next_id"))
        .unionByName(inputs.snapshots.select(F.col("next_producer_id").alias("next_id")))
        .unionByName(jumps.select(F.col("next_producer_id").alias("next_id")))
    )
    return known.agg(F.max("next_id").alias("next_id"))


def _prospect() -> Column:
    days = F.col("days")
    until = F.date_format(F.timestamp_millis((F.col("newest") + days * _DAY_MS).cast("long")), "yyyy-MM-dd")
    years = F.format_string("in %.3g years", days / _YEAR_DAYS)
    when = F.when(days <= _LAST_DATED_DAYS, F.concat(F.lit("on "), until)).otherwise(years)
    rated = F.format_string(
        "%.3g a day go on the last day and %.3g over the whole span: none is left %s",
        F.col("day"),
        F.col("whole"),
        when,
    )
    return F.when(days.isNotNull(), rated).otherwise(F.lit("all blocks are of one moment, so there is no rate"))
