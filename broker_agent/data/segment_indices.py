"""Indices of segments, from the store and then from memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.ranged_reads import RangedReads
from pidkeeper.broker_agent.data.segment_index import MAX_INDEX_BYTES, IndexDamagedError, SegmentIndex, decode_index
from pidkeeper.protocol.segment_messages import StoredSegment
from pidkeeper.protocol.segments import index_path

MAX_LOADS: Final = 16
"""Indices that are loaded at a time: of MAX_INDEX_BYTES at most, and some KiB as a rule."""


class SegmentIndices:
    """The indices that were used last, `max_bytes` of them at most. Each is loaded once for all who wait for it."""

    def __init__(self, reads: RangedReads, counters: Counters, max_bytes: int) -> None:
        self._reads = reads
        self._counters = counters
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._loads: dict[str, asyncio.Task[SegmentIndex]] = {}
        self._room = asyncio.Semaphore(MAX_LOADS)
        self.bytes = 0

    async def index(self, name: str, segment: StoredSegment) -> SegmentIndex:
        """The index of the segment of that name. Raises StoreError, and IndexDamagedError if it is not its index."""
        if (kept := self._kept.get(name)) is not None:
            self._kept.move_to_end(name)
            self._counters.index_hits += 1
            return kept
        load = self._loads.get(name)
        if load is None:
            load = self._loads[name] = asyncio.get_running_loop().create_task(self._load(name, segment))
            load.add_done_callback(lambda done: self._loaded(name, done))
        # Shielded: others may wait for the same.
        return await asyncio.shield(load)

    async def stop(self) -> None:
        """Load no more."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def _load(self, name: str, segment: StoredSegment) -> SegmentIndex:
        if not 0 < segment.index_size <= MAX_INDEX_BYTES:
            raise IndexDamagedError(f"an index of {segment.index_size} bytes; one has {MAX_INDEX_BYTES} at most")
        async with self._room:
            self._counters.index_loads += 1
            index = decode_index(await self._reads.read(index_path(name), 0, segment.index_size))
        told = segment.base_offset, segment.end_offset, segment.size
        if (index.base_offset, index.end_offset, index.size) != told:
            raise IndexDamagedError(
                f"an index of offsets {index.base_offset} to {index.end_offset} in {index.size} bytes, and the quorum "
                f"says {segment.base_offset} to {segment.end_offset} in {segment.size}"
            )
        return index

    def _loaded(self, name: str, done: asyncio.Task[SegmentIndex]) -> None:
        del self._loads[name]
        if done.cancelled() or done.exception() is not None:
            return
        index = done.result()
        if index.bytes > self._max_bytes:
            return
        self._kept[name] = index
        self.bytes += index.bytes
        while self.bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.bytes -= oldest.bytes
