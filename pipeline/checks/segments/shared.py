"""Producer IDs that two clients use. One finding an id, by the strongest sign there is:

1. the same id writes both inside of transactions and outside of them; a client does one or the other all its life;
2. in one partition and epoch a stream begins at sequence 0 again (see streams.py);
3. an epoch is still written to in one partition long after a newer epoch of the same id began in another. In one and
   the same partition that is `fenced_epoch`.

The third sign compares times, so it needs the broker's clock: of markers, and of batches in topics with LogAppendTime.
Where only clients' timestamps show it, it is a note, because a timestamp may be that of the event recorded, and a
producer that reprocesses old events is then lawful.

What headers can not tell: two idempotent clients with the same id, both in epoch 0 and in different partitions, look
exactly like one client. That an id was given twice is seen for sure in the allocations alone.

Cost: one exchange by id on top of streams.py, of one row for each id, epoch and task before it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pipeline.checks.segments.logs import producer_rows
from pipeline.checks.segments.rows import findings, rank, text, where
from pipeline.checks.segments.streams import PRODUCER_ID_EXPIRATION_MS, sequence_faults
from pipeline.findings import NOTE, VIOLATION
from pipeline.inputs import AuditInputs

EPOCH_SLACK_MS: Final = 900_000
"""How long a batch of an old epoch may be on its way: a producer gives up after `delivery.timeout.ms`, 2 minutes by
default; brokers' clocks may differ."""

_PLACE: Final = ("base_offset", "member", "file", "position", "topic", "partition", "timestamp_ms")
_SIGN: Final = ("producer_id", "sign", "severity", "detail", *_PLACE)


def shared_producer(
    inputs: AuditInputs, *, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS, slack_ms: int = EPOCH_SLACK_MS
) -> DataFrame:
    """VIOLATION: one producer id is used by two clients; NOTE where only clients' clocks say so. Milliseconds."""
    rows = producer_rows(inputs)
    signs = _mixed(rows).unionByName(_restarted(inputs, expiration_ms)).unionByName(_overtaken(rows, slack_ms))
    order = Window.partitionBy("producer_id").orderBy(rank(F.col("severity")), "sign", "topic", "partition", *_PLACE)
    found = signs.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return findings(
        found, "shared_producer", F.col("severity"), F.col("detail"),
        subject=text("producer {producer_id}, seen in {where}", where=where()),
        first_id="producer_id", last_id="producer_id", offset="base_offset",
    )  # fmt: skip


def _mixed(rows: DataFrame) -> DataFrame:
    place = F.struct(*_PLACE)
    inside = F.col("is_transactional")
    found = (
        rows.where(~F.col("is_control"))
        .groupBy("producer_id")
        .agg(F.min(F.when(inside, place)).alias("inside"), F.min(F.when(~inside, place)).alias("outside"))
        .where("inside IS NOT NULL AND outside IS NOT NULL")
    )
    detail = text(
        "writes in transactions, as at offset {inside} of {one}, and outside of them, as at offset {outside} of "
        "{other}: no client does both, so two have this id",
        inside="inside.base_offset", outside="outside.base_offset",
        one=_partition("inside"), other=_partition("outside"),
    )  # fmt: skip
    inner, outer = F.col("inside"), F.col("outside")
    later = F.when(inner["timestamp_ms"] > outer["timestamp_ms"], inner).otherwise(outer)
    found = found.select("producer_id", detail.alias("detail"), later.alias("later"))
    return _sign(found.select("producer_id", "detail", "later.*"), 1)


def _restarted(inputs: AuditInputs, expiration_ms: int) -> DataFrame:
    found = sequence_faults(inputs, expiration_ms).where("fault = 'shared_producer'")
    detail = text(
        "a stream of epoch {epoch} begins at sequence 0 again at offset {base_offset} though sequence {top} had been "
        "reached: two clients write with this id"
    )
    return _sign(found.withColumn("detail", detail), 2)


def _overtaken(rows: DataFrame, slack_ms: int) -> DataFrame:
    """Epochs whose data goes on `slack_ms` after a higher epoch's first sign, by the brokers' clocks or by all."""
    stamped = rows.where(F.col("fenced_by").isNull() & F.col("timestamp_ms").isNotNull())
    by_broker = F.col("broker_clock")
    data = ~F.col("is_control")
    last = F.struct("timestamp_ms", *[name for name in _PLACE if name != "timestamp_ms"])
    epochs = stamped.groupBy("producer_id", "epoch").agg(
        F.min("timestamp_ms").alias("from_any"),
        F.min(F.when(by_broker, F.col("timestamp_ms"))).alias("from_broker"),
        F.max(F.when(data, last)).alias("to_any"),
        F.max(F.when(data & by_broker, last)).alias("to_broker"),
    )
    above = Window.partitionBy("producer_id").orderBy(F.desc("epoch")).rowsBetween(Window.unboundedPreceding, -1)
    epochs = epochs.withColumns(
        {name: F.min(name).over(above).alias(name) for name in ("from_any", "from_broker")}
        | {"newer": F.max("epoch").over(above)}
    )
    proven = F.col("to_broker.timestamp_ms") - F.col("from_broker") > slack_ms
    likely = F.col("to_any.timestamp_ms") - F.col("from_any") > slack_ms
    epochs = epochs.withColumn("proven", F.coalesce(proven, F.lit(False))).where(F.col("proven") | likely)
    late = F.when(F.col("proven"), F.col("to_broker")).otherwise(F.col("to_any"))
    since = F.when(F.col("proven"), F.col("from_broker")).otherwise(F.col("from_any"))
    epochs = epochs.select("producer_id", "epoch", "newer", "proven", since.alias("since"), late.alias("late"))
    found = epochs.select("producer_id", "epoch", "newer", "proven", "since", "late.*")
    detail = F.concat(
        text(
            "writes in epoch {epoch} at {timestamp_ms} ms, though a newer epoch, {newer} at most, began at {since} ms"
        ),
        F.when(F.col("proven"), F.lit(": two clients have this id")).otherwise(
            F.lit("; both times are of clients, who may have stamped records with the time of older events")
        ),
    )
    severity = F.when(F.col("proven"), F.lit(VIOLATION)).otherwise(F.lit(NOTE))
    return _sign(found.withColumn("detail", detail), 3, severity)


def _sign(found: DataFrame, sign: int, severity: Column | None = None) -> DataFrame:
    graded = found.withColumn("severity", F.lit(VIOLATION) if severity is None else severity)
    return graded.withColumn("sign", F.lit(sign)).select(*_SIGN)


def _partition(struct: str) -> Column:
    return F.concat_ws("-", f"{struct}.topic", F.col(f"{struct}.partition").cast("string"))
