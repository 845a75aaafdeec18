"""The checks of the audit: each takes `AuditInputs` and gives findings, and reads nothing itself."""

from __future__ import annotations

from pipeline.checks.quorum import QUORUM_CHECKS
from pipeline.checks.segments import SEGMENT_CHECKS

__all__ = ["QUORUM_CHECKS", "SEGMENT_CHECKS"]
