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
from typing import Any, Final, NoReturn, TypeVarTuple

from tests.simulation.world import SECOND, Violation, World

enter: Final = _set_running_loop
"""Make a loop the one that asyncio names as running; None at the end."""

_Ts = TypeVarTuple("_Ts")


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one process.

    `rate`: how many seconds of the world a second of this process's clock takes. `paused()`: for how many microseconds
    from now on nothing of the process happens. `turned()` is called at the end of each turn.
    """

    def __init__(
        self,
        world: World,
        *,
        rate: float = 1.0,
        paused: Callable[[], int] = lambda: 0,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.world = world
        self._rate = rate
        self._paused = paused
        self._turned = turned
        self._due: deque[asyncio.Handle] = deque()
        self._turn_due = False
        # As `is_closed()`, which would be a call at every event.
        self._ended = False

    # What happens when.

    def run_event(self, callback: Callable[..., object], *args: Any) -> None:
        """Call `callback` as an event from outside, now or when the pause is over. `callback` may end the process."""
        if self._ended:
            return
        if pause := self._paused():
            self.world.at(pause, self.run_event, callback, *args)
            return
        enter(self)
        callback(*args)
        if not self._ended:
            self._turned()

    def _turn(self) -> None:
        """Run what is ready by now. What becomes ready meanwhile runs in the next turn."""
        self._turn_due = False
        for _ in range(len(self._due)):
            handle = self._due.popleft()
            if not handle._cancelled:
                handle._run()
            if self._ended:
                return
        if self._due:
            self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.world.at(0, self.run_event, self._turn)

    def _fire(self, timer: asyncio.TimerHandle) -> None:
        # Most timers are time limits that were not reached. Those are no event of the process.
        if not timer._cancelled:
            self.run_event(self._expire, timer)

    @staticmethod
    def _expire(timer: asyncio.TimerHandle) -> None:
        if not timer._cancelled:  # since the pause that it waited for
            timer._run()

    # What asyncio and the product call.

    def time(self) -> float:
        """Seconds on this process's monotonic clock."""
        return self.world.now / (SECOND * self._rate)

    def call_soon(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._ended:
            self._due.append(handle)
            self._schedule_turn()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.world.at(max(0, round(delay * SECOND * self._rate)), self._fire, timer)
        return timer

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback failed: a fault of the product. What a task or future leaves behind unread is nobody's concern."""
        if "handle" in context:
            _raise(context)

    def close(self) -> None:
        """The process is gone: nothing of it happens any more."""
        super().close()
        self._ended = True
        for task in asyncio.all_tasks(self):
            # Else the interpreter would find, and tell, that they never came to their end, or even began.
            task.get_coro().close()
        self._due.clear()


def _raise(context: dict[str, Any]) -> NoReturn:
    error = context.get("exception")
    if isinstance(error, BaseException) and not isinstance(error, Exception):
        raise error
    raise Violation("callback-failed", f"{context.get('message')}: {error!r}") from error
