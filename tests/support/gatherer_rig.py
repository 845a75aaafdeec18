"""A gatherer over a store and a leader in memory."""

from __future__ import annotations

import asyncio
from typing import Any

from pidkeeper.broker_agent.data.batches import checked_batch
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.discarding import Discarder
from pidkeeper.broker_agent.data.gathering import Gatherer
from pidkeeper.broker_agent.data.ranged_reads import RangedReads
from pidkeeper.broker_agent.data.reading import BatchReader
from pidkeeper.broker_agent.data.recent import RecentObjects
from pidkeeper.broker_agent.data.segment_indices import SegmentIndices
from pidkeeper.broker_agent.data.segment_reading import SegmentReader
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.writing import ObjectWriter
from tests.support.data_parts import RNG, FaultyStore, StubRegistration
from tests.support.log_leader import LogLeader


class Rig:
    """A gatherer over a store and a leader in memory, and what reads."""

    def __init__(self, retry_seconds: float = 0.02, **options: Any) -> None:
        self.settings = DataSettings(store="unused", **{"linger_ms": 0, **options})
        self.store = FaultyStore()
        self.leader = LogLeader()
        self.session = StubRegistration(self.leader.register())
        self.leader.add_topic("t", 3)
        self.counters = Counters()
        self.discarder = Discarder(self.store, RNG)
        self.recent = RecentObjects(1 << 20)
        self.reads = RangedReads(self.store, self.counters)
        self.reader = BatchReader(self.reads, self.recent, self.counters)
        self.indices = SegmentIndices(self.reads, self.counters, self.settings.index_bytes)
        self.segments = SegmentReader(self.reads, self.indices)
        writer = ObjectWriter(self.store, self.leader, self.session, self.discarder, RNG, self.counters, retry_seconds)
        self.gatherer = Gatherer(self.settings, writer, self.counters)

    async def append(
        self, *data: memoryview, log: int = 0, seconds: float = 5.0, transactional: bool = False
    ) -> list[int]:
        """The outcomes of one request."""
        return await (await self.queue(*data, log=log, seconds=seconds, transactional=transactional))

    async def queue(
        self, *data: memoryview, log: int = 0, seconds: float = 5.0, transactional: bool = False
    ) -> asyncio.Future[list[int]]:
        """What will be the outcomes of one request, which is queued."""
        await self.gatherer.room.take(sum(map(len, data)))
        batches = [checked_batch(one, log, max_bytes=1 << 20, transactional=transactional) for one in data]
        loop = asyncio.get_running_loop()
        told: asyncio.Future[list[int]] = loop.create_future()
        self.gatherer.append(
            batches, loop.time(), loop.time() + seconds, lambda found: None if told.done() else told.set_result(found)
        )
        return told

    def numbers(self) -> list[tuple[int, int]]:
        """Epoch and number of what was offered."""
        return [(one.broker_epoch, one.number) for one in self.leader.asked("commit_object")]

    async def stop(self) -> None:
        await self.gatherer.stop()
        await self.indices.stop()
        await self.discarder.stop()
