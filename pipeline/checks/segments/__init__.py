"""Checks of Kafka's segments, against the rules of producers' sequences and against the quorum's allocation.

They share the tables of SEGMENT_TABLES. Tables of many rows hold numbers only; names come back with findings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from pidkeeper.pipeline.checks.segments.allocation import unallocated
from pidkeeper.pipeline.checks.segments.burning import id_burner
from pidkeeper.pipeline.checks.segments.fencing import fenced_epoch
from pidkeeper.pipeline.checks.segments.files import segment_files
from pidkeeper.pipeline.checks.segments.ids import producer_epochs, producer_ids
from pidkeeper.pipeline.checks.segments.producers import log_rows
from pidkeeper.pipeline.checks.segments.sequences import duplicate, out_of_sequence
from pidkeeper.pipeline.checks.segments.shared_producer import shared_producer
from pidkeeper.pipeline.checks.segments.streams import sequence_faults
from pidkeeper.pipeline.checks.segments.transactions import hanging_transaction
from pidkeeper.pipeline.derived import Derivation
from pidkeeper.pipeline.inputs import AuditInputs

SEGMENT_CHECKS: Final[tuple[tuple[str, Callable[[AuditInputs], DataFrame]], ...]] = (
    ("unallocated", unallocated),
    ("duplicate", duplicate),
    ("out_of_sequence", out_of_sequence),
    ("fenced_epoch", fenced_epoch),
    ("shared_producer", shared_producer),
    ("hanging_transaction", hanging_transaction),
    ("id_burner", id_burner),
)
"""Name and function, in the order of the report."""

SEGMENT_TABLES: Final[tuple[Derivation, ...]] = (
    segment_files,
    log_rows,
    producer_epochs,
    producer_ids,
    sequence_faults,
)
"""What several of them look at, in an order in which each rests on those before it."""
