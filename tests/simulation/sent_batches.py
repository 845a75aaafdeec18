"""The batches that simulated producers sent, each with values of its own, so that it is known again anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.support.segment_builder import NO_PRODUCER, batch

COVERED_FROM: Final = 21
"""From here on a batch is as its producer made it: offset, leader's epoch and CRC stand before."""

STRANGE_IDS: Final = 200
"""So far above all that were given are ids of strangers: some of them are given to others soon."""

Triple = tuple[int, int, int]
"""Producer id, epoch and base sequence."""


class Sent:
    """A batch of one producer for one partition.

    `forms`: all bytes under which it was sent, and with which triple; `times`: how often it was sent. `acknowledged`:
    at which offset, by the first answer. `refused`: it was said for good that it is not there, of every time.
    `offsets`: where it is. `transaction`: the number of that in which it was sent, -1 for none.
    """

    __slots__ = (
        "acknowledged",
        "forms",
        "name",
        "offsets",
        "partition",
        "records",
        "refused",
        "times",
        "topic",
        "transaction",
    )

    def __init__(self, name: str, topic: str, partition: int, records: int, transaction: int) -> None:
        self.name = name
        self.topic = topic
        self.partition = partition
        self.records = records
        self.transaction = transaction
        self.forms: dict[bytes, Triple] = {}
        self.times = 0
        self.acknowledged: int | None = None
        self.refused = False
        self.offsets: list[int] = []

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

    def make(self, producer: str, topic: str, partition: int, records: int, transaction: int = -1) -> Sent:
        """A new one."""
        sent = Sent(f"{producer}/{len(self._all)}", topic, partition, records, transaction)
        self._all.append(sent)
        return sent

    def encode(self, sent: Sent, triple: Triple) -> bytes:
        """Its bytes, to be sent once more."""
        values = [f"{sent.name}/{number}".encode() for number in range(sent.records)]
        data = batch(0, values, producer=triple, transactional=sent.transaction >= 0)
        sent.forms[data[COVERED_FROM:]] = triple
        sent.times += 1
        self._known[data[COVERED_FROM:]] = sent
        return data

    def sent_as(self, data: bytes) -> Sent | None:
        """Which batch these bytes are, if anybody sent such."""
        return self._known.get(data[COVERED_FROM:])
