"""The checks of the audit: each takes `AuditInputs` and gives findings, and reads nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from pyspark.sql import DataFrame

from pidkeeper.pipeline.checks.quorum import QUORUM_CHECKS, QUORUM_TABLES
from pidkeeper.pipeline.checks.segments import SEGMENT_CHECKS, SEGMENT_TABLES
from pidkeeper.pipeline.derived import Derivation
from pidkeeper.pipeline.inputs import AuditInputs

Check = Callable[[AuditInputs], DataFrame]
NamedChecks = Sequence[tuple[str, Check]]


class Checks(msgspec.Struct, frozen=True):
    """The checks by what they look at, and the tables that they share; those of segments run if there are segments."""

    quorum: NamedChecks
    segments: NamedChecks
    quorum_tables: Sequence[Derivation] = ()
    segment_tables: Sequence[Derivation] = ()


ALL_CHECKS: Final = Checks(QUORUM_CHECKS, SEGMENT_CHECKS, QUORUM_TABLES, SEGMENT_TABLES)
