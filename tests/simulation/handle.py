"""What a call on the simulated loop is kept in: asyncio's handle without its debug mode, for every event makes one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from tests.simulation.world import Violation


class Handle(asyncio.TimerHandle):
    """A callback that is due at once, or `when` the loop's clock says so."""

    __slots__ = ()

    def __init__(self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None):
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """Do not call back. What it was to call is forgotten now, for its time may be far off."""
        self._cancelled = True
        self._callback = None
        self._args = ()

    def run(self) -> None:
        """Call back, unless it was cancelled. An Exception is a fault of the product; whatever else comes through."""
        callback = self._callback
        if callback is None:
            return
        try:
            self._context.run(callback, *self._args)
        except Exception as error:
            raise Violation("callback-failed", f"{callback} raises {error!r}") from error
