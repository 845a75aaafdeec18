"""Warnings that strangers can cause: each says where it comes from, and no source can fill the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

QUIET_SECONDS: Final = 10.0
"""From one line about a source to the next one: a member that dials in vain does so several times a second."""

MAX_SOURCES: Final = 64
"""Sources remembered. With more than that, those that were quiet for longest are told of anew."""


class Complaints:
    """Logs what is wrong with inbound connections, by host. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Host -> when it was last told of, and how many complaints were left out since; the latest told of at the end.
        self._told: dict[str, tuple[float, int]] = {}

    def about(self, host: str, complaint: str) -> None:
        """Log `complaint` about a connection from `host`, or only count it if there was one a moment ago."""
        now = self._clock()
        told, left_out = self._told.get(host, (None, 0))
        if told is not None and now - told < QUIET_SECONDS:
            self._told[host] = (told, left_out + 1)
            return
        self._told.pop(host, None)
        if len(self._told) >= MAX_SOURCES:
            del self._told[next(iter(self._told))]
        self._told[host] = (now, 0)
        more = f", {left_out} more from there since the last such line" if left_out else ""
        logger.warning("%s (a connection from %s%s)", complaint, host, more)
