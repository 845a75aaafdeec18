"""The batches that simulated producers sent, each with values of its own, so that it is known again anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.support.segment_builder import NO_PRODUCER, START_MS, batch

COVERED_FROM: Final = 21
"""From here on a batch is as its producer made it: offset, leader's epoch and CRC stand before."""

STRANGE_IDS: Final = 200
"""So far above all that were given are ids of strangers: some of them are given to others soon."""

Triple = tuple[int, int, int]
"""Producer id, epoch and base sequence."""


class Sent:
    """A batch of one producer for one partition, which is that number `place` of all.

    `forms`: all bytes under which it was sent, and with which triple; `times`: how often it was sent. `acknowledged`:
    at which offset, by the first answer. `refused`: it was said for good that it is not there, of every time.
    `offsets`: where it is, by the number of the log: a topic that is deleted and created anew has other logs.
    `transaction`: the number of that in which it was sent, -1 for none. `timestamp_ms`: of its records.
    """

    __slots__ = (
        "acknowledged",
        "forms",
        "name",
        "offsets",
        "partition",
        "place",
        "records",
        "refused",
        "times",
        "timestamp_ms",
        "topic",
        "transaction",
    )

    def __init__(
        self, name: str, topic: str, partition: int, records: int, transaction: int, *, place: int, timestamp_ms: int
    ) -> None:
        self.name = name
        self.topic = topic
        self.partition = partition
        self.place = place
        self.records = records
        self.transaction = transaction
        self.timestamp_ms = timestamp_ms
        self.forms: dict[bytes, Triple] = {}
        self.times = 0
        self.acknowledged: int | None = None
        self.refused = False
        self.offsets: dict[int, list[int]] = {}

    @property
    def idempotent(self) -> bool:
        """Whether it was sent with a producer id."""
        return NO_PRODUCER not in self.forms.values()

    def __repr__(self) -> str:
        return f"{self.name} for {self.topic}-{self.partition}"


class Batches:
    """All of a seed."""

    def __init__(self) -> None:
        self._known: dict[bytes, Sent] = {}
        self._all: list[Sent] = []

    def __iter__(self) -> Iterator[Sent]:
        return iter(self._all)

    def make(
        self,
        producer: str,
        topic: str,
        partition: int,
        records: int,
        transaction: int = -1,
        *,
        place: int | None = None,
        timestamp_ms: int = START_MS,
    ) -> Sent:
        """A new one. `place`: by default the partition."""
        name = f"{producer}/{len(self._all)}"
        number = partition if place is None else place
        sent = Sent(name, topic, partition, records, transaction, place=number, timestamp_ms=timestamp_ms)
        self._all.append(sent)
        return sent

    def encode(self, sent: Sent, triple: Triple) -> bytes:
        """Its bytes, to be sent once more."""
        values = [f"{sent.name}/{number}".encode() for number in range(sent.records)]
        data = batch(0, values, producer=triple, transactional=sent.transaction >= 0, base_timestamp=sent.timestamp_ms)
        sent.forms[data[COVERED_FROM:]] = triple
        sent.times += 1
        self._known[data[COVERED_FROM:]] = sent
        return data

    def sent_as(self, data: bytes) -> Sent | None:
        """Which batch these bytes are, if anybody sent such."""
        return self.covered_by(data[COVERED_FROM:])

    def covered_by(self, covered: bytes) -> Sent | None:
        """Likewise, of what a batch's CRC covers."""
        return self._known.get(covered)
