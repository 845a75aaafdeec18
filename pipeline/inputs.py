"""What the checks look at: the tables of all sources, as they were loaded."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class AuditInputs:
    """Tables by the schemas in `pipeline.schemas`; one without files is empty, never missing.

    `archive_blocks`, `archive_files`, `snapshots`, `log_records` and `log_files`: of all members of one quorum.
    `batches`: of Kafka's segments. `problems`: of all sources together. `blocks`: what
    `pipeline.checks.quorum.history.distinct_blocks` gives, where it is computed once for all checks.
    """

    archive_blocks: DataFrame
    archive_files: DataFrame
    snapshots: DataFrame
    log_records: DataFrame
    log_files: DataFrame
    batches: DataFrame
    problems: DataFrame
    blocks: DataFrame | None = None
