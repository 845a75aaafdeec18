"""One condition of a probe."""

from __future__ import annotations

import msgspec


class HealthCheck(msgspec.Struct, frozen=True):
    """One named condition of liveness or readiness; `detail` says why it does not hold.

    `counts`: whether the probe fails with it. One that does not count is listed, and can be asked for by its name.
    """

    name: str
    ok: bool
    detail: str = ""
    counts: bool = True
