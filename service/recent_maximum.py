"""The largest of the latest measurements, for a gauge that must not miss what happens between two scrapes."""

from __future__ import annotations


class RecentMaximum:
    """Of the latest `window` to twice as many measurements, however often it is looked at."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._taken = 0
        self._now = self._before = 0

    def take(self, value: int) -> None:
        """One more measurement."""
        if self._taken == self._window:
            self._taken, self._now, self._before = 0, 0, self._now
        self._taken += 1
        self._now = max(self._now, value)

    @property
    def value(self) -> int:
        """The largest; 0 before the first."""
        return max(self._now, self._before)
