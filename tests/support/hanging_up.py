"""The end of a server on an event loop that is closed next: nothing of it is left to run, and no socket is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


async def hang_up(server: asyncio.Server) -> None:
    """Close `server`, and cancel all tasks of the loop but this one, with those that they leave behind.

    A connection that was accepted a moment ago has no task yet that reads from it. Each task is to `cut` its writers.
    """
    server.close()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    # A transport lets go of its socket a round of the loop after it was told to.
    await asyncio.sleep(0)


@contextlib.contextmanager
def cut(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Cut the connection behind the block. Merely closed, it would outlive the loop where its peer does not read."""
    try:
        yield
    finally:
        writer.transport.abort()
