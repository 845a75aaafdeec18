"""Who was given which block: all copies of all members as one table, and each block once."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.rows import PLACE, RANGE_BITS
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.inputs import AuditInputs
from pidkeeper.protocol.ids import OWN

ARCHIVE: Final = "archive"
LOG: Final = "log"
BLOCK: Final = ("offset", "first_id", "last_id", "broker_id", "broker_epoch", "timestamp_ms")
"""What is said of a block; the copies of one agree in all of it."""
WHOLE: Final = (*BLOCK, "place")
"""A block, and where its first copy stands."""
KEY: Final = ("offset", "first_id", "place")
"""Which block it is, as a struct: the blocks of one log entry stand at one place, and an offset may be unknown."""
MAX_MEMBERS: Final = 63
"""Members are counted by the bits of a long. A quorum has nine voters at most; the others are copies of copies."""

_POSITIONS: Final = 1 << 40
"""More than the bytes of any file, 1 TiB: a file's number and a position are one long up to 8 million files."""

ALLOCATIONS: Final = ("AllocateProducerIdsRecord", "TransactionalBlockRecord")
"""The records of blocks: given to a broker, or taken by the quorum for transactional producers."""


def committed(inputs: AuditInputs) -> DataFrame:
    """The log records that a member had recorded as committed; the others may still be replaced."""
    return inputs.log_records.filter("committed")


def allocations(inputs: AuditInputs) -> DataFrame:
    """Every copy of every block: BLOCK, PLACE, and `source`, ARCHIVE or LOG.

    A copy in a log that starts behind the last snapshot beside it has no offset.
    """
    columns = [*BLOCK, *PLACE]
    archived = inputs.archive_blocks.select(*columns, F.lit(ARCHIVE).alias("source"))
    logged = committed(inputs).filter(F.col("record_type").isin(*ALLOCATIONS))
    return archived.unionByName(logged.select(*columns, F.lit(LOG).alias("source")))


@derived
def block_files(inputs: AuditInputs) -> DataFrame:
    """The files that copies of blocks are in: `member`, `file`, `copies`, `member_number`, `file_number`, from 1 on.

    Numbers are in the order of the names: whatever is sorted or moved goes by them.
    """
    files = allocations(inputs).groupBy("member", "file").agg(F.count("*").alias("copies"))
    return files.select(
        "member",
        "file",
        "copies",
        F.dense_rank().over(Window.orderBy("member")).alias("member_number"),
        F.row_number().over(Window.orderBy("member", "file")).cast("long").alias("file_number"),
    )


@derived
def distinct_blocks(inputs: AuditInputs) -> DataFrame:
    """One row for each block that any copy tells of: WHOLE, how many copies and members have it, and versions.

    `place` is that of the first copy (see `located`), `archived` counts the copies in archives. Copies that disagree
    about one offset are versions of it: `version` 1 is what most members have, `versions` is how many there are. A copy
    without an offset counts only where no copy of the same block has one.
    Cost for n copies: one shuffle of n rows of 80 bytes by ranges of offsets, in which all that follows is done.
    """
    numbered = _numbered(inputs).repartition("offset_range")
    blocks = numbered.groupBy("offset_range", *BLOCK).agg(
        F.min("place").alias("place"),
        F.count("*").alias("copies"),
        F.bit_count(F.bit_or("member_bit")).cast("long").alias("members"),
        F.sum("archived").alias("archived"),
    )
    alone = F.when(F.col("offset").isNull(), F.struct(*BLOCK[1:]))
    same = Window.partitionBy("offset_range", "offset", alone)
    order = same.orderBy(F.desc("members"), F.desc("copies"), "place", *BLOCK[1:])
    blocks = blocks.withColumn("version", F.row_number().over(order))
    return blocks.withColumn("versions", F.max("version").over(same)).drop("offset_range")


def history(inputs: AuditInputs) -> DataFrame:
    """The blocks that most members agree on: one for each offset."""
    return distinct_blocks(inputs).filter("version = 1").drop("version", "versions")


def blocks_of_brokers(inputs: AuditInputs) -> DataFrame:
    """`history` without the blocks that the quorum took itself."""
    return history(inputs).filter(F.col("broker_id") != OWN)


def located(found: DataFrame, inputs: AuditInputs, *structs: str) -> DataFrame:
    """`found` with PLACE in these structs, instead of their `place`. Files are few, so no row is moved for it."""
    files = block_files(inputs).select("file_number", "member", "file")
    for name in structs:
        named = F.broadcast(files.select(F.struct("file_number", "member", "file").alias("_file")))
        place = F.col(name)["place"]
        found = found.join(named, F.expr(f"{name}.place div {_POSITIONS}") == F.col("_file.file_number"), "left")
        fields = [F.col(name)[field].alias(field) for field in _fields(found, name) if field != "place"]
        whole = F.struct(*fields, "_file.member", "_file.file", (place % _POSITIONS).alias("position"))
        found = found.withColumn(name, F.when(F.col(name).isNotNull(), whole)).drop("_file")
    return found


def _fields(frame: DataFrame, name: str) -> list[str]:
    names: list[str] = frame.schema[name].dataType.fieldNames()  # type: ignore[attr-defined]
    return names


def _numbered(inputs: AuditInputs) -> DataFrame:
    """The copies as numbers alone."""
    too_many = F.raise_error(f"there are files of more than {MAX_MEMBERS} members: audit them in parts")
    bit = F.expr("shiftleft(1L, member_number - 1)")
    files = F.broadcast(block_files(inputs).drop("copies"))
    copies = _with_best_offset(allocations(inputs)).join(files, ["member", "file"])
    return copies.select(
        *BLOCK,
        F.shiftright("offset", RANGE_BITS).alias("offset_range"),
        (F.col("file_number") * _POSITIONS + F.col("position")).alias("place"),
        F.when(F.col("member_number") <= MAX_MEMBERS, bit).otherwise(too_many).alias("member_bit"),
        (F.col("source") == ARCHIVE).cast("int").alias("archived"),
    )


def _with_best_offset(copies: DataFrame) -> DataFrame:
    """Without the copies that lack an offset which another copy of the block has. Only logs lack some, so few do."""
    known, unknown = copies.filter("offset is not null"), copies.filter("offset is null")
    content = [F.col(name) for name in BLOCK[1:]]
    unknown = unknown.withColumn("content", F.struct(*content))
    wanted = F.broadcast(unknown.select("content").distinct())
    told = known.select(F.struct(*content).alias("content")).join(wanted, "content", "left_semi").distinct()
    return known.unionByName(unknown.join(told, "content", "left_anti").drop("content"))
