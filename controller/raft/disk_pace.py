"""Whether the own disk keeps pace: how long the oldest write has been under way, in ticks of 10 ms.

The paper takes a disk for as fast as any other. A disk that hangs without an error is left to us.
"""

from __future__ import annotations

from typing import Final

CALM_TIMEOUTS: Final = 10
"""Election timeouts without a stall after which a disk counts as sound: a disk that hangs once soon hangs again."""


class DiskPace:
    """Looks at the oldest write under way once a tick. Decides nothing about what may be acknowledged."""

    __slots__ = ("_calm", "_calm_enough", "_limit", "_write", "age")

    def __init__(self, election_ticks: int) -> None:
        # A write under way for longer stalls: followers would have missed a leader that was silent for as long.
        self._limit = election_ticks
        # The token of the oldest write under way, as of the last tick; 0: none.
        self._write = 0
        # The ticks for which that write has been the oldest one.
        self.age = 0
        # Ticks since the last stall, or since the start as if there had been none.
        self._calm = self._calm_enough = CALM_TIMEOUTS * election_ticks

    @property
    def stalled(self) -> bool:
        """Whether the oldest write has been under way for longer than an election timeout."""
        return self.age > self._limit

    @property
    def slow(self) -> bool:
        """Whether a write stalls, or has stalled lately."""
        return self._calm < self._calm_enough

    def tick(self, oldest_write: int) -> None:
        """10 ms have passed; `oldest_write`: the token of the oldest write under way, 0 if there is none."""
        self.age = self.age + 1 if oldest_write and oldest_write == self._write else 0
        self._write = oldest_write
        self._calm = 0 if self.age > self._limit else self._calm + 1
