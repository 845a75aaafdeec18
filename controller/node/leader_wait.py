"""Callers who wait out an election at this member, where they would come again and again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

MAX_WAITING: Final = 1000
"""Further callers are not kept, and are told at once what this member knows."""


class LeaderWait:
    """Keeps callers while `missed()`, as `Leadership.misses_leader` says."""

    def __init__(self, missed: Callable[[], bool]) -> None:
        self._missed = missed
        # In the order in which they came: that of a set is another one in each process, and a seed's course with it.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def over(self, seconds: float) -> None:
        """Return once no leader is missed, or after `seconds`."""
        if not self._missed() or len(self._waiting) >= MAX_WAITING:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiting
        finally:
            del self._waiting[waiting]

    def look(self) -> None:
        """Called after every round of the core's work: there may be a leader."""
        if self._waiting and not self._missed():
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)
