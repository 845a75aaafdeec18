"""Bytes that many share: whoever wants some waits for its turn, and nobody overtakes."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """`capacity` bytes; `held` are taken. First come, first served."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    def take_now(self, count: int) -> bool:
        """Take `count` bytes, at most the capacity, if they are free and nobody waits; whether they were."""
        assert 0 <= count <= self.capacity, f"{count} of {self.capacity} bytes"
        if self._waiting or self.held + count > self.capacity:
            return False
        self.held += count
        return True

    async def take(self, count: int) -> None:
        """Take `count` bytes, at most the capacity, once they are free. Cancelled, it takes none."""
        if self.take_now(count):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, granted)
        self._waiting.append(entry)
        try:
            await granted
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                self._grant()
            else:
                self.give_back(count)
            raise

    def give_back(self, count: int) -> None:
        """Bytes that were taken are free again."""
        self.held -= count
        assert self.held >= 0, f"{-self.held} bytes more were given back than taken"
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self.held + self._waiting[0][0] <= self.capacity:
            count, granted = self._waiting.popleft()
            self.held += count
            if granted.done():
                # Cancelled in this turn of the loop: its own take gives the bytes back.
                continue
            granted.set_result(None)
