"""The sweep of the store: objects that no log names and that nobody can commit any more are deleted.

Such orphans are left by agents that died between putting an object and its commit.
"""

from __future__ import annotations

import logging
import time

from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.examining import Group, examine, listed
from pidkeeper.broker_agent.data.object_names import PREFIXES
from pidkeeper.broker_agent.data.store.port import ObjectStore
from pidkeeper.protocol.errors import ErrorCode, RequestError

_log = logging.getLogger(__name__)


class Sweeper:
    """Sweeps `store`. `swept_at`: when a sweep last came to its end, by the monotonic clock; None before."""

    def __init__(self, store: ObjectStore, calls: LogCalls, session: Registration, counters: Counters) -> None:
        self._store = store
        self._calls = calls
        self._session = session
        self._counters = counters
        self.swept_at: float | None = None

    def age(self) -> float | None:
        """Seconds since a sweep last came to its end; None before."""
        return None if self.swept_at is None else time.monotonic() - self.swept_at

    async def sweep(self) -> None:
        """Look at every object once, and delete orphans. Raises StoreError and RequestError."""
        unknown = 0
        for prefix in PREFIXES:
            async for page in listed(self._store, prefix):
                founding_id = self._session.founding_id
                examined = await examine(self._calls, page)
                unknown += len(examined.unknown)
                for group in examined.groups:
                    if group.dead and not group.held:
                        if founding_id is None or self._session.founding_id != founding_id:
                            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "another quorum may have answered")
                        await self._delete(group)
        if unknown and unknown != self._counters.unknown_names:
            _log.warning("%d names in the store are none that agents give: they are left alone", unknown)
        self._counters.unknown_names = unknown
        self.swept_at = time.monotonic()

    async def _delete(self, group: Group) -> None:
        names = [row.name for row in group.dead]
        await self._store.delete(names)
        self._counters.orphans_deleted += len(names)
        _log.info("%d orphans of founding %s are deleted, first %s", len(names), group.founding_id, names[0])
