"""Transactions that nobody ended."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pipeline.checks.segments.logs import ordered_rows, producer_rows
from pipeline.checks.segments.rows import findings, once, text, where
from pipeline.findings import VIOLATION, WARNING
from pipeline.inputs import AuditInputs

HANGING_MS: Final = 1_200_000
"""Kafka's default of `transaction.max.timeout.ms`, 15 minutes, and 5 minutes more: what brokers call late."""
CERTAIN_FACTOR: Final = 4
"""A multiple of that for a violation: by then the coordinator must have aborted it several times over."""


def hanging_transaction(
    inputs: AuditInputs, *, timeout_ms: int = HANGING_MS, certain_factor: int = CERTAIN_FACTOR
) -> DataFrame:
    """WARNING: data of a transaction without a marker behind it, older than `timeout_ms`; no one reads past it.

    VIOLATION when older than `certain_factor` times that, unless offsets are missing or a file is damaged behind it:
    its marker may have been there. As in Kafka a marker ends it if its epoch is the same or newer (a coordinator that
    fences the producer, or that knows KIP-890, ends it in the next epoch); one of an older epoch does not. A marker in
    any copy will do, a lagging replica may not have it yet. Markers without a transaction are lawful.

    The age is from the newest timestamp in the log up to the start of the transaction, to the newest one in the log or
    of any broker clock (marker or LogAppendTime) of the same member. So a partition that is quiet on a member without
    markers anywhere shows nothing, and where clients stamp records with the time of old events in a log without
    markers, the age is too high.

    Cost: no exchange by producer beyond that of logs.py but for one row for each producer of each copy.
    """
    rows = producer_rows(inputs).where("fenced_by IS NULL")
    ended = F.max(F.when(F.col("is_control"), F.col("base_offset"))).over(Window.partitionBy("log", "producer_id"))
    rows = rows.withColumn("ended", ended)
    # The cleaner empties batches, but never from the start of an open transaction on.
    data = F.col("is_transactional") & ~F.col("is_control") & (F.col("record_count") > 0)
    is_open = data & (F.col("base_offset") > F.coalesce(F.col("ended"), F.lit(-1)))
    first = F.struct("base_offset", "epoch", "file", "position", "timestamp_ms", "seen_ms", "missing", "holes")
    producers = rows.groupBy("log", "member", "topic", "partition", "producer_id").agg(
        F.min(F.when(is_open, first)).alias("start"),
        F.max("ended").alias("ended"),
        F.count(F.when(is_open, True)).alias("batches"),
    )
    copies = Window.partitionBy(F.coalesce(F.col("topic"), F.col("log")), "partition", "producer_id")
    producers = producers.withColumn("ended", F.max("ended").over(copies))
    found = producers.where(
        F.col("start").isNotNull() & (F.col("start.base_offset") > F.coalesce(F.col("ended"), F.lit(-1)))
    ).select("log", "member", "topic", "partition", "producer_id", "batches", "start.*")
    return _aged(found, ordered_rows(inputs), timeout_ms, certain_factor)


def _aged(found: DataFrame, rows: DataFrame, timeout_ms: int, certain_factor: int) -> DataFrame:
    logs = rows.groupBy("log", "member").agg(
        F.max("missing").alias("end_missing"),
        F.max("holes").alias("end_holes"),
        F.max("seen_ms").alias("end_ms"),
        F.max(F.when(F.col("broker_clock"), F.col("timestamp_ms"))).alias("clock_ms"),
    )
    clock = F.max("clock_ms").over(Window.partitionBy("member"))
    ends = logs.withColumn("now_ms", F.greatest("end_ms", clock)).drop("member")
    aged = found.join(ends, "log").withColumn("age_ms", F.col("now_ms") - F.col("seen_ms"))
    aged = aged.where(F.col("age_ms") > timeout_ms)
    whole = (F.col("end_missing") == F.col("missing")) & (F.col("end_holes") == F.col("holes"))
    certain = (F.col("age_ms") > timeout_ms * certain_factor) & whole
    detail = F.concat(
        text("a transaction of epoch {epoch} is open since offset {base_offset}: {batches} batches and no marker "),
        text("behind them after {age} s; readers of committed records stop there", age=F.floor(F.col("age_ms") / 1000)),
        F.when(whole, F.lit("")).otherwise(F.lit("; its marker may be among what is missing behind it")),
    )
    rows = findings(
        aged, "hanging_transaction", F.when(certain, F.lit(VIOLATION)).otherwise(F.lit(WARNING)), detail,
        subject=text("{where}, producer {producer_id}", where=where()),
        first_id="producer_id", last_id="producer_id", offset="base_offset",
    )  # fmt: skip
    return once(rows, "first_id")
