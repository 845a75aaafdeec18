"""An asyncio event loop in virtual time: each turn of it is one event of the world.

The product's coroutines, futures, timeouts and locks run on it as they are, and take the same course for the same seed.
One loop belongs to one process, which may be paused or dead: then its turns come later, or never.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import _set_running_loop
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVarTuple

from tests.simulation.handle import Handle
from tests.simulation.world import SECOND, World

_Ts = TypeVarTuple("_Ts")


class _Running:
    """The loop that asyncio names as running. Only another one is told to asyncio, which asks the system each time."""

    loop: asyncio.AbstractEventLoop | None = None


def enter(loop: asyncio.AbstractEventLoop | None) -> None:
    """Make a loop the one that asyncio names as running; None at the end."""
    if _Running.loop is not loop:
        _Running.loop = loop
        _set_running_loop(loop)


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one process.

    `rate`: how many seconds of the world a second of this process's clock takes. `whole` makes microseconds whole.
    Until `paused_until`, in the world's time, nothing of the process happens. `turned()` is called at the end of each
    turn.
    """

    def __init__(
        self,
        world: World,
        *,
        rate: float = 1.0,
        whole: Callable[[float], int] = round,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.world = world
        self.paused_until = 0
        self._rate = rate
        self._second = SECOND * rate
        self._whole = whole
        self._turned = turned
        self._due: deque[Handle] = deque()
        self._turn_due = False
        # As `is_closed()`, which would be a call at every event.
        self._ended = False

    # What happens when.

    def pause(self, length: int) -> None:
        """Stop the process for `length` microseconds.

        A longer pause under way goes on: its end is when the timers come that it has put off. A shorter one in its
        place would wake a process to which messages come, but no tick.
        """
        self.paused_until = max(self.paused_until, self.world.now + length)

    def run_event(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` as an event from outside, now or when the pause is over. `callback` may end the process."""
        if self._ended:
            return
        world = self.world
        if self.paused_until > world.now:
            world.at(self.paused_until - world.now, self.run_event, callback, *args)
            return
        if _Running.loop is not self:
            enter(self)
        callback(*args)
        if not self._ended:
            self._turned()

    def _turn(self) -> None:
        """Run what is ready by now. What becomes ready meanwhile runs in the next turn."""
        self._turn_due = False
        due = self._due
        for _ in range(len(due)):
            due.popleft().run()
            if self._ended:
                return
        if due:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.world.at(0, self.run_event, self._turn)

    def _fire(self, timer: Handle) -> None:
        # Most timers are time limits that were not reached. Those are no event of the process.
        if not timer._cancelled:
            self.run_event(timer.run)

    # What asyncio and the product call.

    def time(self) -> float:
        """Seconds on this process's monotonic clock."""
        return self.world.now / self._second

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = Handle(0.0, callback, args, context)
        if not self._ended:
            self._due.append(handle)
            self._schedule_turn()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        world, wait = self.world, self._whole(delay * SECOND * self._rate)
        timer = Handle(world.now / self._second + delay, callback, args, context)
        world.at(max(0, wait), self._fire, timer)
        return timer

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What a task or future leaves behind unread is nobody's concern."""

    def close(self) -> None:
        """The process is gone: nothing of it happens any more."""
        super().close()
        self._ended = True
        for task in asyncio.all_tasks(self):
            # Else the interpreter would find, and tell, that they never came to their end, or even began.
            task.get_coro().close()
        self._due.clear()
