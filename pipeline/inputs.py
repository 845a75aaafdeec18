"""What the checks look at: the tables of all sources, as they were loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class AuditInputs:
    """Tables by the schemas in `pipeline.schemas`; one without files is empty, never missing.

    `archive_blocks`, `archive_files`, `snapshots`, `log_records` and `log_files`: of all members of one quorum.
    `batches`: of Kafka's segments. `problems`: of all sources together. `kept`: what `pipeline.derived.keep` computed
    from these once for all checks, by name.
    """

    archive_blocks: DataFrame
    archive_files: DataFrame
    snapshots: DataFrame
    log_records: DataFrame
    log_files: DataFrame
    batches: DataFrame
    problems: DataFrame
    kept: Mapping[str, DataFrame] = field(default_factory=dict)
