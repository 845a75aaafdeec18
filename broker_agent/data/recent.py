"""This agent's newest objects in memory, for consumers that are close behind their producers. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class RecentObjects:
    """Batches of the newest objects, `max_bytes` of them at most; the oldest object goes first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._objects: OrderedDict[str, tuple[int, dict[int, bytes]]] = OrderedDict()
        self.bytes = 0

    def add(self, name: str, pieces: Sequence[bytes]) -> None:
        """Keep an object that was put: its batches, in their order. One that is too large alone is not kept."""
        batches, position = {}, 0
        for piece in pieces:
            batches[position] = piece
            position += len(piece)
        if position > self._max_bytes:
            return
        self._objects[name] = position, batches
        self.bytes += position
        while self.bytes > self._max_bytes:
            _, (size, _) = self._objects.popitem(last=False)
            self.bytes -= size

    def find(self, name: str, position: int, size: int) -> bytes | None:
        """The batch at `position`, if it is kept and has that size."""
        _, batches = self._objects.get(name, (0, {}))
        batch = batches.get(position)
        return batch if batch is not None and len(batch) == size else None
