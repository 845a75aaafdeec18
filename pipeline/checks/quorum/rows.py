"""How a check of the quorum makes its rows: findings by `pipeline.findings.FINDINGS`, and words for the eye."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.protocol.ids import OWN

RANGE_BITS: Final = 16
"""Values of the first column of an order are cut into ranges of 2^16 log offsets; see `with_highest_before`."""
ID_RANGE_BITS: Final = 26
"""The same for producer IDs: 2^16 blocks of the default size."""
_NO_RANGE: Final = -(1 << 62)
"""Below every range: nulls come first."""

PLACE: Final = ("member", "file", "position")
"""Where a row can be looked at."""


def findings(
    frame: DataFrame, check: str, severity: str | Column, *, subject: Column, detail: Column, **columns: Column
) -> DataFrame:
    """One finding for each row of `frame`; `columns` by name, null where none is given."""
    given = columns | {
        "check": F.lit(check),
        "severity": F.lit(severity) if isinstance(severity, str) else severity,
        "subject": subject,
        "detail": detail,
    }
    return frame.select(
        *[given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name) for field in FINDINGS]
    )


def before(*order: str | Column) -> WindowSpec:
    """All rows before the current one in this order: one task with all rows, so for tables of few rows alone."""
    return Window.orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)


def with_highest_before(
    frame: DataFrame, values: Mapping[str, str], key: str, *then: str | Column, bits: int = RANGE_BITS
) -> DataFrame:
    """`frame` with a column for each of `values`, by name: the greatest value of its column in all rows before.

    The order is by `key`, nulls first, and `then`. `key` is cut into ranges of 2^`bits`: a running maximum within each
    range, and one over the ranges before it.
    Cost for n rows in r ranges: `frame` is computed twice, and its rows are sorted once, range by range, in all tasks,
    on disk where memory ends. Of the ranges before, one task sees r rows and all get them, so r is to be far below n.
    """
    ranged = frame.withColumn("_range", F.coalesce(F.shiftright(key, bits).cast("long"), F.lit(_NO_RANGE)))
    highest = ranged.groupBy("_range").agg(*[F.max(value).alias(f"_{name}") for name, value in values.items()])
    before_range = before("_range")
    carried = highest.select("_range", *[F.max(f"_{name}").over(before_range).alias(f"_{name}") for name in values])
    within = Window.partitionBy("_range").orderBy(F.asc_nulls_first(key), *then)
    so_far = within.rowsBetween(Window.unboundedPreceding, -1)
    own = ranged.withColumns({name: F.max(value).over(so_far) for name, value in values.items()})
    met = own.join(F.broadcast(carried), "_range")
    met = met.withColumns({name: F.greatest(name, f"_{name}") for name in values})
    return met.drop("_range", *[f"_{name}" for name in values])


def place(row: Column | None = None) -> dict[str, Column]:
    """The columns of PLACE, of a struct or of the frame itself."""
    return {name: F.col(name) if row is None else row[name] for name in PLACE}


def span_text(word: str, first: Column, last: Column) -> Column:
    """`ID 5` or `IDs 5 to 9`; the end is inclusive."""
    many = F.format_string(f"{word}s %d to %d", first, last)
    return F.when(first == last, F.format_string(f"{word} %d", first)).otherwise(many)


def id_text(first: Column, last: Column) -> Column:
    """`ID 5` or `IDs 5 to 9`."""
    return span_text("ID", first, last)


def place_text(row: Column) -> Column:
    """`member 1, FILE, byte 128` of a struct."""
    return F.format_string("member %s, %s, byte %d", row["member"], row["file"], row["position"])


def block_text(row: Column) -> Column:
    """A block in full, of a struct that `history.located` gave its place."""
    return F.format_string(
        "%s of %s at offset %s (%s)",
        id_text(row["first_id"], row["last_id"]),
        F.when(row["broker_id"] == OWN, "the quorum's own").otherwise(F.format_string("broker %d", row["broker_id"])),
        F.coalesce(row["offset"].cast("string"), F.lit("unknown")),
        place_text(row),
    )
