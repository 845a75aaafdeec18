"""Small arithmetic on measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


def quantile_ms(seconds: Sequence[float], fraction: float) -> float:
    """The nearest-rank quantile of durations, in milliseconds. Raises ValueError without any."""
    if not seconds:
        raise ValueError("no duration was measured")
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] * 1000.0


def repeats(ids: Iterable[int]) -> int:
    """How many of the ids were there before: 0 if they are all distinct."""
    return sum(first == second for first, second in pairwise(sorted(ids)))
