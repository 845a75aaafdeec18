"""The beginning of a log's tail, read into memory to be rolled: batches with their offsets, and markers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.data.calls import LogCalls
from pidkeeper.broker_agent.data.codes import NONE, OFFSET_OUT_OF_RANGE
from pidkeeper.broker_agent.data.reading import BatchReader
from pidkeeper.broker_agent.data.selecting import MARKER_BYTES, marker_batch, offset_of
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    BatchError,
    check_crc,
    read_batch_header,
    with_base_offset,
)
from pidkeeper.protocol.log_messages import (
    AbortedTransaction,
    LogBatches,
    Marker,
    ReadLog,
    ReadLogsRequest,
    StoredBatch,
)
from pidkeeper.protocol.segment_messages import DueLog
from pidkeeper.protocol.segments import MAX_SEGMENT_ROWS

PAGE_BYTES: Final = 4 << 20
"""Of batches that are read at a time. Twice as much may be read from the store for them."""

MAX_PAGES: Final = 2 * MAX_SEGMENT_ROWS
"""A page has a row at least, but for the last one."""

CHECKED_AT_ONCE: Final = 64
"""Batches between two turns of the event loop: of some microseconds each, or of one millisecond for a megabyte."""


class NothingToRollError(Exception):
    """The log is not what it was: somebody else has rolled it, or it has lost its beginning. Ask anew."""


class UnreadError(Exception):
    """The store did not give everything in time, and may the next time."""


class DamagedLogError(Exception):
    """A batch is missing or damaged. The message names it."""


class Tail:
    """Rows of a log from `base_offset` to `end_offset - 1`, in `pieces`: `rows` batches and markers of `size` bytes.

    `aborted`: the aborted transactions that have something in them.
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = self.end_offset = base_offset
        self.pieces: list[bytes] = []
        self.size = 0
        self.rows = 0
        self.aborted: set[AbortedTransaction] = set()


class TailReader:
    """Reads tails: where batches are by `calls`, and these by `reader`."""

    def __init__(self, calls: LogCalls, reader: BatchReader) -> None:
        self._calls = calls
        self._reader = reader

    async def read(self, due: DueLog, max_bytes: int) -> Tail:
        """The first rows of a log's tail below its last stable offset: at least one, then as many as fit.

        Raises NothingToRollError, UnreadError, DamagedLogError, and RequestError.
        """
        tail = Tail(due.tail_start)
        offset = due.tail_start
        for _ in range(MAX_PAGES):
            if tail.size >= max_bytes or tail.rows >= MAX_SEGMENT_ROWS:
                break
            log, objects = await self._page(due.log, offset, min(max_bytes - tail.size, PAGE_BYTES))
            rows: list[StoredBatch | Marker] = [*log.batches, *log.markers]
            if not rows:
                break
            full = await self._add(tail, log, sorted(rows, key=offset_of), objects, max_bytes)
            offset = tail.end_offset
            if full:
                break
        if not tail.rows:
            raise NothingToRollError(f"log {due.log} has nothing to roll from offset {due.tail_start} on")
        return tail

    async def _page(self, log: int, offset: int, max_bytes: int) -> tuple[LogBatches, list[str]]:
        answer = await self._ask(log, offset, max_bytes)
        if answer[0].error_code == OFFSET_OUT_OF_RANGE and answer[0].log_start > offset:
            # The first batch may reach below the start of the log.
            answer = await self._ask(log, answer[0].log_start, max_bytes)
        found = answer[0]
        if found.error_code != NONE or found.segment is not None:
            raise NothingToRollError(f"log {log} has no tail at {offset} any more: {found}")
        return answer

    async def _ask(
        self, log: int, offset: int, max_bytes: int, *, confirmed: bool = False
    ) -> tuple[LogBatches, list[str]]:
        request = ReadLogsRequest([ReadLog(log, offset, max_bytes)], committed=True, confirmed=confirmed)
        answer = await self._calls.read_logs(request)
        (found,) = answer.logs
        return found, answer.objects

    async def _add(
        self,
        tail: Tail,
        log: LogBatches,
        rows: Sequence[StoredBatch | Marker],
        objects: Sequence[str],
        max_bytes: int,
    ) -> bool:
        """Have the rows of one page join the tail, as far as they fit; whether it is full."""
        batches = [row for row in rows if isinstance(row, StoredBatch)]
        reading = await self._reader.read(objects, batches, confirmed=False)
        full = False
        for number, row in enumerate(rows):
            size = row.size if isinstance(row, StoredBatch) else MARKER_BYTES
            full = tail.rows >= MAX_SEGMENT_ROWS or (tail.rows > 0 and tail.size + size > max_bytes)
            if full:
                break
            if offset_of(row) != tail.end_offset:
                raise NothingToRollError(f"log {log.log} has a row at {offset_of(row)}, not at {tail.end_offset}")
            if isinstance(row, Marker):
                tail.pieces.append(marker_batch(row))
                tail.end_offset += 1
            else:
                data = reading.found.get(row)
                if data is None:
                    await self._tell_why(log.log, row, objects, row in reading.gone, row in reading.damaged)
                    raise UnreadError(f"{objects[row.object]} is not read yet")
                tail.end_offset += _checked(data, row, objects, log.log)
                tail.pieces.append(with_base_offset(data, row.base_offset))
            tail.size += size
            tail.rows += 1
            if number % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1:
                await asyncio.sleep(0)
        tail.aborted.update(log.aborted)
        return full

    async def _tell_why(self, log: int, row: StoredBatch, objects: Sequence[str], gone: bool, damaged: bool) -> None:
        """Raise what the absence of a batch means, unless it may be there the next time."""
        place = f"log {log} at offset {row.base_offset}: {objects[row.object]} at {row.position}"
        if damaged:
            raise DamagedLogError(f"{place} is damaged")
        if not gone:
            return
        # It may have been rolled by somebody else, or dropped.
        now, names = await self._ask(log, row.base_offset, row.size, confirmed=True)
        there = {(one.base_offset, names[one.object], one.position) for one in now.batches}
        if (row.base_offset, objects[row.object], row.position) in there:
            raise DamagedLogError(f"{place} is missing")
        raise NothingToRollError(f"{place} is not of this log any more")


def _checked(data: Buffer, row: StoredBatch, objects: Sequence[str], log: int) -> int:
    """How many records a batch has, if its bytes are as they were. Raises DamagedLogError."""
    try:
        header = read_batch_header(data)
        check_crc(data, header)
    except BatchError as error:
        place = f"log {log} at offset {row.base_offset}: {objects[row.object]} at {row.position}"
        raise DamagedLogError(f"{place} is damaged: {error}") from error
    return header.records_count
