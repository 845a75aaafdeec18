"""The sequences of each producer in each partition, laid on one line, and what does not follow on it.

Kafka counts records: the next batch of an epoch begins at the last sequence plus 1, 0 follows 2147483647, a new epoch
begins at 0 (reference: ProducerAppendInfo of Kafka). A line is the batches of one producer in one epoch between two
silences long enough for the broker to forget it. Along a line sequences are unwrapped to int64 by adding up lengths
and signed jumps, each jump taken as the shorter way round the 2^31 sequences; `top` is the highest sequence so far.

A batch above top + 1 lies behind a gap. A gap of no more sequences than offsets are missing from the log since is what
compaction leaves, for a record takes one offset and one sequence; with a damaged file among the missing it is a
warning. A batch at or below top goes back. What it is shows when the line is sorted by sequence:

- it fills a gap that has been reported, or comes just before the first batch seen: the order is wrong, one fault;
- else it was written before. Batches that go back and follow one another are one fault, named by where they begin:
  `shared_producer` if at sequence 0 and it is not the very first batch once more, else `duplicate`. A retry repeats a
  batch with the same sequences; a stream that begins at 0 again is another client's. All else on the line behind such
  a beginning is the mixture of two streams and is not reported again.

What headers cannot tell: whether two clients with one id write to different partitions (see shared.py); a batch that
repeats sequences which retention removed; a silence by the broker's clock where timestamps are the client's; which of
missing offsets were this producer's. Batches of an older epoch are left to `fenced_epoch`.

Cost: only producers of which some row does not follow as it must are looked at (`suspect` in producers.py), with one
exchange of their rows by log and producer; of the others, mostly all, no row is moved. Only lines on which some batch
goes back are sorted by sequence once more. Spark holds the rows of one producer in one log, and spills them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.producers import (
    OFFSETS,
    SEQUENCES,
    around,
    before,
    producer_rows,
    to_here,
    with_missing,
)
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING
from pidkeeper.pipeline.inputs import AuditInputs

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""

_LINE: Final = ("log_id", "producer_id", "line")
_CARRIED: Final = ("file_id", "position", "timestamp_ms", "epoch")


def _lines(rows: DataFrame) -> DataFrame:
    """Numbers the lines of each producer, and says why each began; markers count for epochs and silences only."""
    order = Window.partitionBy("log_id", "producer_id").orderBy(*OFFSETS)
    rows = rows.where(F.col("fenced_by").isNull() & F.col("sequenced"))
    rows = rows.withColumns({name: F.col(name).cast("long") for name in ("base_sequence", "last_sequence")})
    entered = F.coalesce(F.col("epoch") > F.lag("epoch").over(order), F.lit(False))
    silent = F.coalesce(
        F.col("timestamp_ms") - F.lag("timestamp_ms").over(order) >= PRODUCER_ID_EXPIRATION_MS, F.lit(False)
    )
    rows = rows.withColumns({"entered": entered, "silent": silent})
    why = F.when(F.col("silent"), F.lit("silence")).when(F.col("entered"), F.lit("epoch"))
    there = [F.lag(name).over(order).alias(name) for name in ("missing", "holes")]
    since = F.when(F.col("entered"), F.struct(*there))
    rows = rows.withColumns({"why": why, "since": since})
    rows = rows.withColumns(
        {
            "line": F.sum((F.col("entered") | F.col("silent")).cast("long")).over(to_here(order)),
            "began": F.last("why", ignorenulls=True).over(to_here(order)),
            "since_epoch": F.last("since", ignorenulls=True).over(to_here(order)),
        }
    )
    data = rows.where(~F.col("is_control") & (F.col("base_sequence") >= 0))
    latest = F.lag(F.struct("epoch", "last_sequence", "missing", "holes")).over(order)
    return data.select(
        *_LINE, *_CARRIED, "base_offset", "base_sequence", "last_sequence", "missing", "holes", "began", "since_epoch"
    ).withColumn("latest", latest)


def _unwrapped(lines: DataFrame) -> DataFrame:
    order = Window.partitionBy(*_LINE).orderBy(*OFFSETS)
    half = SEQUENCES // 2
    previous = F.lag("last_sequence").over(order)
    rows = lines.withColumns(
        {
            "length": around(F.col("last_sequence") - F.col("base_sequence")) + 1,
            "jump": F.coalesce(around(F.col("base_sequence") - previous - 1 + half) - half, F.lit(0)),
            "origin": F.first("base_sequence").over(to_here(order)),
        }
    )
    lengths = F.coalesce(F.sum("length").over(before(order)), F.lit(0))
    rows = rows.withColumn("first", F.col("origin") + F.sum("jump").over(to_here(order)) + lengths)
    rows = rows.withColumn("last", F.col("first") + F.col("length") - 1)
    rows = rows.withColumn("top", F.max("last").over(before(order)))
    rows = rows.withColumn("back", F.coalesce(F.col("first") <= F.col("top"), F.lit(False)))
    ahead = F.when(~F.col("back"), F.struct("missing", "holes"))
    return rows.withColumn("since_top", F.last(ahead, ignorenulls=True).over(before(order)))


def _expected_gap() -> Column:
    """How many sequences stand between what is expected and a batch that does not go back."""
    latest = F.col("latest")
    forgotten = (
        F.when(latest.isNull(), F.lit(0))
        .when(latest["epoch"] == F.col("epoch"), around(F.col("base_sequence") - latest["last_sequence"] - 1))
        .otherwise(F.col("base_sequence"))
    )
    return (
        F.when(F.col("top").isNotNull(), F.col("first") - F.col("top") - 1)
        .when(F.col("began") == "epoch", F.col("base_sequence"))
        .when(F.col("began") == "silence", forgotten)
        .otherwise(F.lit(0))
    )


def judged(rows: DataFrame) -> DataFrame:
    """Every batch of data on its line, from all rows of some producers.

    `severity` says how bad the gap before it is, null if it is lawful; `gap` is null for a batch that goes back.
    """
    forgotten = F.struct(F.col("latest.missing").alias("missing"), F.col("latest.holes").alias("holes"))
    since = (
        F.when(F.col("top").isNotNull(), F.col("since_top"))
        .when(F.col("began") == "epoch", F.col("since_epoch"))
        .otherwise(forgotten)
    )
    rows = _unwrapped(_lines(rows)).withColumn("since", since)
    rows = rows.withColumns(
        {
            "gap": F.when(~F.col("back"), _expected_gap()),
            "lost": F.coalesce(F.col("missing") - F.col("since.missing"), F.lit(0)),
            "damaged": F.coalesce(F.col("holes") > F.col("since.holes"), F.lit(False)),
        }
    )
    explained = F.col("gap") <= F.col("lost")
    severity = (
        F.when(F.col("back") | (F.col("gap") <= 0), F.lit(None))
        .when(explained & F.col("damaged"), F.lit(WARNING))
        .when(explained, F.lit(None))
        .when(F.col("top").isNull() & (F.col("began") == "silence"), F.lit(NOTE))
        .otherwise(F.lit(VIOLATION))
    )
    return rows.withColumn("severity", severity).drop("since", "since_top", "since_epoch", "jump", "origin", "length")


def _against_all(rows: DataFrame) -> DataFrame:
    """Lines on which a batch goes back, in the order of their sequences: what each such batch meets there."""
    any_back = F.max("back").over(Window.partitionBy(*_LINE))
    suspects = rows.withColumn("suspect", any_back).where("suspect").drop("suspect")
    up = Window.partitionBy(*_LINE).orderBy("first", *OFFSETS)
    down = Window.partitionBy(*_LINE).orderBy(F.desc("first"), *[F.desc(name) for name in OFFSETS])
    ahead = F.struct("first", (F.col("severity") == VIOLATION).alias("reported"), F.col("top").isNull().alias("start"))
    met = suspects.withColumns(
        {
            "reach": F.max("last").over(before(up)),
            "same": F.lag(F.struct("first", "last")).over(up) == F.struct("first", "last"),
            "next": F.last(F.when(~F.col("back"), ahead), ignorenulls=True).over(before(down)),
        }
    ).where("back")
    free = ~F.coalesce(F.col("reach") >= F.col("first"), F.lit(False)) & (F.col("next.first") > F.col("last"))
    joins = F.col("next.start") & (F.col("next.first") == F.col("last") + 1)
    return met.withColumns(
        {
            "fills": F.coalesce(free & F.col("next.reported"), F.lit(False)),
            "joins": F.coalesce(free & joins & F.col("began").isNull(), F.lit(False)),
            "same": F.coalesce(F.col("same"), F.lit(False)),
        }
    )


def _repetitions(rows: DataFrame) -> DataFrame:
    """Batches that go back, one row for those that follow one another."""
    order = Window.partitionBy(*_LINE).orderBy(*OFFSETS)
    back = _against_all(rows).where(~F.col("fills"))
    breaks = F.coalesce(F.col("first") != F.lag("last").over(order) + 1, F.lit(True))
    back = back.withColumn("breaks", breaks.cast("int"))
    back = back.withColumn("chain", F.sum("breaks").over(to_here(order)))
    kept = (*_CARRIED, "base_offset", "base_sequence", "top", "same", "joins", "gap", "lost")
    chains = back.groupBy(*_LINE, "chain").agg(
        F.min_by(F.struct(*kept), F.struct(*OFFSETS)).alias("start"),
        F.count("*").alias("batches"),
        F.max_by("last_sequence", F.struct(*OFFSETS)).alias("last_sequence"),
    )
    again = (F.col("base_sequence") == 0) & ~(F.col("same") & (F.col("batches") == 1))
    fault = (
        F.when(F.col("joins") & (F.col("batches") == 1), F.lit("out_of_sequence"))
        .when(again, F.lit("shared_producer"))
        .otherwise(F.lit("duplicate"))
    )
    chains = chains.select(*_LINE, "start.*", "batches", "last_sequence")
    return chains.withColumns({"fault": fault, "severity": F.lit(VIOLATION)})


def faults_among(rows: DataFrame) -> DataFrame:
    """Each fault of the sequences of some producers once, from all of their rows: `producer_rows` `with_missing`."""
    rows = judged(rows)
    gaps = rows.where(F.col("severity").isNotNull()).withColumns(
        {"fault": F.lit("out_of_sequence"), "batches": F.lit(1).cast("long")}
    )
    columns = (*_LINE, *_CARRIED, "base_offset", "base_sequence", "last_sequence", "batches", "top", "gap", "lost")
    both = gaps.select(*columns, "fault", "severity").unionByName(
        _repetitions(rows).select(*columns, "fault", "severity")
    )
    shared = F.min(F.when(F.col("fault") == "shared_producer", F.col("base_offset")))
    both = both.withColumn("shared_at", shared.over(Window.partitionBy(*_LINE)))
    return both.where(F.col("shared_at").isNull() | (F.col("base_offset") <= F.col("shared_at"))).drop("shared_at")


@derived
def sequence_faults(inputs: AuditInputs) -> DataFrame:
    """Each fault of a copy's sequences once: `fault` is the name of the check that reports it."""
    return faults_among(with_missing(producer_rows(inputs).where("suspect"), inputs))
