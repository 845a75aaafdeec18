"""Objects that no log will ever refer to are deleted in the background. What is left is collected with its epoch."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.data.store.port import MAX_DELETED, ObjectStore, StoreError

MAX_DISCARDED: Final = 10_000
"""Names that wait to be deleted, of about 100 bytes: a minute's objects while the store is away. More are left."""

ATTEMPTS: Final = 5
"""For some names, with pauses of up to RETRY_MAX_SECONDS between them: half a minute."""
RETRY_BASE_SECONDS: Final = 0.5
RETRY_MAX_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class Discarder:
    """Deletes objects of `store`, one call at a time. `left`: how many it gave up on."""

    def __init__(self, store: ObjectStore, rng: Random) -> None:
        self._store = store
        self._rng = rng
        self._names: deque[str] = deque()
        self._task: asyncio.Task[None] | None = None
        self.left = 0

    @property
    def waiting(self) -> int:
        """How many objects are still to be deleted, without those of the call under way."""
        return len(self._names)

    def discard(self, name: str) -> None:
        """Have an object deleted, soon."""
        if len(self._names) >= MAX_DISCARDED:
            self.left += 1
            return
        self._names.append(name)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Delete no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._names:
            names = [self._names.popleft() for _ in range(min(len(self._names), MAX_DELETED))]
            if not await self._delete(names):
                self.left += len(names)

    async def _delete(self, names: list[str]) -> bool:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._store.delete(names)
            except StoreError as error:
                _log.debug("%d objects are not deleted yet: %s", len(names), error)
            else:
                return True
            if attempt < ATTEMPTS:
                await asyncio.sleep(
                    backoff_seconds(attempt, self._rng, base=RETRY_BASE_SECONDS, maximum=RETRY_MAX_SECONDS)
                )
        return False
