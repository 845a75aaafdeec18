"""Counts by broker for the metrics: bounded, whatever ids callers bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_NAMED_BROKERS: Final = 256
"""Brokers that are shown by id: more than most clusters have, and a few thousand samples with every counter of them."""

OTHER: Final = "other"
"""The label of all brokers behind the first MAX_NAMED_BROKERS."""


class BrokerCounts:
    """How often each broker was counted: the first MAX_NAMED_BROKERS by id, all others together."""

    def __init__(self) -> None:
        self._named: dict[int, int] = {}
        self._others = 0

    def count(self, broker_id: int) -> None:
        """Once more for this one."""
        if broker_id in self._named or len(self._named) < MAX_NAMED_BROKERS:
            self._named[broker_id] = self._named.get(broker_id, 0) + 1
        else:
            self._others += 1

    def items(self) -> Iterator[tuple[str, int]]:
        """Label and count of each; that of the others is always there."""
        yield from ((str(broker_id), count) for broker_id, count in self._named.items())
        yield OTHER, self._others
