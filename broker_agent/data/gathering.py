"""Gathers the batches of many requests into objects, and keeps their order.

An object is launched once its first batch has waited for the linger time, or enough is there, and fewer than
MAX_UNDER_WAY are under way: while one is committed others are put, and the one behind them gathers. So a slow commit
makes objects larger, not more. Objects are committed one after another in the order in which they were launched.

Nobody lingers in vain: with none under way an object is launched once nearly all of the batches are there that were
there when the last one was, in the queue or under way. So one that is alone waits for nobody. Behind others it takes
nearly all of the most that were there together lately: producers that wait for their answers come again together, and
what an object costs is shared by all of them. Those whose answers are on their way are not there, but of the crowd.
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

MAX_UNDER_WAY: Final = 3
"""The store in a directory has four threads: one is left for those who read."""

MAX_GATHERED_BATCHES: Final = min(MAX_OBJECT_BATCHES, 600)
"""In one object. 103 bytes each at most, as JSON, in a request to commit of less than 64 KiB, the most that members
read."""

CROWD_WAITED_FOR: Final = 0.9
"""Of those that were there: a few may have left, or be late."""

CROWD_KEPT: Final = 0.9
"""Of the most that were there lately, with each object: a tenth is forgotten."""

_TIMER_SECONDS: Final = 0.001
"""A timer of the event loop comes up to that much too early."""

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
        # How many batches each has.
        self._under_way: dict[asyncio.Task[None], int] = {}
        # How many there were with the queue when the last one was launched, and the most of that lately.
        self._last_there = 0
        self._crowd = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        # One timer for all: making one for each request, and cancelling it, takes as long as checking its batch.
        self._untold: dict[PendingAppend, None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._looks_at = 0.0

    def append(
        self, batches: Sequence[NewBatch], now: float, deadline: float, told: Callable[[list[int]], None]
    ) -> None:
        """Queue the batches of a request, behind all that are queued. They must have room already.

        `told` is called in a later turn of the event loop, at the deadline at the latest: with the base offset of each
        batch, or minus Kafka's code. `now` and the deadline are of the loop's clock.
        """
        pending = PendingAppend(batches, now, deadline, told, self._untold)
        self._queue.append(pending)
        if self._look is None or deadline < self._looks_at:
            self._look_at(deadline)
        self._queued_bytes += pending.waiting_bytes
        self._queued_batches += len(batches)
        self._launch_due()

    async def stop(self) -> None:
        """Give up on everything that is under way."""
        for handle in (self._timer, self._soon, self._look):
            if handle is not None:
                handle.cancel()
        tasks = tuple(self._under_way)
        for pending in self._queue:
            pending.tell()
        self._queue.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look_at(self, deadline: float) -> None:
        """Look at the deadlines then."""
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_at(deadline, self._on_deadline)
        self._looks_at = deadline

    def _on_deadline(self) -> None:
        self._look = None
        now = asyncio.get_running_loop().time() + _TIMER_SECONDS
        for pending in [one for one in self._untold if one.deadline <= now]:
            self._expire(pending)
        if self._untold:
            self._look_at(min(one.deadline for one in self._untold))

    def _expire(self, pending: PendingAppend) -> None:
        """Its time is up: what is in no object yet is not put into one."""
        pending.tell()
        left = len(pending.batches) - pending.launched
        if left and pending in self._queue:
            self._queue.remove(pending)
            self._queued_batches -= left
            self._queued_bytes -= pending.waiting_bytes
            self.room.give_back(pending.waiting_bytes)

    def _launch_due(self) -> None:
        """Launch what is enough, and have the rest launched when it is due."""
        while self._may_launch():
            if not self._is_enough():
                break
            self._launch()
        else:
            return
        if self._queued_batches >= CROWD_WAITED_FOR * (self._crowd if self._under_way else self._last_there):
            if self._soon is None:
                # What comes in the same turn goes along.
                self._soon = asyncio.get_running_loop().call_soon(self._on_turn)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(max(self._wait(), 0), self._on_timer)

    def _may_launch(self) -> bool:
        return bool(self._queue) and len(self._under_way) < MAX_UNDER_WAY

    def _is_enough(self) -> bool:
        return self._queued_bytes >= self._max_bytes or self._queued_batches >= MAX_GATHERED_BATCHES

    def _wait(self) -> float:
        """For how long the first batch has to linger still."""
        return self._queue[0].since + self._linger - asyncio.get_running_loop().time()

    def _on_turn(self) -> None:
        self._soon = None
        if self._may_launch():
            self._launch()
        self._launch_due()

    def _on_timer(self) -> None:
        self._timer = None
        if self._may_launch() and self._wait() < _TIMER_SECONDS:
            self._launch()
        self._launch_due()

    def _launch(self) -> None:
        """Make an object of the front of the queue and send it on its way, behind those under way."""
        self._last_there = self._queued_batches + sum(self._under_way.values())
        self._crowd = max(self._last_there, CROWD_KEPT * self._crowd)
        item = self._next_object()
        task = asyncio.get_running_loop().create_task(self._carry(item, tuple(self._under_way)))
        self._under_way[task] = len(item)
        task.add_done_callback(self._ended)

    def _next_object(self) -> GatheredObject:
        item = GatheredObject()
        count = 0
        while self._queue and count < MAX_GATHERED_BATCHES:
            pending = self._queue[0]
            batch = pending.batches[pending.launched]
            full = item.size + len(batch.data) > self._max_bytes
            if count and (full or (batch.joining_id is not None and not item.has_room_to_join(batch))):
                break
            item.add(pending)
            count += 1
            if pending.launched == len(pending.batches):
                self._queue.popleft()
        self._queued_batches -= count
        self._queued_bytes -= item.size
        item.group()
        return item

    async def _carry(self, item: GatheredObject, ahead: Sequence[asyncio.Task[None]]) -> None:
        """Put it, wait for those ahead of it, and commit it. Whatever happens, its requests hear of it."""
        outcomes: Sequence[int] = [-REQUEST_TIMED_OUT] * len(item)
        try:
            async with asyncio.timeout_at(item.deadline):
                await self._writer.put(item)
                if ahead:
                    # For all: one whose time is up ends before those that are ahead of it.
                    await asyncio.wait(ahead)
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
