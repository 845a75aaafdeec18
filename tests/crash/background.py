"""Lets the threads behind a member's event loop make one changing call at a time, so that a history repeats exactly."""

from __future__ import annotations

import asyncio
import threading
from typing import Any


class Gate:
    """Every thread but the event loop's waits here before each changing call; at most one of them is under way."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._of_loop = threading.current_thread()
        self._parked = asyncio.Event()
        self._permit = threading.Semaphore(0)
        self._open = False

    def wait_turn(self) -> None:
        """Wait for `step`, unless this is the thread of the event loop."""
        if threading.current_thread() is not self._of_loop and not self._open:
            self._loop.call_soon_threadsafe(self._parked.set)
            self._permit.acquire()

    def open(self) -> None:
        """Let everyone pass from now on, so that the threads can end."""
        self._open = True
        self._permit.release()

    async def settle(self, task: asyncio.Task[Any]) -> None:
        """Wait until `task` stands before a changing call, or is done."""
        parked = asyncio.ensure_future(self._parked.wait())
        await asyncio.wait({task, parked}, return_when=asyncio.FIRST_COMPLETED)
        parked.cancel()

    async def step(self, task: asyncio.Task[Any]) -> None:
        """Let `task` make one changing call."""
        await self.settle(task)
        if not task.done():
            self._parked.clear()
            self._permit.release()
            await self.settle(task)
