"""Puts back the two asyncio names that raftos 0.2.6 uses and that Python took away. No Raft behaviour is touched.

=====================================  ==============  ==========================================================
what raftos does                       where           what Python says without the shim
=====================================  ==============  ==========================================================
``asyncio.Queue(loop=...)``            server.py:45    TypeError since 3.10: no node starts
``asyncio.futures.InvalidStateError``  state.py:53     AttributeError since 3.8, each time a follower applies an entry
=====================================  ==============  ==========================================================
"""

from __future__ import annotations

import asyncio


class _QueueWithLoop(asyncio.Queue[object]):
    """An ``asyncio.Queue`` that still takes the ``loop`` argument, and ignores it as every later Python does."""

    def __init__(self, maxsize: int = 0, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        del loop
        super().__init__(maxsize)


def install() -> None:
    """Repairs this process; call it before anything of raftos runs."""
    setattr(asyncio, "Queue", _QueueWithLoop)  # noqa: B010 - a plain assignment is refused by the type checker
    setattr(asyncio.futures, "InvalidStateError", asyncio.InvalidStateError)  # noqa: B010
