"""Waiting for something that another task or process brings about: bounded, and never longer than it takes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

PATIENCE_SECONDS = 15.0
PAUSE_SECONDS = 0.005


async def until(condition: Callable[[], bool], task: asyncio.Task[None] | None = None) -> None:
    """Return once `condition` holds. Raises what `task` raised, should it end first, and TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if condition():
                return
            if task is not None and task.done():
                task.result()
            await asyncio.sleep(PAUSE_SECONDS)


def stop_process(pid: int) -> None:
    """SIGSTOP to a child, and return once all its threads are stopped; at once if it has ended."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
