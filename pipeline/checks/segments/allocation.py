"""Producer IDs that nobody was given."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pipeline.checks.segments.blocks import allocated_blocks, with_block
from pipeline.checks.segments.rows import findings, text, where
from pipeline.findings import NOTE, VIOLATION, WARNING
from pipeline.inputs import AuditInputs

_PLACE: Final = ("topic", "partition", "base_offset", "member", "file", "position", "max_timestamp_ms")


def unallocated(inputs: AuditInputs) -> DataFrame:
    """VIOLATION: a producer id that lies in no allocated block; one finding an id, at its first batch.

    IDs below the first block that is known are one WARNING together: whoever gave out IDs before this quorum gave them,
    or the archive is not whole. Without any block there is one NOTE and nothing else.

    Cost: one exchange of distinct IDs (partial aggregation first), then that of blocks.py.
    """
    ids = (
        inputs.batches.where("producer_id >= 0")
        .groupBy("producer_id")
        .agg(F.min(F.struct(*_PLACE)).alias("start"), F.count("*").alias("batches"))
    )
    blocks = allocated_blocks(inputs)
    # One row, so that this is no cross join of two tables.
    known = F.broadcast(blocks.agg(F.min("first_id").alias("known_from")))
    outside = with_block(ids, blocks).where("block IS NULL").crossJoin(known)
    outside = outside.select("producer_id", "batches", "known_from", "start.*")
    outside = outside.withColumnRenamed("max_timestamp_ms", "timestamp_ms")
    return _inside(outside).unionByName(_below(outside)).unionByName(_unknown(outside))


def _inside(outside: DataFrame) -> DataFrame:
    found = outside.where("producer_id >= known_from")
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
