"""Records of segments: what is read of one, by its index, and the whole batches in that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pidkeeper.broker_agent.data.ranged_reads import RangedReads
from pidkeeper.broker_agent.data.segment_building import BrokenSegmentError, following
from pidkeeper.broker_agent.data.segment_index import IndexDamagedError, SegmentIndex, Span
from pidkeeper.broker_agent.data.segment_indices import SegmentIndices
from pidkeeper.broker_agent.data.store.port import (
    ObjectMissingError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchHeader, read_batch_header
from pidkeeper.protocol.log_messages import AbortedTransaction
from pidkeeper.protocol.segment_messages import StoredSegment


class GoneError(Exception):
    """An object is missing that the quorum told of: it may have been rolled or dropped since. Ask it once more."""


class PlannedSegment(NamedTuple):
    """A segment in the store, and its index."""

    name: str
    sparse: SegmentIndex

    def span(self, offset: int, max_bytes: int) -> Span:
        """What is read of it; see `SegmentIndex.span`."""
        return self.sparse.span(offset, max_bytes)


class SegmentPart(NamedTuple):
    """Whole batches from the one that holds a wanted offset on. `aborted`: what consumers have to know of them."""

    records: Buffer
    aborted: list[AbortedTransaction]


class SegmentReader:
    """Reads segments by `reads`, with `indices`.

    What cannot be read is named in the log once; what is missing only if the quorum's word was `confirmed`.
    """

    def __init__(self, reads: RangedReads, indices: SegmentIndices) -> None:
        self._reads = reads
        self._indices = indices

    async def plan(self, objects: Sequence[str], segment: StoredSegment, *, confirmed: bool) -> PlannedSegment | None:
        """A segment with its index, None if that cannot be read. Raises GoneError unless `confirmed`."""
        name = objects[segment.object]
        try:
            return PlannedSegment(name, await self._indices.index(name, segment))
        except (StoreError, IndexDamagedError) as error:
            self._fail(name, error, confirmed=confirmed)
            return None

    async def part(self, planned: PlannedSegment, span: Span, offset: int, *, confirmed: bool) -> SegmentPart | None:
        """The batches of `span` from the one that holds `offset` on; None if they cannot be read.

        Raises GoneError unless `confirmed`.
        """
        data = await self.data(planned, span, confirmed=confirmed)
        if data is None:
            return None
        try:
            first, last = _bounds(data, offset)
        except BrokenSegmentError as error:
            self.complain(planned, f"behind byte {span.start}: {error}")
            return None
        return SegmentPart(memoryview(data)[first.position :], planned.sparse.aborted_between(offset, last.last_offset))

    async def data(self, planned: PlannedSegment, span: Span, *, confirmed: bool) -> bytes | None:
        """The bytes of a span; None if they cannot be read. Raises GoneError unless `confirmed`."""
        try:
            return await self._reads.read(planned.name, span.start, span.size)
        except StoreError as error:
            self._fail(planned.name, error, confirmed=confirmed)
            return None

    def complain(self, planned: PlannedSegment, why: object) -> None:
        """A segment is damaged: count it, and name it in the log, once."""
        self._reads.tell_damage(planned.name, why)

    def _fail(self, name: str, error: Exception, *, confirmed: bool) -> None:
        if isinstance(error, ObjectMissingError) and not confirmed:
            raise GoneError(str(error)) from error
        if isinstance(error, StoreUnavailableError | StoreRefusedError):
            self._reads.complain(name, error)
        else:
            self._reads.tell_damage(name, error)


def _bounds(data: Buffer, offset: int) -> tuple[BatchHeader, BatchHeader]:
    """The first batch that holds or follows the offset, and the last one. Raises BrokenSegmentError."""
    try:
        begins_at = read_batch_header(data).base_offset
    except ValueError as error:
        raise BrokenSegmentError(str(error)) from error
    headers = [header for header in following(data, begins_at) if header.last_offset >= offset]
    if not headers or headers[0].base_offset > offset:
        raise BrokenSegmentError(f"offset {offset} is not where the index says")
    return headers[0], headers[-1]
