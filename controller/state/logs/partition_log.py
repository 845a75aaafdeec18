"""One partition's log: where its batches are, its markers, and which transactions are open or were aborted in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from pidkeeper.controller.state.logs.columns import Columns, copied, empty, packed, unpacked
from pidkeeper.controller.state.logs.rolled import LocatedSegment, Segments
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


class Freed(NamedTuple):
    """What a log let go of. `keys`: of the objects, each as often as the log had something in it."""

    keys: list[int]
    rows: int
    aborted: int


class PartitionLog:
    """A log from `start` up to `end`, the offset that the next batch gets: its segments, and behind them its tail.

    `generation`: that of the state which may change it; another one takes a copy. `open`: the first offset of each open
    transaction by its producer, ascending. `tail_size`: bytes of the tail's batches.
    """

    __slots__ = (
        "_aborted",
        "_batches",
        "_markers",
        "end",
        "generation",
        "open",
        "partition",
        "segments",
        "start",
        "tail_size",
        "topic",
    )

    def __init__(self, topic: TopicRecord, partition: int, generation: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.generation = generation
        self.start = self.end = 0
        self.tail_size = 0
        self.segments = Segments()
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
        """Batches and markers of the tail."""
        return len(self._batches[0]) + len(self._markers[0])

    @property
    def batch_count(self) -> int:
        """Batches of the tail."""
        return len(self._batches[0])

    @property
    def size(self) -> int:
        """Bytes of all segments, and of the tail's batches."""
        return self.segments.size + self.tail_size

    @property
    def tail_start(self) -> int:
        """The first offset of the tail; of a batch that reaches below `start`, that of the batch."""
        first = [column[0] for column in (self._batches[0], self._markers[0]) if column]
        return min(first, default=self.end)

    @property
    def aborted_count(self) -> int:
        """Aborted transactions that are kept."""
        return len(self._aborted[0])

    @property
    def last_stable(self) -> int:
        """The offset below which every transaction is decided (the last stable offset)."""
        # What was deleted on demand may reach into a transaction.
        return max(next(iter(self.open.values()), self.end), self.start)

    def clone(self, generation: int) -> PartitionLog:
        """An equal one, to be changed for itself."""
        other = PartitionLog(self.topic, self.partition, generation)
        other.start, other.end, other.tail_size = self.start, self.end, self.tail_size
        other.segments = self.segments.clone()
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
        self.tail_size += batch.size
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

    def roll(self, segment: LocatedSegment) -> Freed:
        """A segment takes the place of what `covered` counts; what the log needs no more for it."""
        first = self.segments.beginning_at(segment.base_offset)
        keys = [] if first is None else list(self.segments.cut_from(first))
        rows = self._cut_tail(bisect_left(self._batches[0], segment.end_offset), segment.end_offset, keys)
        self.segments.append(segment)
        return Freed(keys, rows, self._cut_aborted(segment.end_offset))

    def drop_below(self, offset: int) -> Freed:
        """The log begins at `offset`: without whatever lies below it as a whole."""
        assert self.start <= offset <= self.end, f"L7: log {self.number} cannot begin at {offset}: {self.start}"
        self.start = offset
        keys = list(self.segments.cut_below(offset))
        offsets, records = self._batches[0], self._batches[4]
        first = bisect_right(offsets, offset)
        if first and offsets[first - 1] + records[first - 1] > offset:
            first -= 1
        rows = self._cut_tail(first, offset, keys)
        # Below the tail the segments know them.
        return Freed(keys, rows, self._cut_aborted(max(offset, self.tail_start)))

    def _cut_tail(self, batches: int, below: int, keys: list[int]) -> int:
        """Without so many first batches, and the markers below an offset: how many rows that makes."""
        markers = bisect_left(self._markers[0], below)
        keys.extend(self._batches[1][:batches])
        self.tail_size -= sum(self._batches[3][:batches])
        for column in self._batches:
            del column[:batches]
        for column in self._markers:
            del column[:markers]
        return batches + markers

    def _cut_aborted(self, below: int) -> int:
        """Without those whose marker lies below an offset: how many."""
        count = bisect_left(self._aborted[0], below)
        for column in self._aborted:
            del column[:count]
        return count

    # Questions.

    def keys(self) -> list[int]:
        """The objects of the log, by key, each as often as the log has something in it."""
        return [*self.segments.keys(), *self._batches[1]]

    def covered(self, base_offset: int, end_offset: int) -> int | None:
        """The last segments and the first rows of the tail that make up the offsets from one to below another one.

        None unless they do so exactly, and all is decided below `end_offset`.
        """
        tail_start, segments = self.tail_start, 0
        if base_offset != tail_start:
            first = self.segments.beginning_at(base_offset)
            if first is None or end_offset < tail_start:
                return None
            segments = len(self.segments) - first
        if not base_offset < end_offset <= self.last_stable:
            return None
        offsets, records = self._batches[0], self._batches[4]
        batches = bisect_left(offsets, end_offset)
        if batches and offsets[batches - 1] + records[batches - 1] > end_offset:
            return None
        return segments + batches + bisect_left(self._markers[0], end_offset)

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """Base offset, size and latest timestamp of each segment, and then of each batch of the tail."""
        yield from ((one.base_offset, one.size, one.max_timestamp) for one in self.segments)
        yield from zip(self._batches[0], self._batches[3], self._batches[5], strict=True)

    def batches_from(self, offset: int, below: int, most: int) -> list[LocatedBatch]:
        """The tail's batches from the one that holds `offset` on, those that begin below an offset, at most so many."""
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
        """The first batch of the tail with a record of that time or later."""
        timestamps = self._batches[5]
        found = next((row for row, latest in enumerate(timestamps) if latest >= timestamp), None)
        return None if found is None else self._row(found)

    def latest(self) -> LocatedBatch | None:
        """The first batch of those of the tail with the latest record."""
        timestamps = self._batches[5]
        return self._row(timestamps.index(max(timestamps))) if timestamps else None

    def _row(self, row: int) -> LocatedBatch:
        return LocatedBatch._make(column[row] for column in self._batches)

    # Snapshots.

    def image(self) -> LogImage:
        """As a snapshot keeps it."""
        columns = packed(self._batches), packed(self._markers), packed(self._aborted)
        return LogImage(self.number, self.start, self.end, *columns)

    def restore(self, image: LogImage) -> None:
        """Become what a snapshot kept, but for what its producers have open. Raises ValueError."""
        self.start, self.end = image.start, image.end
        self._batches = unpacked(_BATCHES, image.columns)
        self._markers = unpacked(_MARKERS, image.markers)
        self._aborted = unpacked(_ABORTED, image.aborted)
        self.tail_size = sum(self._batches[3])
        _check(self._batches, image)


def _check(batches: Columns, image: LogImage) -> None:
    """Raise ValueError for a log with batches outside of it."""
    offsets, records = batches[0], batches[4]
    if offsets and (offsets[0] + records[0] <= image.start or offsets[-1] + records[-1] > image.end):
        raise ValueError(
            f"log {image.number} has batches from {offsets[0]} on, and goes from {image.start} to {image.end}"
        )
