"""How a check makes its rows: findings by `pipeline.findings.FINDINGS`, and words for the eye."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from pipeline.findings import FINDINGS

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
    """All rows before the current one in this order."""
    return Window.orderBy(*order).rowsBetween(Window.unboundedPreceding, -1)


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
    """A block in full, of a struct with the columns of `history.distinct_blocks`."""
    return F.format_string(
        "%s of broker %d at offset %s (%s)",
        id_text(row["first_id"], row["last_id"]),
        row["broker_id"],
        F.coalesce(row["offset"].cast("string"), F.lit("unknown")),
        place_text(row),
    )
