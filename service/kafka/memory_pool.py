"""The memory that long requests of all connections take together: granted before it is used, and waited for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

POOL_BYTES: Final = 64 * 1024 * 1024
"""Of a whole process. A producer with Kafka's defaults has five requests of 1 MiB under way, so twelve of those need
nobody's patience, and eight requests of the longest 8 MiB. Each is held for as long as its answer takes: at a quarter
of a second these are 256 MiB/s, more than a small machine reads. It is a sixteenth of one that has 1 GiB."""

Holder = TypeVar("Holder", bound=Hashable)


class MemoryPool(Generic[Holder]):
    """So many bytes for whoever asks first, as Kafka's MemoryPool behind `queued.max.request.bytes`.

    A request is granted all that it takes or nothing, so whoever was granted some waits for nobody else, and what it
    holds comes back. Whoever is refused waits in a line that no smaller request overtakes. What is larger than the pool
    is granted when nothing else is.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: OrderedDict[Holder, tuple[int, Callable[[], None]]] = OrderedDict()
        self.used = 0

    @property
    def waiting(self) -> int:
        """How many wait in the line."""
        return len(self._waiting)

    def allocate(self, holder: Holder, size: int, granted: Callable[[], None]) -> bool:
        """Take `size` bytes; whether they are granted now. If not, `granted` is given by a later `release`. A holder
        waits for one thing at a time."""
        if not self._waiting and self._fits(size):
            self.used += size
            return True
        self._waiting[holder] = size, granted
        return False

    def release(self, size: int) -> list[Callable[[], None]]:
        """Give `size` bytes back. Returns what has to be called for those that waited and are granted theirs now."""
        self.used -= size
        return self._grant() if self._waiting else []

    def forget(self, holder: Holder) -> list[Callable[[], None]]:
        """It does not wait any more. Returns as `release`: it may have kept others waiting."""
        return self._grant() if self._waiting.pop(holder, None) is not None else []

    def _grant(self) -> list[Callable[[], None]]:
        called = []
        while self._waiting:
            holder, (size, granted) = next(iter(self._waiting.items()))
            if not self._fits(size):
                break
            del self._waiting[holder]
            self.used += size
            called.append(granted)
        return called

    def _fits(self, size: int) -> bool:
        return self.used + size <= self._size or not self.used
