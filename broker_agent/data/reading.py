"""Batches from where the quorum says they are: this agent's memory, or ranges of the store's objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.ranged_reads import RangedReads
from pidkeeper.broker_agent.data.recent import RecentObjects
from pidkeeper.broker_agent.data.store.port import (
    ObjectMissingError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchError, read_batch_header
from pidkeeper.protocol.log_messages import StoredBatch

MAX_GAP_BYTES: Final = 64 << 10
"""Between two batches of an object that are read as one range: less than what another request costs. A gap is never
larger than what is wanted around it, so at most twice as much is read as is given."""


class Range(NamedTuple):
    """A part of an object that holds `batches`, in the order of their positions. `object`: its index in the answer."""

    object: int
    start: int
    end: int
    batches: list[StoredBatch]


class Reading:
    """What became of batches that were wanted; of those in none of the three the store did not answer in time.

    `gone`: their objects are missing. They may have been rolled or dropped since the quorum was asked.
    """

    def __init__(self) -> None:
        self.found: dict[StoredBatch, Buffer] = {}
        self.gone: set[StoredBatch] = set()
        self.damaged: set[StoredBatch] = set()


class BatchReader:
    """Reads batches by `reads`, and first from `recent`."""

    def __init__(self, reads: RangedReads, recent: RecentObjects, counters: Counters) -> None:
        self._reads = reads
        self._recent = recent
        self._counters = counters

    async def read(self, objects: Sequence[str], wanted: Iterable[StoredBatch], *, confirmed: bool = True) -> Reading:
        """The bytes of each batch; `objects`: the names that their indices are of.

        What is damaged is named in the log once; what is missing only if the quorum's word was `confirmed`.
        """
        reading = Reading()
        absent = []
        for batch in wanted:
            kept = self._recent.find(objects[batch.object], batch.position, batch.size)
            if kept is None:
                absent.append(batch)
            else:
                reading.found[batch] = kept
                self._counters.recent_reads += 1
        if absent:
            parts = [self._read_range(objects[one.object], one, reading, confirmed) for one in ranges(absent)]
            await asyncio.gather(*parts)
        return reading

    async def _read_range(self, name: str, part: Range, reading: Reading, confirmed: bool) -> None:
        try:
            data = memoryview(await self._reads.read(name, part.start, part.end - part.start))
        except ObjectMissingError as error:
            reading.gone.update(part.batches)
            if confirmed:
                self._counters.damaged_reads += 1
                self._reads.complain(name, error)
            return
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._reads.complain(name, error)
            return
        except StoreError as error:
            reading.damaged.update(part.batches)
            self._counters.damaged_reads += 1
            self._reads.complain(name, error)
            return
        for batch in part.batches:
            view = data[batch.position - part.start :][: batch.size]
            if self._is_whole(name, batch, view):
                reading.found[batch] = view
            else:
                reading.damaged.add(batch)
        self._counters.damaged_reads += not reading.damaged.isdisjoint(part.batches)

    def _is_whole(self, name: str, batch: StoredBatch, view: memoryview) -> bool:
        try:
            size = read_batch_header(view).size
        except BatchError as error:
            self._reads.complain(name, error)
            return False
        if size != batch.size:
            self._reads.complain(name, f"the batch at {batch.position} has {size} bytes, the quorum says {batch.size}")
        return size == batch.size


def ranges(batches: Sequence[StoredBatch]) -> list[Range]:
    """The ranges to read for `batches`, of which those that are near to each other share one."""
    found: list[Range] = []
    wanted = 0
    for batch in sorted(batches, key=lambda one: (one.object, one.position)):
        end = batch.position + batch.size
        if found and found[-1].object == batch.object:
            last = found[-1]
            if batch.position - last.end <= min(MAX_GAP_BYTES, wanted + batch.size):
                last.batches.append(batch)
                found[-1] = last._replace(end=max(last.end, end))
                wanted += batch.size
                continue
        found.append(Range(batch.object, batch.position, end, [batch]))
        wanted = batch.size
    return found
