"""Requests that name the same topics take turns, so that none overtakes another while it waits for something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable


class TopicTurns:
    """First come, first served, topic by topic. It remembers topics only while somebody has or awaits their turn."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    def are_free(self, topics: Iterable[str]) -> bool:
        """Whether nobody has or awaits their turn for any of `topics`."""
        return not self._last or self._last.keys().isdisjoint(topics)

    def turn(self, topics: Iterable[str]) -> contextlib.AbstractAsyncContextManager[None]:
        """Have the turn for all of `topics`, once everybody who called this before has left theirs. It must be entered,
        else nobody has it after."""
        names = set(topics)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = {self._last[name] for name in names if name in self._last}
        for name in names:
            self._last[name] = mine
        return self._after(before, names, mine)

    @contextlib.asynccontextmanager
    async def _after(
        self, before: set[asyncio.Future[None]], names: set[str], mine: asyncio.Future[None]
    ) -> AsyncIterator[None]:
        left = set(before)

        def leave() -> None:
            for name in names:
                if self._last.get(name) is mine:
                    del self._last[name]
            mine.set_result(None)

        def one_less(done: asyncio.Future[None]) -> None:
            left.discard(done)
            if not left:
                leave()

        try:
            for one in before:
                await asyncio.shield(one)
                left.discard(one)
            yield
        finally:
            if not left:
                leave()
            # Cancelled while it waited: whoever came later still waits for those before.
            for one in tuple(left):
                one.add_done_callback(one_less)
