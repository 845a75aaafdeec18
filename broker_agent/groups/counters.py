"""What is counted of commits of offsets: plain numbers that the metrics read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

NONE: Final = 0


class CommitCounters:
    """Since the start, of OffsetCommit and TxnOffsetCommit. `refused`: offsets, by Kafka's code."""

    def __init__(self) -> None:
        self.requests = 0
        self.committed = 0
        self.refused: Counter[int] = Counter()

    def count(self, codes: Iterable[int]) -> None:
        """One request was answered with a code for each partition."""
        self.requests += 1
        for code in codes:
            if code == NONE:
                self.committed += 1
            else:
                self.refused[code] += 1
