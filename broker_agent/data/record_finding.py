"""The record that ListOffsets asks for by time, in the batch or segment that the quorum names (KIP-79, KIP-734)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from pidkeeper.broker_agent.data.reading import BatchReader
from pidkeeper.broker_agent.data.segment_building import following
from pidkeeper.broker_agent.data.segment_reading import GoneError, SegmentReader
from pidkeeper.broker_agent.kafka.wire.data.decompression import MissingCodecError, UnreadableError
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchHeader, read_batch_header
from pidkeeper.broker_agent.kafka.wire.data.records import record_times
from pidkeeper.protocol.log_messages import FoundOffset, StoredBatch
from pidkeeper.protocol.segment_messages import StoredSegment

MAX_RECORDS_BYTES: Final = 16 << 20
"""Records of one batch, once they are not compressed any more: as many as the largest object has bytes. What would be
larger is not looked into."""

MAX_FINDS: Final = 4
"""Batches that are looked into at a time: each takes what it has and MAX_RECORDS_BYTES."""

FIND_SECONDS: Final = 10.0
"""For one record, with its turn: clients wait half a minute for the answer."""

MAX_SPANS: Final = 64
"""Parts of a segment that are read for one record. The first has it, unless a log begins behind it."""

TURN_RECORDS: Final = 2000
"""Between two turns of the event loop: two milliseconds."""


class RecordTime(NamedTuple):
    """A record's offset and timestamp."""

    offset: int
    timestamp: int


class RecordFinder:
    """Looks into batches of `reader`, and into `segments`."""

    def __init__(self, reader: BatchReader, segments: SegmentReader) -> None:
        self._reader = reader
        self._segments = segments
        self._room = asyncio.Semaphore(MAX_FINDS)

    async def find(
        self, objects: Sequence[str], found: FoundOffset, timestamp: int, *, confirmed: bool
    ) -> RecordTime | None:
        """The first record from the found offset on with that time or later; None if it cannot be told in time.

        Where a batch's records cannot be read, it is the batch: its offset, and its latest time. Raises GoneError
        unless `confirmed`.
        """
        try:
            async with asyncio.timeout(FIND_SECONDS), self._room:
                if found.segment is not None:
                    return await self._in_segment(objects, found, found.segment, timestamp, confirmed=confirmed)
                if found.batch is not None:
                    return await self._in_batch(objects, found, found.batch, timestamp, confirmed=confirmed)
        except TimeoutError:
            pass
        return None

    async def _in_batch(
        self, objects: Sequence[str], found: FoundOffset, batch: StoredBatch, timestamp: int, *, confirmed: bool
    ) -> RecordTime | None:
        reading = await self._reader.read(objects, [batch], confirmed=confirmed)
        if batch in reading.gone and not confirmed:
            raise GoneError(f"{objects[batch.object]} is missing")
        if (data := reading.found.get(batch)) is None:
            return None
        # In its object a batch has the offset that its producer gave it.
        header = replace(read_batch_header(data), base_offset=batch.base_offset)
        return await _first(data, header, found.offset, timestamp)

    async def _in_segment(
        self, objects: Sequence[str], found: FoundOffset, segment: StoredSegment, timestamp: int, *, confirmed: bool
    ) -> RecordTime | None:
        planned = await self._segments.plan(objects, segment, confirmed=confirmed)
        if planned is None:
            return None
        for _, span in zip(range(MAX_SPANS), planned.sparse.spans_at(timestamp, found.offset), strict=False):
            data = await self._segments.data(planned, span, confirmed=confirmed)
            if data is None:
                return None
            try:
                record = await _first_of(data, found.offset, timestamp)
            except ValueError as error:
                self._segments.complain(planned, f"behind byte {span.start}: {error}")
                return None
            if record is not None:
                return record
        return None


async def _first_of(data: bytes, offset: int, timestamp: int) -> RecordTime | None:
    """The first such record of some batches. Raises ValueError where these are none."""
    for header in following(data, read_batch_header(data).base_offset):
        may_have_it = header.last_offset >= offset and header.max_timestamp >= timestamp
        # As in a tail, where markers have no time.
        if may_have_it and not header.is_control and (one := await _first(data, header, offset, timestamp)):
            return one
    return None


async def _first(data: Buffer, header: BatchHeader, offset: int, timestamp: int) -> RecordTime | None:
    """The first such record of a batch; the batch if its records cannot be read."""
    try:
        for number, one in enumerate(record_times(data, header, MAX_RECORDS_BYTES), 1):
            if one[0] >= offset and one[1] >= timestamp:
                return RecordTime(*one)
            if number % TURN_RECORDS == 0:
                await asyncio.sleep(0)
    except (UnreadableError, MissingCodecError):
        return RecordTime(max(header.base_offset, offset), header.max_timestamp)
    return None
