"""The checks of the audit: each takes `AuditInputs` and gives findings, and reads nothing itself."""

from __future__ import annotations

from pipeline.checks.quorum import QUORUM_CHECKS

__all__ = ["QUORUM_CHECKS"]
