"""Garbage collection: one agent at a time deletes what no log needs, and tells the quorum so.

Which agent it is follows from the directory. A stale one may make two: each step is the same if it is done twice, for
no name is ever given again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pidkeeper.broker_agent.backoff import Random, backoff_seconds
from pidkeeper.broker_agent.coordinator.directory import Directory, weight
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.object_names import parsed
from pidkeeper.broker_agent.data.store.port import MAX_DELETED, ObjectStore, StoreError
from pidkeeper.broker_agent.data.sweeping import Sweeper
from pidkeeper.broker_agent.session.refusals import STALE
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.segment_messages import FindGarbageRequest, GarbageObject, ObjectsDeletedRequest

COLLECTOR: Final = b"collector"
"""What agents are weighed for. Agents of different builds have to agree on it: never change it."""

MAX_NAMES: Final = 2
"""Of one object: a segment has its index beside it."""

MAX_COLLECTED: Final = MAX_DELETED // MAX_NAMES
"""Objects in one step: as many as one call of a store deletes."""

COLLECT_SECONDS: Final = 3.0
BUSY_SECONDS: Final = 0.1
"""Between two steps, and between those of which the first was full: up to 5,000 objects a second."""

FIRST_SWEEP_SECONDS: Final = 300.0
"""Before the first sweep, or less where they are more frequent: agents that are restarted in turn do not sweep each."""

RETRY_MAX_SECONDS: Final = 60.0
"""Back-off while store or quorum do not answer."""

_log = logging.getLogger(__name__)


class Collector:
    """Collects the garbage of `store`, and has it swept, while the directory says that this agent does.

    `sweep_seconds`: between two sweeps.
    """

    def __init__(
        self,
        store: ObjectStore,
        calls: LogCalls,
        session: Registration,
        directory: Directory,
        sweeper: Sweeper,
        rng: Random,
        counters: Counters,
        sweep_seconds: float,
    ) -> None:
        self._store = store
        self._calls = calls
        self._session = session
        self._directory = directory
        self._sweeper = sweeper
        self._rng = rng
        self._counters = counters
        self._sweep_seconds = sweep_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._misnamed = -1

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._forever(self._collect_pause, COLLECT_SECONDS)),
            asyncio.create_task(self._forever(self._sweep_pause, min(FIRST_SWEEP_SECONDS, self._sweep_seconds))),
        ]

    async def stop(self) -> None:
        """Delete no more. A call of the store that is under way may be carried out."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def is_chosen(self) -> bool:
        """Whether it is this agent's turn, and the quorum knows its store."""
        session = self._session
        if session.broker_epoch is None or session.store_epoch != session.broker_epoch:
            return False
        nodes = self._directory.nodes
        return max(nodes, key=lambda node: (weight(node.id, COLLECTOR), node.id)).id == session.broker_id

    async def collect(self) -> bool:
        """One step; whether there may be more to delete. Raises StoreError and RequestError."""
        founding_id, epoch = self._session.founding_id, self._session.broker_epoch
        answer = await self._calls.find_garbage(FindGarbageRequest(MAX_COLLECTED))
        found = [one for one in answer.objects[:MAX_COLLECTED] if self._is_ours(one)]
        if answer.held or not found or epoch is None:
            return False
        if founding_id is None or self._session.founding_id != founding_id:
            # Another quorum may need what the last one did not.
            return False
        await self._store.delete([name for one in found for name in one.names])
        self._counters.objects_deleted += len(found)
        keys = tuple(one.key for one in found)
        try:
            await self._calls.objects_deleted(ObjectsDeletedRequest(self._session.broker_id, epoch, keys))
        except RequestError as error:
            if error.code in STALE:
                self._session.doubt_epoch(epoch)
            raise
        return len(found) == MAX_COLLECTED

    def _is_ours(self, one: GarbageObject) -> bool:
        """Whether it has names that agents give, and no more than there can be."""
        if 1 <= len(one.names) <= MAX_NAMES and all(parsed(name) is not None for name in one.names):
            return True
        if one.key != self._misnamed:
            # The quorum names it again with each step.
            self._misnamed = one.key
            _log.error("the quorum wants object %d deleted under names that no agent gives: it is left", one.key)
        self._counters.garbage_misnamed += 1
        return False

    async def _collect_pause(self) -> float:
        return BUSY_SECONDS if await self.collect() else COLLECT_SECONDS

    async def _sweep_pause(self) -> float:
        await self._sweeper.sweep()
        return self._sweep_seconds

    async def _forever(self, step: Callable[[], Awaitable[float]], first: float) -> None:
        """Take a step whenever it is this agent's turn; `step` says in how many seconds the next one is due."""
        pause, failures = first, 0
        while True:
            await asyncio.sleep(self._rng.uniform(0.75 * pause, 1.25 * pause))
            if not self.is_chosen():
                pause = first
                continue
            try:
                pause, failures = await step(), 0
            except (StoreError, RequestError) as error:
                failures += 1
                pause = backoff_seconds(failures, self._rng, base=COLLECT_SECONDS, maximum=RETRY_MAX_SECONDS)
                _log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG, "the store is not cleaned up yet: %s", error
                )
            except Exception:  # noqa: BLE001 - the edge of a task
                # Garbage may wait; a task that ended would leave it for ever, and without a word.
                self._counters.duties_failed += 1
                pause = RETRY_MAX_SECONDS
                _log.exception("the store is not cleaned up now: this is a bug")
