"""What serves Fetch, over a store and a leader in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pidkeeper.broker_agent.coordinator.caller import ANYBODY, Caller
from pidkeeper.broker_agent.data.fetching import Fetcher
from pidkeeper.broker_agent.data.topics import Topics
from pidkeeper.broker_agent.data.watching import Watcher
from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from tests.support.data_parts import RNG
from tests.support.gatherer_rig import Rig


class FetchRig(Rig):
    """A gatherer, and what serves Fetch."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.topics = Topics(self.settings, self.leader, self.session)
        self.watcher = Watcher(self.leader, RNG)
        self.fetcher = Fetcher(
            self.settings,
            self.leader,
            self.session,
            self.topics,
            self.reader,
            self.segments,
            self.watcher,
            self.counters,
        )
        self.code = 0

    async def fetch(
        self,
        *wanted: tuple[int, int],
        topic: str = "t",
        caller: Caller = ANYBODY,
        part_bytes: int = 1 << 20,
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        **fields: Any,
    ) -> list[FetchedPartition]:
        """The outcome for each partition and offset."""
        limits = fields.pop("wait_ms", 0), fields.pop("min_bytes", 1), fields.pop("max_bytes", 1 << 20)
        parts = [FetchPartition(partition, offset, part_bytes) for partition, offset in wanted]
        request = FetchRequest(-1, *limits, level, [FetchTopic(topic, parts)], **fields)
        answers: list[FetchedPartition] = []

        def encode(code: int, topics: Sequence[FetchedTopic]) -> bytes:
            self.code = code
            answers.extend(each for one in topics for each in one.partitions)
            return b"answer"

        assert await self.fetcher.fetch(request, caller, encode) == b"answer"
        assert self.fetcher.bytes.held == 0
        return answers

    async def stop(self) -> None:
        await self.watcher.stop()
        await self.topics.stop()
        await super().stop()
