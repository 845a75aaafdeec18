"""Batches whose sequences do not follow: `duplicate` and `out_of_sequence`. How they are found: streams.py."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from pidkeeper.pipeline.checks.segments.files import named
from pidkeeper.pipeline.checks.segments.rows import findings, once, text, where
from pidkeeper.pipeline.checks.segments.streams import sequence_faults
from pidkeeper.pipeline.findings import NOTE, WARNING
from pidkeeper.pipeline.inputs import AuditInputs


def duplicate(inputs: AuditInputs) -> DataFrame:
    """VIOLATION: sequences of one producer and epoch are in a partition twice. Batches in a row are one finding."""
    found = named(sequence_faults(inputs).where("fault = 'duplicate'"), inputs)
    detail = text(
        "sequences {base_sequence} to {last_sequence} of epoch {epoch}, in batches at offset {base_offset} and on "
        "({batches} in all), were written before: consumers see these records twice"
    )
    return _of_producer(found, "duplicate", detail)


def out_of_sequence(inputs: AuditInputs) -> DataFrame:
    """VIOLATION: records of a producer are missing or out of order, and no compaction explains it.

    WARNING where a damaged file lies in the gap. NOTE where the producer had been silent for PRODUCER_ID_EXPIRATION_MS,
    so that the broker took any sequence.
    """
    found = named(sequence_faults(inputs).where("fault = 'out_of_sequence'"), inputs)
    about = text("sequence {base_sequence} of epoch {epoch} at offset {base_offset}: ")
    behind = text("{gap} sequences before it are not in the log, and {lost} offsets are missing there")
    why = (
        F.when(F.col("severity") == NOTE, F.lit("the broker had forgotten the producer after its silence, and took it"))
        .when(F.col("severity") == WARNING, F.concat(behind, F.lit("; the file is damaged there, which explains it")))
        .when(F.col("gap").isNull(), F.lit("its successor stands before it in the log"))
        .otherwise(F.concat(behind, F.lit(": records were lost or changed places")))
    )
    return _of_producer(found, "out_of_sequence", F.concat(about, why))


def _of_producer(found: DataFrame, check: str, detail: Column) -> DataFrame:
    subject = text("{where}, producer {producer_id}", where=where())
    rows = findings(
        found, check, F.col("severity"), detail,
        subject=subject, first_id="producer_id", last_id="producer_id", offset="base_offset",
    )  # fmt: skip
    return once(rows, "first_id", "offset")
