"""What is read again when its file has changed, without a restart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

REFRESH_SECONDS: Final = 1.0
"""Between two looks."""

Stamp = tuple[int, int, int] | None


def stamp_of(path: str) -> Stamp:
    """Another one whenever the file was written, or another was put in its place; None if there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.asynccontextmanager
async def refreshing(*refresh: Callable[[], None]) -> AsyncIterator[None]:
    """Call each of these every REFRESH_SECONDS meanwhile."""

    async def refresh_for_ever() -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            for one in refresh:
                one()

    task = asyncio.create_task(refresh_for_ever(), name="refreshing")
    try:
        yield
    finally:
        task.cancel()
