"""Whether the members' files together still tell of every log offset, and what each of them lacks."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.checks.quorum.intervals import archive_intervals, held_intervals, merged
from pidkeeper.pipeline.checks.quorum.rows import before, findings, span_text
from pidkeeper.pipeline.findings import NOTE, VIOLATION, WARNING
from pidkeeper.pipeline.inputs import AuditInputs


def coverage(inputs: AuditInputs) -> DataFrame:
    """Offsets that no member holds, offsets that one lacks, and archive files of one member that overlap."""
    return _lost(inputs).unionByName(_lacking(inputs)).unionByName(_overlapping(inputs))


def _missing(inputs: AuditInputs) -> DataFrame:
    """`from_offset` to before `to_offset` that no member holds, between offsets that some do."""
    found = merged(held_intervals(inputs)).withColumn("end", F.max("to_offset").over(before("from_offset")))
    return found.filter("end < from_offset").select(
        F.col("end").alias("from_offset"), F.col("from_offset").alias("to_offset")
    )


def _lost(inputs: AuditInputs) -> DataFrame:
    """A hole in the only member that was given is legal: it went on behind a received snapshot."""
    members = held_intervals(inputs).agg(F.count_distinct("member").alias("members"))
    lost = _missing(inputs).crossJoin(members)
    offsets = _offsets()
    alone = F.format_string("%s are not in the files of the only member given; look at another's too", offsets)
    nobody = F.format_string("missing: no one of %d members holds %s", F.col("members"), offsets)
    return findings(
        lost,
        "coverage",
        F.when(F.col("members") == 1, F.lit(WARNING)).otherwise(F.lit(VIOLATION)),
        subject=offsets,
        offset=F.col("from_offset"),
        detail=F.when(F.col("members") == 1, alone).otherwise(nobody),
    )


def _lacking(inputs: AuditInputs) -> DataFrame:
    """What a member lacks and others hold: fewer than two others are a warning, unless the member is only behind."""
    held = held_intervals(inputs).select("member", "from_offset", "to_offset")
    span = held.agg(F.min("from_offset").alias("start"), F.max("to_offset").alias("end")).filter("start is not null")
    members = held.select("member").distinct().crossJoin(span)
    # What nobody holds is `_lost`, so it counts as held here.
    known = held.unionByName(members.select("member").crossJoin(_missing(inputs)))
    ends = members.select("member", F.col("end").alias("from_offset"), F.col("end").alias("to_offset"))
    events = known.unionByName(ends).join(members, "member")
    events = events.withColumn("tail", F.col("from_offset") == F.col("end"))
    order = Window.partitionBy("member").orderBy("from_offset", "to_offset")
    reached = F.max("to_offset").over(order.rowsBetween(Window.unboundedPreceding, -1))
    holes = events.withColumn("reached", F.coalesce(reached, F.col("start"))).filter("reached < from_offset")
    holes = holes.select(
        "member", F.col("reached").alias("from_offset"), F.col("from_offset").alias("to_offset"), "tail"
    )
    counted = _with_holders(holes, merged(held, "member"))
    holders = F.concat_ws(", ", F.array_sort("holders"))
    few = F.size("holders") < 2
    behind = F.format_string("member %s is behind: it lacks %s", F.col("member"), _offsets())
    lacks = F.format_string("member %s lacks %s", F.col("member"), _offsets())
    others = (
        F.when(F.size("holders") == 0, F.lit("; no other member alone holds them all"))
        .when(few, F.format_string("; only member %s holds them all", holders))
        .otherwise(F.format_string("; members %s hold them", holders))
    )
    return findings(
        counted,
        "coverage",
        F.when(F.col("tail") | ~few, F.lit(NOTE)).otherwise(F.lit(WARNING)),
        subject=F.format_string("member %s, %s", F.col("member"), _offsets()),
        offset=F.col("from_offset"),
        member=F.col("member"),
        detail=F.when(F.col("tail"), behind).otherwise(F.concat(lacks, others)),
    )


def _with_holders(holes: DataFrame, held: DataFrame) -> DataFrame:
    """`holders`: who holds all of a hole. Both sides are a few rows, since files that touch are one interval."""
    other = held.select(
        F.col("member").alias("holder"), F.col("from_offset").alias("held_from"), F.col("to_offset").alias("held_to")
    )
    inside = "holder != member and held_from <= from_offset and to_offset <= held_to"
    pairs = holes.join(other, F.expr(inside), "left")
    return pairs.groupBy(*holes.columns).agg(F.collect_set("holder").alias("holders"))


def _overlapping(inputs: AuditInputs) -> DataFrame:
    """Of two files that hold the same offsets one does not belong there; a member with both refuses to start."""
    order = Window.partitionBy("member").orderBy("from_offset", "to_offset")
    widest = F.max(F.struct("to_offset", "file")).over(order.rowsBetween(Window.unboundedPreceding, -1))
    files = archive_intervals(inputs).filter("not superseded").withColumn("other", widest)
    found = files.filter("other.to_offset > from_offset")
    both = span_text("offset", F.col("from_offset"), F.least("to_offset", "other.to_offset") - 1)
    return findings(
        found,
        "coverage",
        WARNING,
        subject=F.format_string("member %s, %s", F.col("member"), both),
        offset=F.col("from_offset"),
        member=F.col("member"),
        file=F.col("file"),
        detail=F.format_string(
            "%s are in two archive files of member %s, %s and %s: one does not belong there",
            both,
            F.col("member"),
            F.col("other.file"),
            F.col("file"),
        ),
    )


def _offsets() -> Column:
    return span_text("offset", F.col("from_offset"), F.col("to_offset") - 1)
