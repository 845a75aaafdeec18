"""Ranges of the store's objects, some at a time, with a deadline; and complaints about what is not as it must be."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.store.port import ObjectStore, StoreUnavailableError

MAX_READS: Final = 16
"""Ranges that are read at a time."""

READ_SECONDS: Final = 10.0
"""For the ranges of one answer; consumers wait half a minute for it."""

MAX_COMPLAINTS: Final = 1000
"""Objects that were complained about; each is named once. Forgotten together, above that."""

_log = logging.getLogger(__name__)


class RangedReads:
    """Reads from `store`."""

    def __init__(self, store: ObjectStore, counters: Counters) -> None:
        self._store = store
        self._counters = counters
        self._room = asyncio.Semaphore(MAX_READS)
        self._complaints: set[str] = set()

    async def read(self, name: str, start: int, length: int) -> bytes:
        """A range of an object. Raises StoreError, StoreUnavailableError also where no answer comes in time."""
        try:
            async with asyncio.timeout(READ_SECONDS), self._room:
                self._counters.store_reads += 1
                return await self._store.read(name, start, length)
        except TimeoutError:
            raise StoreUnavailableError(f"no answer within {READ_SECONDS} s") from None

    def tell_damage(self, name: str, why: object) -> None:
        """Count a range that is not what the quorum says, and name its object in the log, once."""
        self._counters.damaged_reads += 1
        self.complain(name, why)

    def complain(self, name: str, why: object) -> None:
        """Name an object in the log, once."""
        if name in self._complaints:
            return
        if len(self._complaints) >= MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add(name)
        _log.error("records cannot be read from %s: %s", name, why)
