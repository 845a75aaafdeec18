"""The transactions of a partition, and the offset up to which everything in it is decided."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

MAX_UNREPLICATED: Final = 10_000
"""Completed transactions above the high watermark that are kept apart: 16 bytes each in a snapshot. With more, the two
newest count as one that spans both, which may hold readers back until the high watermark has passed, and nothing else.
"""


class Transactions:
    """Open transactions by their first offset, and completed ones whose markers may not be replicated yet."""

    __slots__ = ("_open", "_unreplicated")

    def __init__(self, opened: Iterable[tuple[int, int]] = (), unreplicated: Iterable[tuple[int, int]] = ()) -> None:
        # First offset to producer id, rising: offsets are given out in order, so a new one belongs at the end.
        self._open = OrderedDict(sorted(opened))
        # (first offset, offset of the marker), both rising.
        self._unreplicated = deque(unreplicated)

    @property
    def unreplicated(self) -> tuple[tuple[int, int], ...]:
        """What has to be kept of the completed ones: (first offset, offset of the marker), both rising."""
        return tuple(self._unreplicated)

    @property
    def oldest(self) -> tuple[int, int] | None:
        """First offset and producer of the open transaction that began first."""
        return next(iter(self._open.items()), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open or whose marker may not be replicated; None without one."""
        firsts = [found[0] for found in (self.oldest, next(iter(self._unreplicated), None)) if found is not None]
        return min(firsts, default=None)

    def start(self, first_offset: int, producer_id: int) -> None:
        """Note a transaction that begins behind all others."""
        assert first_offset not in self._open, f"S3: two transactions begin at offset {first_offset}"
        self._open[first_offset] = producer_id

    def complete(self, first_offset: int, last_offset: int) -> int:
        """End an open transaction by its marker; return the offset up to which everything is decided then."""
        producer_id = self._open.pop(first_offset, None)
        assert producer_id is not None, f"S3: no transaction is open from offset {first_offset} on"
        # One that began later and ended earlier is passed by the high watermark earlier, and hides nothing before.
        while self._unreplicated and self._unreplicated[-1][0] > first_offset:
            self._unreplicated.pop()
        if len(self._unreplicated) == MAX_UNREPLICATED:
            first_offset, _ = self._unreplicated.pop()
        self._unreplicated.append((first_offset, last_offset))
        oldest = self.oldest
        return last_offset + 1 if oldest is None else min(oldest[0], last_offset + 1)

    def replicated_to(self, offset: int) -> None:
        """Forget the completed transactions whose markers lie below `offset`."""
        while self._unreplicated and self._unreplicated[0][1] < offset:
            self._unreplicated.popleft()
