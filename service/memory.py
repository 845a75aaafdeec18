"""Memory that a service has freed goes back to the system."""

from __future__ import annotations

import ctypes
from typing import Final

LARGE_BYTES: Final = 512 * 1024
"""A block of this size or more is given back as soon as it is freed: glibc's own value is a quarter of it. uvloop makes
one of 256 KiB for whatever it reads over TLS; were that given back each time, a claim would take three times as long.
"""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def give_back_what_is_freed() -> None:
    """Keep glibc from learning: it takes the largest block that was ever freed, up to 32 MiB, for usual.

    Blocks up to that size then come from heaps that keep what lies below anything still in use (mallopt(3),
    M_MMAP_THRESHOLD). A member that had taken one snapshot kept 50 MiB more for good. Other C libraries have no
    `mallopt`, and keep no such heaps.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
        mallopt(parameter, LARGE_BYTES)
