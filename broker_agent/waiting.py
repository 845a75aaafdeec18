"""Waiting for an event, but not for ever."""

from __future__ import annotations

import asyncio


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until `event` is set, which it is after `seconds` at the latest: whoever waits again clears it before."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
