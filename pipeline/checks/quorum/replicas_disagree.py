"""Members never disagree about what is committed (R14, log matching: Raft paper, figure 3)."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.history import (
    ALLOCATIONS,
    ARCHIVE,
    WHOLE,
    committed,
    distinct_blocks,
    history,
    located,
)
from pidkeeper.pipeline.checks.quorum.intervals import archive_intervals
from pidkeeper.pipeline.checks.quorum.rows import PLACE, RANGE_BITS, block_text, findings, place, place_text
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.findings import VIOLATION
from pidkeeper.pipeline.inputs import AuditInputs

_NAME = "replicas_disagree"
_SHOWN = ("first_id", "last_id", "broker_id", "offset", "timestamp_ms")
_NOT_CONTENT = frozenset({"member", "cluster_id", "file", "segment", "position", "index", "offset", "committed"})


def replicas_disagree(inputs: AuditInputs) -> DataFrame:
    """Copies of one block that differ, blocks that a copy of their offset does not have, entries that differ.

    A finding names the copy that fewer members have; of an entry that differs in several records, the first.
    """
    return _versions(inputs).unionByName(_absent(inputs)).unionByName(_entries(inputs))


def _versions(inputs: AuditInputs) -> DataFrame:
    # Usually none: only what differs is sorted.
    blocks = distinct_blocks(inputs).filter("offset is not null and versions > 1")
    blocks = blocks.withColumn("block", F.struct(*WHOLE))
    by_version = Window.partitionBy("offset").orderBy("version")
    most = F.first(F.struct("block", "copies", "members")).over(by_version)
    found = blocks.withColumn("_most", most).filter("version > 1")
    found = found.withColumns({"agreed": F.col("_most.block"), "copies": F.col("_most.copies")})
    found = located(found.withColumn("members", F.col("_most.members")), inputs, "block", "agreed")
    block, agreed = F.col("block"), F.col("agreed")
    detail = F.format_string(
        "%s, epoch %d, %d ms; but %d copies of %d members say: %s, epoch %d, %d ms",
        block_text(block),
        block["broker_epoch"],
        block["timestamp_ms"],
        F.col("copies"),
        F.col("members"),
        block_text(agreed),
        agreed["broker_epoch"],
        agreed["timestamp_ms"],
    )
    return findings(
        found,
        _NAME,
        VIOLATION,
        subject=F.format_string("offset %d, member %s", block["offset"], block["member"]),
        **{name: block[name] for name in _SHOWN},
        **place(block),
        detail=detail,
    )


def _absent(inputs: AuditInputs) -> DataFrame:
    """Blocks of one copy at an offset that another copy covers without a block."""
    blocks = history(inputs).filter("offset is not null").select("offset", F.struct(*WHOLE).alias("block"))
    logged = committed(inputs).filter(~F.col("record_type").isin(*ALLOCATIONS))
    others = logged.select("offset", F.col("record_type").alias("instead"), F.struct(*PLACE).alias("copy"))
    lacking = blocks.join(F.broadcast(others), "offset").select("block", "copy", "instead")
    lacking = located(lacking.unionByName(_absent_in_archives(inputs)), inputs, "block")
    block, copy = F.col("block"), F.col("copy")
    return findings(
        lacking,
        _NAME,
        VIOLATION,
        subject=F.format_string("offset %d, member %s", block["offset"], copy["member"]),
        **{name: block[name] for name in _SHOWN},
        **place(copy),
        detail=F.format_string(
            "%s; but member %s has %s there (%s)", block_text(block), copy["member"], F.col("instead"), copy["file"]
        ),
    )


def _absent_in_archives(inputs: AuditInputs) -> DataFrame:
    """Blocks that an archive file covers and its member's archive does not hold.

    Cost: a pass over all blocks, and one over all members' archive rows if there is a block with a copy too few.
    """
    doubtful = doubtful_blocks(inputs)
    start, end = (F.shiftright(name, RANGE_BITS) for name in ("from_offset", "to_offset"))
    ranges = doubtful.select("offset_range").distinct()
    files = archive_intervals(inputs).join(ranges, F.col("offset_range").between(start, end))
    files = files.select("offset_range", "member", "file", "from_offset", "to_offset")
    covered = doubtful.join(F.broadcast(files), "offset_range").filter("from_offset <= offset and offset < to_offset")
    offsets = F.broadcast(doubtful.select("offset").distinct())
    held = inputs.archive_blocks.select("member", "offset").join(offsets, "offset", "left_semi")
    lacking = covered.join(held, ["member", "offset"], "left_anti")
    reach = F.max(F.struct("to_offset", "file")).alias("reach")
    lacking = lacking.groupBy("member", "block").agg(reach)
    copy = F.struct("member", F.col("reach.file").alias("file"), F.lit(None).cast("long").alias("position"))
    return lacking.select("block", copy.alias("copy"), F.lit(f"no block in the {ARCHIVE}").alias("instead"))


@derived
def doubtful_blocks(inputs: AuditInputs) -> DataFrame:
    """Blocks with not just one copy for each archive file that covers their offset: `offset_range`, `offset`, `block`.

    Where all of these files hold the block none can lack it. Few are left: those of which copies disagree, or of which
    files of one member overlap, or which are indeed absent.
    """
    blocks = distinct_blocks(inputs).filter("offset is not null and version = 1")
    blocks = blocks.withColumn("offset_range", F.shiftright("offset", RANGE_BITS))
    start, last = F.shiftright("from_offset", RANGE_BITS), F.shiftright(F.col("to_offset") - 1, RANGE_BITS)
    ranges = blocks.select("offset_range").distinct()
    pieces = _pieces(archive_intervals(inputs)).join(ranges, F.col("offset_range").between(start, last))
    pieces = F.broadcast(pieces.select("offset_range", "from_offset", "to_offset", "files"))
    covered = blocks.join(pieces, "offset_range").filter("from_offset <= offset and offset < to_offset")
    return covered.filter("archived != files").select("offset_range", "offset", F.struct(*WHOLE).alias("block"))


def _pieces(files: DataFrame) -> DataFrame:
    """Offsets cut where a file begins or ends: `from_offset`, `to_offset`, and in how many `files` they are."""
    starts = files.filter("not superseded").select(F.col("from_offset").alias("at"), F.lit(1).alias("more"))
    ends = files.filter("not superseded").select(F.col("to_offset").alias("at"), F.lit(-1).alias("more"))
    edges = starts.unionByName(ends).groupBy("at").agg(F.sum("more").alias("more"))
    order = Window.orderBy("at")
    bounds = (F.col("at").alias("from_offset"), F.lead("at").over(order).alias("to_offset"))
    return edges.select(*bounds, F.sum("more").over(order).alias("files")).filter("files > 0")


def _entries(inputs: AuditInputs) -> DataFrame:
    """Committed entries of one index with different terms or records.

    What a record of an allocation says is left to `_versions` and `_absent`, which see the archives too.
    """
    rows = committed(inputs)
    names = [name for name in rows.columns if name not in _NOT_CONTENT]
    by_record = Window.partitionBy("index", "record_number")
    of_block = F.col("record_type").isin(*ALLOCATIONS) & F.col("offset").isNotNull()
    rows = rows.withColumn("of_block", F.max(of_block).over(by_record))
    rows = rows.withColumn("records", F.count("*").over(Window.partitionBy("member", "index")))
    # JSON leaves nulls out by name, so that no two contents look alike.
    whole = F.to_json(F.struct("records", *names))
    rows = rows.withColumn(
        "content", F.when(F.col("of_block"), F.to_json(F.struct("term", "records"))).otherwise(whole)
    )
    copy = F.struct(*PLACE, "index", "term", "record_number", "record_type", "offset", "content")
    versions = rows.groupBy("index", "record_number", F.sha2("content", 256).alias("digest")).agg(
        F.min(copy).alias("copy"), F.count("*").alias("members")
    )
    ranked = by_record.orderBy(F.desc("members"), "copy")
    versions = versions.withColumn("agreed", F.first(F.struct("copy", "members")).over(ranked))
    versions = versions.withColumn("version", F.row_number().over(ranked)).filter("version > 1")
    first = versions.groupBy("index", "copy.member").agg(
        F.min_by(F.struct("copy", "agreed"), "record_number").alias("found")
    )
    mine, agreed = F.col("found.copy"), F.col("found.agreed.copy")
    return findings(
        first,
        _NAME,
        VIOLATION,
        subject=F.format_string("log index %d, member %s", F.col("index"), mine["member"]),
        offset=mine["offset"],
        **place(mine),
        detail=F.format_string(
            "entry %d, record %d of %s: %s; but %d members have %s (%s)",
            F.col("index"),
            mine["record_number"],
            place_text(mine),
            mine["content"],
            F.col("found.agreed.members"),
            agreed["content"],
            place_text(agreed),
        ),
    )
