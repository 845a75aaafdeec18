"""Something that goes on beside a block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine


@contextlib.asynccontextmanager
async def watched(watch: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Let `watch` go on while the block runs. Raises at the end what ended it before."""
    watching = asyncio.create_task(watch)
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        if not watching.cancelled() and (error := watching.exception()) is not None:
            raise error
