"""Bytes that the connections of a listener hold in memory, all together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Holder = TypeVar("Holder", bound=Hashable)


class SharedBytes(Generic[Holder]):
    """Everybody may hold `free` bytes; whoever holds more shares `shared` bytes with all others that do.

    So N holders keep at most `N * free + shared`, and nobody who holds little is ever asked to give way.
    """

    def __init__(self, *, free: int, shared: int) -> None:
        self._free = free
        self._shared = shared
        self._over: OrderedDict[Holder, int] = OrderedDict()
        self.used = 0
        """What is held above `free`."""

    def hold(self, holder: Holder, count: int) -> list[Holder]:
        """`holder` keeps `count` bytes from now on. Returns who has to be cut off, and is forgotten here: those that
        have held more than `free` for longest."""
        before = self._over.get(holder, 0)
        above = max(0, count - self._free)
        self.used += above - before
        if above:
            self._over[holder] = above
        elif before:
            del self._over[holder]
        return self._give_way() if self.used > self._shared else []

    def drop(self, holder: Holder) -> None:
        """It holds nothing any more."""
        if self._over:
            self.used -= self._over.pop(holder, 0)

    def _give_way(self) -> list[Holder]:
        gone = []
        while self.used > self._shared:
            holder, above = self._over.popitem(last=False)
            self.used -= above
            gone.append(holder)
        return gone
