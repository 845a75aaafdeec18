"""Chance, which comes in as an argument so that a run can be repeated."""

from __future__ import annotations

from typing import Protocol


class Rng(Protocol):
    """The only source of chance; `random.Random` fits."""

    def randrange(self, start: int, stop: int, /) -> int:
        """An int in [start, stop)."""
