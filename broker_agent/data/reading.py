"""Batches from where the quorum says they are: this agent's memory, or ranges of the store's objects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.recent import RecentObjects
from pidkeeper.broker_agent.data.store.port import (
    ObjectStore,
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

MAX_READS: Final = 16
"""Ranges that are read at a time."""

READ_SECONDS: Final = 10.0
"""For the ranges of one answer; consumers wait half a minute for it."""

MAX_COMPLAINTS: Final = 1000
"""Objects that were complained about; each is named once. Forgotten together, above that."""

_log = logging.getLogger(__name__)


class Range(NamedTuple):
    """A part of an object that holds `batches`, in the order of their positions. `object`: its index in the answer."""

    object: int
    start: int
    end: int
    batches: list[StoredBatch]


class BatchReader:
    """Reads batches from `store`, and first from `recent`."""

    def __init__(self, store: ObjectStore, recent: RecentObjects, counters: Counters) -> None:
        self._store = store
        self._recent = recent
        self._counters = counters
        self._room = asyncio.Semaphore(MAX_READS)
        self._complaints: set[str] = set()

    async def read(self, objects: Sequence[str], wanted: Iterable[StoredBatch]) -> dict[StoredBatch, Buffer]:
        """The bytes of each batch; `objects`: the names that their indices are of.

        Those that are missing or damaged are left out, and the object is named in the log once; so are those that the
        store did not give in time.
        """
        found: dict[StoredBatch, Buffer] = {}
        absent = []
        for batch in wanted:
            kept = self._recent.find(objects[batch.object], batch.position, batch.size)
            if kept is None:
                absent.append(batch)
            else:
                found[batch] = kept
                self._counters.recent_reads += 1
        if absent:
            parts = await asyncio.gather(*(self._read_range(objects[one.object], one) for one in ranges(absent)))
            for part in parts:
                found |= part
        return found

    async def _read_range(self, name: str, part: Range) -> dict[StoredBatch, Buffer]:
        try:
            async with asyncio.timeout(READ_SECONDS), self._room:
                self._counters.store_reads += 1
                data = memoryview(await self._store.read(name, part.start, part.end - part.start))
        except (StoreUnavailableError, StoreRefusedError) as error:
            self._complain(name, error)
            return {}
        except StoreError as error:
            self._counters.damaged_reads += 1
            self._complain(name, error)
            return {}
        except TimeoutError:
            self._complain(name, f"no answer within {READ_SECONDS} s")
            return {}
        found: dict[StoredBatch, Buffer] = {}
        for batch in part.batches:
            view = data[batch.position - part.start :][: batch.size]
            if self._is_whole(name, batch, view):
                found[batch] = view
        self._counters.damaged_reads += len(found) < len(part.batches)
        return found

    def _is_whole(self, name: str, batch: StoredBatch, view: memoryview) -> bool:
        try:
            size = read_batch_header(view).size
        except BatchError as error:
            self._complain(name, error)
            return False
        if size != batch.size:
            self._complain(name, f"the batch at {batch.position} has {size} bytes, the quorum says {batch.size}")
        return size == batch.size

    def _complain(self, name: str, why: object) -> None:
        if name in self._complaints:
            return
        if len(self._complaints) >= MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints.add(name)
        _log.error("records cannot be read from %s: %s", name, why)


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
