"""Producer IDs that nobody was given."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.blocks import allocated_blocks
from pidkeeper.pipeline.checks.segments.files import named
from pidkeeper.pipeline.checks.segments.ids import producer_epochs, producer_ids
from pidkeeper.pipeline.checks.segments.rows import findings, text, where
from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING
from pidkeeper.pipeline.inputs import AuditInputs


def unallocated(inputs: AuditInputs) -> DataFrame:
    """VIOLATION: a producer id that lies in no allocated block; one finding an id, at its first batch.

    IDs below the first block that is known are one WARNING together: whoever gave out IDs before this quorum gave them,
    or the archive is not whole. Without any block there is one NOTE and nothing else.

    Cost: nothing is moved but IDs outside of blocks, and of those above the first block one row for each log.
    """
    # One row, so that this is no cross join of two tables.
    known = F.broadcast(allocated_blocks(inputs).agg(F.min("first_id").alias("known_from")))
    outside = producer_ids(inputs).where("block IS NULL").select("producer_id", "batches").crossJoin(known)
    return _inside(outside, inputs).unionByName(_below(outside)).unionByName(_unknown(outside))


def _placed(found: DataFrame, inputs: AuditInputs) -> DataFrame:
    """With the place of the first batch: of the first partition, of the first copy there."""
    epochs = producer_epochs(inputs).where("first_file IS NOT NULL").drop("batches")
    copies = epochs.join(F.broadcast(found), "producer_id")
    place = ("partition_id", "first_offset", "first_file", "first_position", "first_ms")
    first = copies.groupBy("producer_id", "batches").agg(F.min(F.struct(*place)).alias("start"))
    columns = ("base_offset", "file_id", "position", "timestamp_ms")
    start = [F.col(f"start.{name}").alias(column) for name, column in zip(place[1:], columns, strict=True)]
    return named(first.select("producer_id", "batches", *start), inputs)


def _inside(outside: DataFrame, inputs: AuditInputs) -> DataFrame:
    found = _placed(outside.where("producer_id >= known_from").drop("known_from"), inputs)
    detail = text(
        "{batches} batches, the first at offset {base_offset}, have a producer id that no broker was given: another "
        "client may be given it later"
    )
    return findings(
        found, "unallocated", VIOLATION, detail,
        subject=text("{where}, producer {producer_id}", where=where()),
        first_id="producer_id", last_id="producer_id", offset="base_offset",
    )  # fmt: skip


def _summed(outside: DataFrame) -> DataFrame:
    """One row, or none: how many IDs, and which."""
    return outside.groupBy("known_from").agg(
        F.count("*").alias("ids"), F.min("producer_id").alias("first_id"), F.max("producer_id").alias("last_id")
    )


def _below(outside: DataFrame) -> DataFrame:
    detail = text(
        "{ids} producer ids lie below {known_from}, the first ID of the first block known: they were given out before "
        "this quorum's first block, or the archive is not whole"
    )
    found = _summed(outside.where("producer_id < known_from"))
    return findings(found, "unallocated", WARNING, detail, subject=text("IDs {first_id} to {last_id}"))


def _unknown(outside: DataFrame) -> DataFrame:
    detail = text("{ids} producer ids were not checked, because no allocation was given: name the quorum's directories")
    found = _summed(outside.where("known_from IS NULL"))
    return findings(found, "unallocated", NOTE, detail, subject=text("IDs {first_id} to {last_id}"))
