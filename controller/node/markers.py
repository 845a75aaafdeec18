"""The port to the partitions: where the outcome of a transaction is written (KIP-98, "Transaction markers")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from pidkeeper.protocol.transactions import TopicPartitions


class Markers(msgspec.Struct, frozen=True):
    """The outcome of one transaction, for each of its partitions.

    `coordinator_epoch`: the term of the leader that decided to write them; a partition refuses one below the highest
    that it has seen.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    partitions: tuple[TopicPartitions, ...]


class MarkerWriter(Protocol):
    """Writes markers to partitions."""

    def write(self, markers: Markers, written: Callable[[], None]) -> None:
        """Write a marker to each of the partitions, and call `written` once, on the event loop, at once or later.

        `written` says that every partition has the marker durably: the transaction is completed then, and its
        partitions are forgotten. A partition that cannot be reached is tried again until it can.

        The same markers may be asked for again: by this leader after it lost and regained leadership, by another one,
        or by both at the same time. So writing is idempotent: a partition that has the marker has it once afterwards.
        What was begun under an older term may be given up; a late `written` of it is ignored.
        """


class RecordedMarkers:
    """The outcome is in the replicated log, and nowhere else: as long as there are no partition logs, that is all."""

    def write(self, markers: Markers, written: Callable[[], None]) -> None:
        """Nothing is left to write."""
        written()
