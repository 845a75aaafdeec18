"""A clock that goes on while the machine is suspended."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_MONOTONIC stands still in a suspended machine; that of macOS does not."""


def boot_seconds() -> float:
    """Seconds since some moment before the process began. It never goes back, and nobody can set it."""
    return time.clock_gettime(_CLOCK)
