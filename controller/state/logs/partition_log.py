"""One partition's log: where its batches are, its markers, and which transactions are open or were aborted in it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from pidkeeper.controller.state.logs.columns import Columns, copied, empty, packed, unpacked
from pidkeeper.protocol.logs import BatchCoordinates, TopicRecord
from pidkeeper.snapshots.logs_image import LogImage

_BATCHES: Final = "qqIIIq"
"""Base offset, key of the object, position, size, records and latest timestamp."""

_MARKERS: Final = "qqhbq"
"""Offset, producer id and epoch, whether it commits, and timestamp."""

_ABORTED: Final = "qqqq"
"""Offset of the marker, producer id, first offset of the transaction, and last stable offset behind the marker."""


class LocatedBatch(NamedTuple):
    """One batch of a log, and where it is: `size` bytes of the object `key`."""

    base_offset: int
    key: int
    position: int
    size: int
    records: int
    max_timestamp: int


class LoggedMarker(NamedTuple):
    """The end of a transaction in a log."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    timestamp_ms: int


class Aborted(NamedTuple):
    """A transaction that was aborted, from its first offset to that of its marker (Kafka's `AbortedTxn`)."""

    marker_offset: int
    producer_id: int
    first_offset: int
    last_stable: int


class PartitionLog:
    """A log from `start` up to `end`, the offset that the next batch gets.

    `generation`: that of the state which may change it; another one takes a copy. `open`: the first offset of each open
    transaction by its producer, ascending. `size`: bytes of all batches.
    """

    __slots__ = ("_aborted", "_batches", "_markers", "end", "generation", "open", "partition", "size", "start", "topic")

    def __init__(self, topic: TopicRecord, partition: int, generation: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.generation = generation
        self.start = self.end = 0
        self.size = 0
        self.open: dict[int, int] = {}
        self._batches = empty(_BATCHES)
        self._markers = empty(_MARKERS)
        self._aborted = empty(_ABORTED)

    @property
    def number(self) -> int:
        """The number of the log."""
        return self.topic.first_log + self.partition

    @property
    def rows(self) -> int:
        """Batches and markers."""
        return len(self._batches[0]) + len(self._markers[0])

    @property
    def aborted_count(self) -> int:
        """Aborted transactions that are kept."""
        return len(self._aborted[0])

    @property
    def last_stable(self) -> int:
        """The offset below which every transaction is decided (the last stable offset)."""
        return next(iter(self.open.values()), self.end)

    def clone(self, generation: int) -> PartitionLog:
        """An equal one, to be changed for itself."""
        other = PartitionLog(self.topic, self.partition, generation)
        other.start, other.end, other.size = self.start, self.end, self.size
        other.open = self.open.copy()
        other._batches, other._markers = copied(self._batches), copied(self._markers)
        other._aborted = copied(self._aborted)
        return other

    # Changes.

    def append(self, batch: BatchCoordinates, key: int) -> None:
        """A batch of the object `key` joins; the first one of a transaction opens it."""
        base_offset = batch.base_offset
        assert base_offset == self.end, f"L1: {batch} does not begin at {self.end}"
        offsets, keys, positions, sizes, records, timestamps = self._batches
        offsets.append(base_offset)
        keys.append(key)
        positions.append(batch.position)
        sizes.append(batch.size)
        records.append(batch.records)
        timestamps.append(batch.max_timestamp)
        self.end = base_offset + batch.records
        self.size += batch.size
        if batch.transactional:
            self.open.setdefault(batch.producer_id, base_offset)

    def append_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, timestamp_ms: int) -> None:
        """The open transaction of a producer ends."""
        first = self.open.pop(producer_id, None)
        assert first is not None, f"L4: producer {producer_id} has no transaction open in log {self.number}"
        for column, value in zip(
            self._markers, (self.end, producer_id, producer_epoch, committed, timestamp_ms), strict=True
        ):
            column.append(value)
        if not committed:
            last_stable = next(iter(self.open.values()), self.end + 1)
            for column, value in zip(self._aborted, (self.end, producer_id, first, last_stable), strict=True):
                column.append(value)
        self.end += 1

    # Questions.

    def objects(self) -> array[int]:
        """The key of each batch's object."""
        return self._batches[1]

    def batches_from(self, offset: int, below: int, most: int) -> list[LocatedBatch]:
        """The batches from the one that holds `offset` on, those that begin below an offset, at most so many."""
        offsets = self._batches[0]
        first = max(bisect_right(offsets, offset) - 1, 0)
        if first < len(offsets) and offsets[first] + self._batches[4][first] <= offset:
            first += 1  # a marker is at `offset`
        rows = slice(first, min(bisect_left(offsets, below), first + most))
        return list(map(LocatedBatch._make, zip(*(column[rows] for column in self._batches), strict=True)))

    def markers_from(self, offset: int, below: int, most: int) -> list[LoggedMarker]:
        """The markers from `offset` on, those below an offset, at most so many."""
        offsets = self._markers[0]
        first = bisect_left(offsets, offset)
        rows = slice(first, min(bisect_left(offsets, below), first + most))
        return [
            LoggedMarker(at, producer_id, epoch, bool(committed), timestamp)
            for at, producer_id, epoch, committed, timestamp in zip(*(c[rows] for c in self._markers), strict=True)
        ]

    def aborted_between(self, offset: int, below: int) -> list[Aborted]:
        """The aborted transactions that have something between two offsets (Kafka's `collectAbortedTransactions`)."""
        # Whatever began below this offset is not aborted behind the row that leaves no open one below it.
        rows = slice(bisect_left(self._aborted[0], offset), bisect_left(self._aborted[3], below) + 1)
        found = map(Aborted._make, zip(*(column[rows] for column in self._aborted), strict=True))
        return [one for one in found if one.first_offset < below]

    def first_at(self, timestamp: int) -> LocatedBatch | None:
        """The first batch with a record of that time or later."""
        timestamps = self._batches[5]
        found = next((row for row, latest in enumerate(timestamps) if latest >= timestamp), None)
        return None if found is None else self._row(found)

    def latest(self) -> LocatedBatch | None:
        """The first batch of those with the latest record."""
        timestamps = self._batches[5]
        return self._row(timestamps.index(max(timestamps))) if timestamps else None

    def _row(self, row: int) -> LocatedBatch:
        return LocatedBatch._make(column[row] for column in self._batches)

    # Snapshots.

    def image(self) -> LogImage:
        """As a snapshot keeps it."""
        return LogImage(
            self.number, self.start, self.end, packed(self._batches), packed(self._markers), packed(self._aborted)
        )

    def restore(self, image: LogImage) -> None:
        """Become what a snapshot kept, but for what its producers have open. Raises ValueError."""
        self.start, self.end = image.start, image.end
        self._batches = unpacked(_BATCHES, image.columns)
        self._markers = unpacked(_MARKERS, image.markers)
        self._aborted = unpacked(_ABORTED, image.aborted)
        self.size = sum(self._batches[3])
        _check(self._batches, image)


def _check(batches: Columns, image: LogImage) -> None:
    """Raise ValueError for a log with batches outside of it."""
    offsets, records = batches[0], batches[4]
    if offsets and (offsets[0] < image.start or offsets[-1] + records[-1] > image.end):
        raise ValueError(
            f"log {image.number} has batches from {offsets[0]} on, and goes from {image.start} to {image.end}"
        )
