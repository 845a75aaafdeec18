"""A block goes to the broker's current registration alone (S4, S5)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.history import WHOLE, committed, history, located
from pidkeeper.pipeline.checks.quorum.rows import block_text, findings, place
from pidkeeper.pipeline.findings import VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs


def epoch_regress(inputs: AuditInputs) -> DataFrame:
    """Blocks whose broker epoch is below that of the same broker's block before."""
    order = Window.partitionBy("broker_id").orderBy("offset")
    blocks = _blocks(inputs)
    found = blocks.withColumn("previous", F.lag("block").over(order)).filter("previous.broker_epoch > broker_epoch")
    found = located(found, inputs, "block", "previous")
    detail = F.format_string(
        "epoch %d of broker %d has %s, after epoch %d had %s: a stale process was given IDs",
        F.col("broker_epoch"),
        F.col("broker_id"),
        block_text(F.col("block")),
        F.col("previous.broker_epoch"),
        block_text(F.col("previous")),
    )
    return _about_epoch(found, "epoch_regress", detail)


def stale_epoch(inputs: AuditInputs) -> DataFrame:
    """Blocks for an epoch that a registration before them had ended, or that cannot have existed yet.

    Registrations are known as far back as the members' logs reach, so only blocks behind the broker's first one there
    are sorted.
    """
    registered = committed(inputs).filter("record_type = 'RegisterBrokerRecord' and offset is not null")
    registered = registered.select("broker_id", "offset", "broker_epoch")
    known_from = registered.groupBy("broker_id").agg(F.min("offset").alias("known_from"))
    blocks = _blocks(inputs).join(F.broadcast(known_from), "broker_id", "left")
    blocks = blocks.filter("offset > known_from or broker_epoch >= offset").drop("known_from")
    events = blocks.unionByName(registered, allowMissingColumns=True)
    registration = F.when(F.col("block").isNull(), F.col("broker_epoch"))
    earlier = Window.partitionBy("broker_id").orderBy("offset").rangeBetween(Window.unboundedPreceding, -1)
    newest = events.withColumn("newest", F.max(registration).over(earlier)).filter("block is not null")
    found = located(newest.filter("broker_epoch >= offset or newest > broker_epoch"), inputs, "block")
    text = block_text(F.col("block"))
    impossible = F.format_string(
        "%s is for epoch %d, but an epoch is the offset of a registration before it", text, F.col("broker_epoch")
    )
    stale = F.format_string(
        "%s is for epoch %d, but the broker had registered anew with epoch %d",
        text,
        F.col("broker_epoch"),
        F.col("newest"),
    )
    detail = F.when(F.col("broker_epoch") >= F.col("offset"), impossible).otherwise(stale)
    return _about_epoch(found, "stale_epoch", detail)


def _blocks(inputs: AuditInputs) -> DataFrame:
    blocks = history(inputs).filter("offset is not null")
    return blocks.select("broker_id", "offset", "broker_epoch", F.struct(*WHOLE).alias("block"))


def _about_epoch(found: DataFrame, check: str, detail: Column) -> DataFrame:
    return findings(
        found,
        check,
        VIOLATION,
        subject=F.format_string("broker %d, epoch %d", F.col("broker_id"), F.col("broker_epoch")),
        **{name: F.col("block")[name] for name in ("first_id", "last_id", "broker_id", "offset", "timestamp_ms")},
        **place(F.col("block")),
        detail=detail,
    )
