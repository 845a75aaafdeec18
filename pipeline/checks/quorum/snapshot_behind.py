"""A snapshot never forgets a block: its next producer ID is above every ID handed out before it (S6, R12)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.history import KEY, WHOLE, history, located
from pidkeeper.pipeline.checks.quorum.rows import RANGE_BITS, block_text, findings
from pidkeeper.pipeline.findings import VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs

_NAME = "snapshot_behind"
_NOT_CONTENT = frozenset({"member", "cluster_id", "file", "bytes"})


def snapshot_behind(inputs: AuditInputs) -> DataFrame:
    """Snapshots that would hand out IDs again, that fall behind the one before, or that differ from others' copies.

    One finding for each of the three and each distinct snapshot, however many members have it.
    """
    versions = _versions(inputs)
    behind = _against_blocks(inputs, versions)
    behind_or_fallen = behind.unionByName(_fallen(versions.filter("version = 1"), behind))
    return _rows(behind_or_fallen.unionByName(_differing(versions)))


def _versions(inputs: AuditInputs) -> DataFrame:
    """Each distinct snapshot with `member` and `file` of its first copy; version 1 is what most members have."""
    content = [name for name in inputs.snapshots.columns if name not in _NOT_CONTENT]
    first = F.min(F.struct("member", "file")).alias("place")
    each = inputs.snapshots.groupBy(*content).agg(first, F.count("*").alias("copies"))
    order = Window.partitionBy("index").orderBy(F.desc("copies"), "place")
    return each.select(*content, "place.*", "copies", F.row_number().over(order).alias("version"))


def _against_blocks(inputs: AuditInputs, versions: DataFrame) -> DataFrame:
    found = _with_highest(inputs, versions).filter("next_producer_id <= highest.last_id")
    found = found.withColumn("_key", F.struct(*[F.col(f"highest.{name}") for name in KEY]))
    blocks = history(inputs).select(F.struct(*KEY).alias("_key"), F.struct(*WHOLE).alias("block"))
    found = blocks.join(F.broadcast(found), "_key")
    found = located(found, inputs, "block")
    detail = F.format_string(
        "the next producer ID is %d, but before offset %d came %s: whoever starts from it hands out IDs again",
        F.col("next_producer_id"),
        F.col("next_offset"),
        block_text(F.col("block")),
    )
    return _chosen(found, detail, F.col("highest.last_id"))


def _with_highest(inputs: AuditInputs, versions: DataFrame) -> DataFrame:
    """The snapshots with `highest`: `last_id` and KEY of the block that reached farthest before their `next_offset`.

    Cost: two passes over the blocks, one to see how far each range of offsets reaches, and one over the ranges in which
    a snapshot ends. Snapshots are few.
    """
    blocks = history(inputs).filter("offset is not null")
    reach = F.struct("last_id", *KEY).alias("reach")
    blocks = blocks.select("offset", F.shiftright("offset", RANGE_BITS).alias("range"), reach)
    ends = versions.select("next_offset", F.shiftright("next_offset", RANGE_BITS).alias("end_range")).distinct()
    ranges = blocks.groupBy("range").agg(F.max("reach").alias("reach"))
    whole = ranges.join(F.broadcast(ends), F.col("range") < F.col("end_range")).select("next_offset", "reach")
    within = (F.col("range") == F.col("end_range")) & (F.col("offset") < F.col("next_offset"))
    part = blocks.join(F.broadcast(ends), within).select("next_offset", "reach")
    highest = whole.unionByName(part).groupBy("next_offset").agg(F.max("reach").alias("highest"))
    return versions.join(highest, "next_offset")


def _fallen(versions: DataFrame, behind: DataFrame) -> DataFrame:
    previous = F.lag(F.struct("index", "next_producer_id", "member", "file")).over(Window.orderBy("index"))
    found = versions.withColumn("previous", previous).filter("previous.next_producer_id > next_producer_id")
    detail = F.format_string(
        "the next producer ID falls to %d, from %d in the snapshot at index %d (member %s, %s)",
        F.col("next_producer_id"),
        F.col("previous.next_producer_id"),
        F.col("previous.index"),
        F.col("previous.member"),
        F.col("previous.file"),
    )
    fallen = _chosen(found, detail, F.col("previous.next_producer_id") - 1)
    return fallen.join(behind.select("member", "file"), ["member", "file"], "left_anti")


def _differing(versions: DataFrame) -> DataFrame:
    order = Window.partitionBy("index").orderBy("version")
    columns = [name for name in versions.columns if name not in {"member", "file", "copies", "version"}]
    # JSON leaves nulls out, so both show what they have.
    content = F.to_json(F.struct(*columns))
    shown = versions.withColumn("content", content)
    agreed = F.first(F.struct("content", "copies", "member", "file")).over(order)
    found = shown.withColumn("agreed", agreed).filter("version > 1")
    detail = F.format_string(
        "members differ: %s in member %s; %d other copies, as in member %s (%s), have %s",
        F.col("content"),
        F.col("member"),
        F.col("agreed.copies"),
        F.col("agreed.member"),
        F.col("agreed.file"),
        F.col("agreed.content"),
    )
    return _chosen(found, detail, F.lit(None))


def _chosen(found: DataFrame, detail: Column, last_id: Column) -> DataFrame:
    """The IDs from `next_producer_id` to `last_id` are those in doubt."""
    first_id = F.when(last_id.isNotNull(), F.col("next_producer_id")).alias("first_id")
    ids = (first_id, last_id.cast("long").alias("last_id"))
    return found.select("index", "next_offset", *ids, "member", "file", detail.alias("detail"))


def _rows(found: DataFrame) -> DataFrame:
    return findings(
        found,
        _NAME,
        VIOLATION,
        subject=F.format_string("snapshot at index %d", F.col("index")),
        **{name: F.col(name) for name in ("first_id", "last_id", "member", "file")},
        offset=F.col("next_offset"),
        detail=F.col("detail"),
    )
