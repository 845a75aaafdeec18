"""Transactions that nobody ended."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.files import named, segment_files
from pidkeeper.pipeline.checks.segments.producers import log_ends, producer_rows, with_missing
from pidkeeper.pipeline.checks.segments.rows import findings, once, text, where
from pidkeeper.pipeline.findings import VIOLATION, WARNING
from pidkeeper.pipeline.inputs import AuditInputs

HANGING_MS: Final = 1_200_000
"""Kafka's default of `transaction.max.timeout.ms`, 15 minutes, and 5 minutes more: what brokers call late."""
CERTAIN_FACTOR: Final = 4
"""A multiple of that for a violation: by then the coordinator must have aborted it several times over."""


def hanging_transaction(
    inputs: AuditInputs, *, timeout_ms: int = HANGING_MS, certain_factor: int = CERTAIN_FACTOR
) -> DataFrame:
    """WARNING: data of a transaction without a marker behind it, older than `timeout_ms`; no one reads past it.

    VIOLATION when older than `certain_factor` times that, unless offsets are missing or a file is damaged behind it:
    its marker may have been there. Which marker ends a transaction is said in producers.py; a marker in any copy will
    do, a lagging replica may not have it yet. Markers without a transaction are lawful.

    The age is from the newest timestamp in the log up to the start of the transaction, to the newest one in the log or
    of any broker clock (marker or LogAppendTime) of the same member. So a partition that is quiet on a member without
    markers anywhere shows nothing, and where clients stamp records with the time of old events in a log without
    markers, the age is too high.

    Cost: only rows of open transactions are moved; beside them one row for each file.
    """
    first = F.struct("base_offset", "epoch", "file_id", "position", "timestamp_ms", "seen_ms", "missing", "holes")
    producers = (
        with_missing(producer_rows(inputs).where("open"), inputs)
        .groupBy("log_id", "producer_id")
        .agg(F.min(first).alias("start"), F.count("*").alias("batches"))
    )
    found = producers.select("log_id", "producer_id", "batches", "start.*").join(F.broadcast(_ends(inputs)), "log_id")
    found = found.withColumn("age_ms", F.col("now_ms") - F.col("seen_ms")).where(F.col("age_ms") > timeout_ms)
    return _judged(named(found, inputs), timeout_ms * certain_factor)


def _ends(inputs: AuditInputs) -> DataFrame:
    """One row for each log: what is missing and damaged in all of it, and its time now."""
    clock = F.max("clock_ms").over(Window.partitionBy("member"))
    figures = (F.max("newest_ms").alias("end_ms"), F.max("clock_ms").alias("clock_ms"))
    logs = segment_files(inputs).groupBy("log_id", "member").agg(*figures)
    now = logs.select("log_id", F.greatest("end_ms", clock).alias("now_ms"))
    return now.join(log_ends(inputs), "log_id")


def _judged(aged: DataFrame, certain_ms: int) -> DataFrame:
    whole = (F.col("end_missing") == F.col("missing")) & (F.col("end_holes") == F.col("holes"))
    certain = (F.col("age_ms") > certain_ms) & whole
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
