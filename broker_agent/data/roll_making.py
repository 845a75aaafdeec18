"""One roll: the beginning of a log's tail, and the small segments before it, made into one segment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.roll_gathering import DamagedLogError, Tail, TailReader
from pidkeeper.broker_agent.data.segment_building import (
    BrokenSegmentError,
    BuiltSegment,
    SegmentBuilder,
    taken_in,
    verified,
)
from pidkeeper.broker_agent.data.segment_index import Span
from pidkeeper.broker_agent.data.segment_reading import GoneError, SegmentReader
from pidkeeper.protocol.log_messages import AbortedTransaction
from pidkeeper.protocol.logs import MAX_OBJECT_BYTES
from pidkeeper.protocol.segment_messages import DueLog, StoredSegment
from pidkeeper.protocol.segments import MAX_SEGMENT_ROWS

TURN_BATCHES: Final = 500
"""Batches between two turns of the event loop: two milliseconds."""


class Roll(NamedTuple):
    """A segment that is to take the place of `replaces` batches, markers and segments. `full`: more is to be rolled."""

    segment: BuiltSegment
    replaces: int
    full: bool


class _Older(NamedTuple):
    """A segment that is written again."""

    data: bytes
    base_offset: int
    aborted: list[AbortedTransaction]


class SegmentMaker:
    """Makes segments of what it reads by `tails` and `segments`."""

    def __init__(self, tails: TailReader, segments: SegmentReader) -> None:
        self._tails = tails
        self._segments = segments

    async def make(self, due: DueLog, objects: Sequence[str], segment_bytes: int) -> Roll:
        """A segment of up to `segment_bytes`, or of one batch that is larger.

        `objects`: the names of the log's segments. Raises what TailReader does.
        """
        limit = min(segment_bytes, MAX_OBJECT_BYTES)
        tail = await self._tails.read(due, limit)
        older = await self._older(due, objects, tail, limit)
        try:
            built = await self._built(tail, older)
        except ValueError as error:
            raise DamagedLogError(
                f"log {due.log} makes no segment from offset {tail.base_offset} on: {error}"
            ) from error
        return Roll(built, tail.rows + len(older), tail.end_offset < due.last_stable)

    async def _built(self, tail: Tail, older: Sequence[_Older]) -> BuiltSegment:
        """Raises ValueError for what does not follow each other, or has too large an index."""
        builder = SegmentBuilder(older[0].base_offset if older else tail.base_offset)
        aborted = tail.aborted.union(*(one.aborted for one in older))
        pieces = *(one.data for one in older), *tail.pieces
        await _in_turns(step for piece in pieces for step in builder.adding(piece))
        return builder.finish(aborted)

    async def _older(self, due: DueLog, objects: Sequence[str], tail: Tail, limit: int) -> list[_Older]:
        """The segments to be written again, ascending. One that cannot be read is left as it is, with those before."""
        near = due.segments[max(len(due.segments) - (MAX_SEGMENT_ROWS - tail.rows), 0) :]
        found: list[_Older] = []
        for segment in reversed(taken_in(near, tail.base_offset, tail.size, limit)):
            one = await self._read(objects, segment)
            if one is None:
                break
            found.append(one)
        return found[::-1]

    async def _read(self, objects: Sequence[str], segment: StoredSegment) -> _Older | None:
        """All of a segment, each batch of which is as it was; None if it is not."""
        try:
            planned = await self._segments.plan(objects, segment, confirmed=False)
            if planned is None:
                return None
            data = await self._segments.data(planned, Span(0, segment.size), confirmed=False)
        except GoneError:
            return None
        if data is None:
            return None
        try:
            await _in_turns(verified(data, segment.base_offset))
        except BrokenSegmentError as error:
            self._segments.complain(planned, error)
            return None
        return _Older(data, segment.base_offset, planned.sparse.aborted)


async def _in_turns(steps: Iterator[object]) -> None:
    """Take all steps, and let others have their turn meanwhile."""
    for number, _ in enumerate(steps, 1):
        if number % TURN_BATCHES == 0:
            await asyncio.sleep(0)
