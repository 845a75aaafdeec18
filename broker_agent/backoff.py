"""How long to wait before trying again. Pure: chance is an argument."""

from __future__ import annotations

from typing import Protocol


class Random(Protocol):
    """The part of random.Random that is needed here."""

    def uniform(self, a: float, b: float) -> float: ...


def backoff_seconds(attempt: int, rng: Random, *, base: float, maximum: float) -> float:
    """Seconds to wait after failure number `attempt` (from 1): exponential, and jittered over its upper half."""
    ceiling = min(maximum, base * 2.0 ** min(attempt - 1, 32))
    return rng.uniform(ceiling / 2, ceiling)
