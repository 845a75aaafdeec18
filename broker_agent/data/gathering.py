"""Gathers the batches of many requests into objects, and keeps their order.

An object is launched once its first batch has waited for the linger time, or enough is there, and fewer than two are
under way: while one is committed the next is put, and the one behind it gathers. So a slow commit makes objects larger,
not more. Objects are committed one after another in the order in which they were launched.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from pidkeeper.broker_agent.data.batches import NewBatch
from pidkeeper.broker_agent.data.byte_budget import ByteBudget
from pidkeeper.broker_agent.data.codes import REQUEST_TIMED_OUT
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.gathered import GatheredObject, PendingAppend
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.writing import GivenUpError, ObjectWriter
from pidkeeper.protocol.logs import MAX_OBJECT_BATCHES

MAX_UNDER_WAY: Final = 2

MAX_GATHERED_BATCHES: Final = min(MAX_OBJECT_BATCHES, 600)
"""In one object. 103 bytes each at most, as JSON, in a request to commit of less than 64 KiB, the most that members
read."""

_log = logging.getLogger(__name__)


class Gatherer:
    """Takes batches, and tells what became of them. Those that wait hold `room`, in bytes, until they are settled.

    `joined(item)` is called with every object of which batches have joined logs.
    """

    def __init__(
        self,
        settings: DataSettings,
        writer: ObjectWriter,
        counters: Counters,
        joined: Callable[[GatheredObject], None] = lambda _: None,
    ) -> None:
        self.room = ByteBudget(settings.max_pending_bytes)
        self._linger = settings.linger_ms / 1000
        self._max_bytes = settings.max_object_bytes
        self._writer = writer
        self._counters = counters
        self._joined = joined
        self._queue: deque[PendingAppend] = deque()
        self._queued_bytes = 0
        self._queued_batches = 0
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def append(self, batches: Sequence[NewBatch], deadline: float) -> PendingAppend:
        """Queue the batches of a request, behind all that are queued. They must have room already."""
        loop = asyncio.get_running_loop()
        pending = PendingAppend(batches, loop.time(), deadline, loop.create_future())
        self._queue.append(pending)
        self._queued_bytes += pending.waiting_bytes
        self._queued_batches += len(batches)
        self._launch_due()
        return pending

    async def outcomes(self, pending: PendingAppend) -> list[int]:
        """For each batch its base offset, or minus Kafka's code; at its deadline at the latest."""
        try:
            async with asyncio.timeout_at(pending.deadline):
                await pending.done
        except TimeoutError:
            pass
        finally:
            self._drop(pending)
        return pending.outcomes

    async def stop(self) -> None:
        """Give up on everything that is under way."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = tuple(self._under_way)
        self._queue.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drop(self, pending: PendingAppend) -> None:
        """Nobody waits for it: what is in no object yet is not put into one."""
        left = len(pending.batches) - pending.launched
        if left and pending in self._queue:
            self._queue.remove(pending)
            self._queued_batches -= left
            self._queued_bytes -= pending.waiting_bytes
            self.room.give_back(pending.waiting_bytes)

    def _launch_due(self) -> None:
        """Launch what is due, and have the rest looked at when it is."""
        now = asyncio.get_running_loop().time()
        while self._queue and len(self._under_way) < MAX_UNDER_WAY:
            wait = self._queue[0].since + self._linger - now
            if wait > 0 and self._queued_bytes < self._max_bytes and self._queued_batches < MAX_GATHERED_BATCHES:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(wait, self._on_timer)
                return
            self._launch()

    def _on_timer(self) -> None:
        self._timer = None
        self._launch_due()

    def _launch(self) -> None:
        """Make an object of the front of the queue and send it on its way, behind those under way."""
        item = self._next_object()
        ahead = next(reversed(self._under_way), None)
        task = asyncio.get_running_loop().create_task(self._carry(item, ahead))
        self._under_way[task] = None
        task.add_done_callback(self._ended)

    def _next_object(self) -> GatheredObject:
        item = GatheredObject()
        while self._queue and len(item) < MAX_GATHERED_BATCHES:
            pending = self._queue[0]
            size = len(pending.batches[pending.launched].data)
            if len(item) and item.size + size > self._max_bytes:
                break
            item.add(pending)
            if pending.launched == len(pending.batches):
                self._queue.popleft()
        self._queued_batches -= len(item)
        self._queued_bytes -= item.size
        return item

    async def _carry(self, item: GatheredObject, ahead: asyncio.Task[None] | None) -> None:
        """Put it, wait for the one ahead of it, and commit it. Whatever happens, its requests hear of it."""
        outcomes: Sequence[int] = [-REQUEST_TIMED_OUT] * len(item)
        try:
            async with asyncio.timeout_at(item.deadline):
                await self._writer.put(item)
                if ahead is not None:
                    await asyncio.wait((ahead,))
                answer = await self._writer.commit(item)
            outcomes = answer.outcomes
            if answer.referenced:
                self._joined(item)
        except TimeoutError:
            self._give_up(item)
        except GivenUpError as error:
            outcomes = [-error.code] * len(item)
            self._give_up(item)
        except Exception:  # noqa: BLE001 - the edge of a task: whatever broke, the requests must hear of it
            _log.exception("an object of %d batches failed", len(item))
        finally:
            item.settle(outcomes)
            self.room.give_back(item.size)

    def _give_up(self, item: GatheredObject) -> None:
        self._counters.objects_given_up += 1
        self._writer.discard(item)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._launch_due()
