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

Cost: one exchange by id of a row for each epoch of a producer in a log, and a pass over all batches for the places of
what was found; only those batches are moved.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.files import NAMES, named, segment_files
from pidkeeper.pipeline.checks.segments.ids import producer_epochs, producer_ids
from pidkeeper.pipeline.checks.segments.producers import OFFSETS, producer_rows
from pidkeeper.pipeline.checks.segments.rows import findings, rank, text, where
from pidkeeper.pipeline.checks.segments.streams import sequence_faults
from pidkeeper.pipeline.findings import NOTE, VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs

EPOCH_SLACK_MS: Final = 900_000
"""How long a batch of an old epoch may be on its way: a producer gives up after `delivery.timeout.ms`, 2 minutes by
default; brokers' clocks may differ."""

_PLACE: Final = (*OFFSETS, "timestamp_ms")
_SIGN: Final = ("producer_id", "sign", "severity", "detail", *_PLACE, *NAMES)


def shared_producer(inputs: AuditInputs, *, slack_ms: int = EPOCH_SLACK_MS) -> DataFrame:
    """VIOLATION: one producer id is used by two clients; NOTE where only clients' clocks say so. Milliseconds."""
    signs = _mixed(inputs).unionByName(_restarted(inputs)).unionByName(_overtaken(inputs, slack_ms))
    order = Window.partitionBy("producer_id").orderBy(rank(F.col("severity")), "sign", "topic", "partition", *_PLACE)
    found = signs.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    return findings(
        found, "shared_producer", F.col("severity"), F.col("detail"),
        subject=text("producer {producer_id}, seen in {where}", where=where()),
        first_id="producer_id", last_id="producer_id", offset="base_offset",
    )  # fmt: skip


def _mixed(inputs: AuditInputs) -> DataFrame:
    mixed = F.broadcast(producer_ids(inputs).where("mixed").select("producer_id"))
    rows = producer_rows(inputs).where(~F.col("is_control")).join(mixed, "producer_id", "left_semi")
    place = F.struct(*_PLACE)
    inside = F.col("is_transactional")
    found = rows.groupBy("producer_id").agg(
        F.min(F.when(inside, place)).alias("inside"), F.min(F.when(~inside, place)).alias("outside")
    )
    for name in ("inside", "outside"):
        names = segment_files(inputs).select("file_id", F.struct(*NAMES).alias(f"{name}_names"))
        same = F.col(f"{name}.file_id") == names["file_id"]
        found = found.join(F.broadcast(names), same).drop(names["file_id"])
    detail = text(
        "writes in transactions, as at offset {inside} of {one}, and outside of them, as at offset {outside} of "
        "{other}: no client does both, so two have this id",
        inside="inside.base_offset", outside="outside.base_offset",
        one=_partition("inside_names"), other=_partition("outside_names"),
    )  # fmt: skip
    inner, outer = F.struct("inside.*", "inside_names.*"), F.struct("outside.*", "outside_names.*")
    later = F.when(F.col("inside.timestamp_ms") > F.col("outside.timestamp_ms"), inner).otherwise(outer)
    found = found.select("producer_id", detail.alias("detail"), later.alias("later"))
    return _sign(found.select("producer_id", "detail", "later.*"), 1)


def _restarted(inputs: AuditInputs) -> DataFrame:
    found = named(sequence_faults(inputs).where("fault = 'shared_producer'"), inputs)
    detail = text(
        "a stream of epoch {epoch} begins at sequence 0 again at offset {base_offset} though sequence {top} had been "
        "reached: two clients write with this id"
    )
    return _sign(found.withColumn("detail", detail), 2)


def _overtaken(inputs: AuditInputs, slack_ms: int) -> DataFrame:
    """Epochs whose data goes on `slack_ms` after a higher epoch's first sign, by the brokers' clocks or by all."""
    found = named(_last_batches(inputs, _late_epochs(inputs, slack_ms)), inputs)
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


def _late_epochs(inputs: AuditInputs, slack_ms: int) -> DataFrame:
    """producer_id, epoch, `newer`, whether it is `proven`, `since` when and up to what `timestamp_ms`."""
    figures = {"from_any": F.min, "from_broker": F.min, "to_any": F.max, "to_broker": F.max}
    rows = producer_epochs(inputs).where("from_any IS NOT NULL").select("producer_id", "epoch", *figures)
    # By id alone, so that the window below needs no other exchange.
    grouped = rows.repartition("producer_id").groupBy("producer_id", "epoch")
    epochs = grouped.agg(*[aggregate(name).alias(name) for name, aggregate in figures.items()])
    above = Window.partitionBy("producer_id").orderBy(F.desc("epoch")).rowsBetween(Window.unboundedPreceding, -1)
    epochs = epochs.withColumns(
        {name: F.min(name).over(above) for name in ("from_any", "from_broker")} | {"newer": F.max("epoch").over(above)}
    )
    proven = F.coalesce(F.col("to_broker") - F.col("from_broker") > slack_ms, F.lit(False))
    likely = F.col("to_any") - F.col("from_any") > slack_ms
    epochs = epochs.withColumn("proven", proven).where(F.col("proven") | likely)
    late = F.when(F.col("proven"), F.col("to_broker")).otherwise(F.col("to_any"))
    since = F.when(F.col("proven"), F.col("from_broker")).otherwise(F.col("from_any"))
    return epochs.select("producer_id", "epoch", "newer", "proven", since.alias("since"), late.alias("timestamp_ms"))


def _last_batches(inputs: AuditInputs, epochs: DataFrame) -> DataFrame:
    """The epochs with OFFSETS of the last batch of that timestamp."""
    rows = producer_rows(inputs).where(~F.col("is_control") & F.col("fenced_by").isNull())
    rows = rows.select("producer_id", "epoch", "timestamp_ms", "broker_clock", *OFFSETS)
    met = rows.join(F.broadcast(epochs), ["producer_id", "epoch", "timestamp_ms"])
    met = met.where(~F.col("proven") | F.col("broker_clock"))
    last = met.groupBy(*epochs.columns).agg(F.max(F.struct(*OFFSETS)).alias("last"))
    return last.select(*epochs.columns, "last.*")


def _sign(found: DataFrame, sign: int, severity: Column | None = None) -> DataFrame:
    graded = found.withColumn("severity", F.lit(VIOLATION) if severity is None else severity)
    return graded.withColumn("sign", F.lit(sign)).select(*_SIGN)


def _partition(struct: str) -> Column:
    return F.concat_ws("-", f"{struct}.topic", F.col(f"{struct}.partition").cast("string"))
