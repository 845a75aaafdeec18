"""One condition of a probe."""

from __future__ import annotations

import msgspec


class HealthCheck(msgspec.Struct, frozen=True):
    """One named condition of liveness or readiness; `detail` says why it does not hold."""

    name: str
    ok: bool
    detail: str = ""
