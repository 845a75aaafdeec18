"""A segment, put together from batches that follow each other: its bytes as Kafka keeps them, and its index. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.segment_index import INDEX_INTERVAL_BYTES, NO_TIME, SegmentIndex
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchHeader, check_crc, read_batch_header
from pidkeeper.protocol.log_messages import AbortedTransaction
from pidkeeper.protocol.segment_messages import StoredSegment

GROWTH: Final = 2
"""A segment is written again with what follows it while it is not more than so many times as large: then each byte is
written again a logarithm of times."""

NO_TIMESTAMP: Final = -1
"""Of a segment without a record: it holds markers alone."""


class BrokenSegmentError(ValueError):
    """Batches that do not follow each other, or a batch that is damaged."""


class BuiltSegment(NamedTuple):
    """A segment. `sparse`: its index, as it is stored. `max_timestamp`: the latest of its records, markers aside."""

    base_offset: int
    end_offset: int
    pieces: list[bytes]
    size: int
    sparse: bytes
    max_timestamp: int


class SegmentBuilder:
    """Takes what a segment that begins at `base_offset` consists of, piece by piece."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = self.end_offset = base_offset
        self.size = 0
        self._pieces: list[bytes] = []
        self._entries: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._latest = NO_TIME

    def add(self, piece: bytes) -> None:
        """Whole batches with their offsets in them, next in the order of these. Raises BrokenSegmentError."""
        for _ in self.adding(piece):
            pass

    def adding(self, piece: bytes) -> Iterator[None]:
        """As `add`, with a stop behind each batch: there may be a hundred thousand."""
        for header in following(piece, self.end_offset):
            self._enter(header, self.size + header.position)
            self.end_offset = header.last_offset + 1
            yield
        self._pieces.append(piece)
        self.size += len(piece)

    def finish(self, aborted: Iterable[AbortedTransaction]) -> BuiltSegment:
        """The segment. `aborted`: all aborted transactions that may have something in it."""
        own = {one for one in aborted if one.first_offset < self.end_offset and one.marker_offset >= self.base_offset}
        index = SegmentIndex(self.base_offset, self.end_offset, self.size, self._entries, own)
        latest = self._latest if self._latest > NO_TIME else NO_TIMESTAMP
        return BuiltSegment(self.base_offset, self.end_offset, self._pieces, self.size, index.encode(), latest)

    def _enter(self, header: BatchHeader, position: int) -> None:
        offsets, positions, latest = self._entries
        # Before a batch that reaches beyond the interval, so that a large one has an entry of its own.
        if not positions or position + header.size > positions[-1] + INDEX_INTERVAL_BYTES:
            offsets.append(header.base_offset)
            positions.append(position)
            latest.append(self._latest)
        if not header.is_control:
            self._latest = max(self._latest, header.max_timestamp)


def following(data: Buffer, offset: int) -> Iterator[BatchHeader]:
    """The headers of whole batches, of which the first is at `offset`, and each follows the one before it.

    Raises BrokenSegmentError.
    """
    position = 0
    while position < len(data):
        try:
            header = read_batch_header(data, position)
        except ValueError as error:
            raise BrokenSegmentError(str(error)) from error
        if header.base_offset != offset:
            raise BrokenSegmentError(f"the batch at {position} has offset {header.base_offset}, not {offset}")
        yield header
        offset, position = header.last_offset + 1, header.end


def verified(data: Buffer, offset: int) -> Iterator[BatchHeader]:
    """As `following`, with the CRC of each batch."""
    for header in following(data, offset):
        try:
            check_crc(data, header)
        except ValueError as error:
            raise BrokenSegmentError(str(error)) from error
        yield header


def taken_in(segments: Sequence[StoredSegment], base_offset: int, size: int, limit: int) -> list[StoredSegment]:
    """Those of the last `segments` that are written again, ascending, together with `size` bytes from `base_offset` on.

    All of it has `limit` bytes at most.
    """
    found: list[StoredSegment] = []
    for segment in reversed(segments):
        if segment.end_offset != base_offset or segment.size > GROWTH * size or size + segment.size > limit:
            break
        found.append(segment)
        base_offset, size = segment.base_offset, size + segment.size
    return found[::-1]
