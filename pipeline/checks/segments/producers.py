"""The rows of every producer in every log, with what their order shows; what few checks look at closely is marked.

Nearly all producers are spotless, and nothing of their rows but their number is looked at again.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.logs import file_rows, missing_before
from pidkeeper.pipeline.derived import derived
from pidkeeper.pipeline.inputs import AuditInputs

SEQUENCES: Final = 1 << 31
OFFSETS: Final = ("base_offset", "file_id", "position")
"""The order of a producer's rows in a log."""


def before(order: WindowSpec) -> WindowSpec:
    """The rows before the current one."""
    return order.rowsBetween(Window.unboundedPreceding, -1)


def to_here(order: WindowSpec) -> WindowSpec:
    """The rows up to the current one, and it."""
    return order.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def around(sequences: Column) -> Column:
    """A number of sequences, the shorter way round from 0 to SEQUENCES."""
    return F.pmod(sequences, F.lit(SEQUENCES))


@derived
def log_rows(inputs: AuditInputs) -> DataFrame:
    """The rows of `file_rows`, numbers and flags only, with

    `fenced_by`: the newest epoch of the producer before it in the log, if that is above its own. `is_first`: whether it
    is the producer's first row in the log. `suspect`: whether any row of the producer in any copy of the partition does
    not follow as it must (`_regular`), so that its sequences have to be looked at. `open`: whether it is data of a
    transaction that no marker behind it ends, in this copy or another. As in Kafka a marker ends it if its epoch is the
    same or newer (a coordinator that fences the producer, or that knows KIP-890, ends it in the next epoch).

    Cost: that of `file_rows`, then one exchange by partition and producer and one sort of about 150 bytes a batch.
    Spark holds the rows of one producer in one partition and its copies, and spills them.
    """
    producer = Window.partitionBy("partition_id", "producer_id")
    rows = _followed(file_rows(inputs).repartition("partition_id", "producer_id"))
    known = F.col("producer_id").isNotNull()
    ends = F.when(F.col("is_control") & F.col("fenced_by").isNull(), F.col("base_offset"))
    rows = rows.withColumns(
        {
            "suspect": F.max(known & F.col("sequenced") & ~F.col("regular")).over(producer),
            "ended": F.max(ends).over(producer),
        }
    )
    behind = F.col("base_offset") > F.coalesce(F.col("ended"), F.lit(-1))
    is_open = known & F.col("opens") & F.col("fenced_by").isNull() & behind
    return rows.withColumn("open", F.coalesce(is_open, F.lit(False))).drop("opens", "ended", "regular")


def _followed(rows: DataFrame) -> DataFrame:
    order = Window.partitionBy("partition_id", "producer_id", "log_id").orderBy(*OFFSETS)
    is_data = F.coalesce(~F.col("is_control") & (F.col("base_sequence") >= 0), F.lit(False))
    latest = F.when(is_data, F.struct("epoch", F.col("last_sequence").cast("long").alias("last_sequence")))
    rows = rows.withColumns(
        {
            "newest": F.max("epoch").over(before(order)),
            "latest": F.last(latest, ignorenulls=True).over(before(order)),
            "first_epoch": F.first("epoch").over(to_here(order)),
            "is_first": F.lag(F.lit(True)).over(order).isNull(),
        }
    )
    fenced_by = F.when(F.col("newest") > F.col("epoch"), F.col("newest"))
    rows = rows.withColumns({"fenced_by": fenced_by, "regular": _regular(is_data)})
    return rows.drop("newest", "latest", "first_epoch")


def _regular(is_data: Column) -> Column:
    """Whether a row follows the rows of its producer before it in the log exactly as it must.

    Its epoch is not below theirs, and data begins at sequence 0 in an epoch above that of the data before, or behind
    that data's last sequence in the same epoch. The first data of the log may begin anywhere, unless an epoch began
    before it in the log.

    Where all rows of a producer in a log are regular, streams.py finds nothing. No epoch falls, so no row is fenced,
    and each line is of one epoch. By induction along a line every jump is 0, for each batch begins behind the one
    before: so it lies just above `top`, does not go back, and its gap is 0. The first batch of a line that began with
    an epoch begins at 0, a gap of 0. That of a line that began with a silence begins at 0 in a new epoch or goes on
    in the old one, again a gap of 0, or is the first of the log. A line that began with the log has no gap. Whatever is
    null makes a row irregular unless streams.py does not look at it.
    """
    epoch, newest, latest = F.col("epoch"), F.col("newest"), F.col("latest")
    from_zero = F.col("base_sequence") == 0
    follows = (
        F.when(epoch > newest, from_zero)
        .when(latest.isNull(), from_zero | (epoch == F.col("first_epoch")))
        .when(latest["epoch"] == epoch, F.col("base_sequence") == around(latest["last_sequence"] + 1))
        .otherwise(from_zero)
    )
    return F.coalesce((newest.isNull() | (epoch >= newest)) & (~is_data | follows), F.lit(False))


def producer_rows(inputs: AuditInputs) -> DataFrame:
    """The batches and markers of producers. `missing` is that of the file: see `with_missing`."""
    return log_rows(inputs).where(F.col("producer_id").isNotNull())


def with_missing(rows: DataFrame, inputs: AuditInputs) -> DataFrame:
    """`rows` of `producer_rows` with `missing` of the whole log up to and with each. Cost: one row a file is sent."""
    carried = F.broadcast(missing_before(log_rows(inputs), inputs))
    total = F.col("missing") + F.col("missing_before")
    return rows.join(carried, "file_id").withColumn("missing", total).drop("missing_before")


def log_ends(inputs: AuditInputs) -> DataFrame:
    """`missing` and `holes` of each whole log, by `log_id`: one row for each log."""
    ends = with_missing(log_rows(inputs).where("file_end"), inputs)
    return ends.groupBy("log_id").agg(F.max("missing").alias("end_missing"), F.max("holes").alias("end_holes"))
