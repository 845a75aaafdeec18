"""The end of a listening socket."""

from __future__ import annotations

import asyncio


async def close_server(server: asyncio.Server) -> None:
    """Accept no more. What was accepted has been given to its protocol when this returns.

    Closing alone would lose a connection that was accepted in the turn of the event loop before: Python drops it
    without closing it, and the peer waits until it is collected (seen with 3.11).
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    await asyncio.sleep(0)
    server.close()
