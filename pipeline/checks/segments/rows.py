"""Findings from rows of batches."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.findings import FINDINGS, VIOLATION, WARNING


def text(template: str, **values: Column | str) -> Column:
    """`template` with each {name} replaced by a value of the row; a null shows as ?."""
    parts: list[Column] = []
    rest = template
    while "{" in rest:
        before, _, rest = rest.partition("{")
        name, _, rest = rest.partition("}")
        value = values.get(name, name)
        column = F.col(value) if isinstance(value, str) else value
        parts += [F.lit(before), F.coalesce(column.cast("string"), F.lit("?"))]
    return F.concat(*parts, F.lit(rest))


def where() -> Column:
    """The partition for the eye: `orders-0`, else the file."""
    return F.coalesce(F.concat(F.col("topic"), F.lit("-"), F.col("partition").cast("string")), F.col("file"))


def findings(
    frame: DataFrame, check: str, severity: Column | str, detail: Column, **columns: Column | str
) -> DataFrame:
    """Rows of FINDINGS: `columns` name what is not of that name in `frame`; what neither has is null."""
    given: dict[str, Column] = {
        "check": F.lit(check),
        "severity": F.lit(severity) if isinstance(severity, str) else severity,
        "detail": detail,
    }
    given |= {name: F.col(value) if isinstance(value, str) else value for name, value in columns.items()}
    given |= {name: F.col(name) for name in frame.columns if name not in given}
    return frame.select(
        *[given.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name) for each in FINDINGS.fields]
    )


def rank(severity: Column) -> Column:
    """0 for what is worst."""
    return F.when(severity == VIOLATION, 0).when(severity == WARNING, 1).otherwise(2)


def once(found: DataFrame, *key: str) -> DataFrame:
    """One finding for each key over all copies, the worst, of the member that comes first. Only findings are moved."""
    copy = F.coalesce(F.col("topic"), F.regexp_extract("file", r"^(.*)[/\\]", 1))
    order = Window.partitionBy(copy, "partition", *key).orderBy(rank(F.col("severity")), "offset", "member", "file")
    return found.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
