"""The producers whose transactions are being verified (`VerificationStateEntry` in Kafka; KIP-890)."""

from __future__ import annotations

from collections import OrderedDict

from pidkeeper.broker_agent.producer_state.batches import (
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    VerificationEntry,
    check_range,
)
from pidkeeper.protocol.ids import MAX_PRODUCER_ID


class Verifications:
    """The lowest sequence that waits, per producer; at `limit` producers the oldest gives way."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[int, VerificationEntry] = OrderedDict()

    def get(self, producer_id: int) -> VerificationEntry | None:
        """What waits of a producer."""
        return self._entries.get(producer_id)

    def begin(self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int) -> None:
        """Note a sequence: a higher epoch starts afresh, a lower one counts for nothing, the time stays the first."""
        check_range("producer id", producer_id, 0, MAX_PRODUCER_ID)
        check_range("producer epoch", producer_epoch, 0, MAX_PRODUCER_EPOCH)
        check_range("sequence", sequence, 0, MAX_SEQUENCE)
        known = self._entries.get(producer_id)
        if known is None:
            if len(self._entries) == self._limit:
                self._entries.popitem(last=False)
            self._entries[producer_id] = VerificationEntry(producer_epoch, sequence, now_ms)
        elif producer_epoch > known.producer_epoch or (
            producer_epoch == known.producer_epoch and sequence < known.lowest_sequence
        ):
            self._entries[producer_id] = VerificationEntry(producer_epoch, sequence, known.timestamp)

    def end(self, producer_id: int) -> None:
        """Forget a producer, which has appended."""
        self._entries.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what has waited for `expiration_ms`."""
        stale = [key for key, entry in self._entries.items() if now_ms - entry.timestamp >= expiration_ms]
        for producer_id in stale:
            del self._entries[producer_id]

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
