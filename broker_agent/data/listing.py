"""ListOffsets: offsets of partitions by time, from a confirmed state (KIP-79, KIP-734)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.data.calls import LogCalls
from pidkeeper.broker_agent.data.codes import NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION
from pidkeeper.broker_agent.data.topics import Topics, log_of
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import (
    EARLIEST,
    LATEST,
    NO_TIMESTAMP,
    ListOffsetsRequest,
    PartitionOffset,
    PartitionTimestamp,
    TopicOffsets,
    is_known_timestamp,
)
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import FindOffsetsRequest, FoundOffset

MAX_ASKED: Final = 1000
"""Logs in one call: of 42 bytes each at most they make less than the 64 KiB that members read."""

MAX_CALLS: Final = 4
"""Calls at a time."""


class OffsetLister:
    """Serves ListOffsets requests."""

    def __init__(self, calls: LogCalls, topics: Topics) -> None:
        self._calls = calls
        self._topics = topics
        self._room = asyncio.Semaphore(MAX_CALLS)

    async def list_offsets(self, request: ListOffsetsRequest, version: int) -> list[TopicOffsets]:
        """The outcome for each partition."""
        wanted = [(topic.topic, one) for topic in request.topics for one in topic.partitions]
        committed = request.isolation_level is IsolationLevel.READ_COMMITTED
        rest = iter(await self._find(wanted, version, committed=committed))
        return [TopicOffsets(topic.topic, [next(rest) for _ in topic.partitions]) for topic in request.topics]

    async def _find(
        self, wanted: Sequence[tuple[str, PartitionTimestamp]], version: int, *, committed: bool
    ) -> list[PartitionOffset]:
        try:
            topics = await self._topics.find(topic for topic, _ in wanted)
        except RequestError:
            return [PartitionOffset(one.partition, NOT_LEADER_OR_FOLLOWER) for _, one in wanted]
        outcomes: dict[int, PartitionOffset] = {}
        logs: dict[int, tuple[int, int]] = {}
        for index, (topic, one) in enumerate(wanted):
            log = log_of(topics.get(topic), one.partition)
            if not is_known_timestamp(version, one.timestamp):
                outcomes[index] = PartitionOffset(one.partition, UNSUPPORTED_VERSION)
            elif log is None:
                outcomes[index] = PartitionOffset(one.partition, UNKNOWN_TOPIC_OR_PARTITION)
            else:
                logs[index] = log, one.timestamp
        for index, found in zip(logs, await self._ask(list(logs.values()), committed=committed), strict=True):
            topic, one = wanted[index]
            outcomes[index] = _outcome(one, found)
            if found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.forget(topic)
        return [outcomes[index] for index in range(len(wanted))]

    async def _ask(self, logs: list[tuple[int, int]], *, committed: bool) -> list[FoundOffset]:
        found: list[FoundOffset] = []
        for start in range(0, len(logs), MAX_ASKED):
            part = logs[start : start + MAX_ASKED]
            try:
                async with self._room:
                    answer = await self._calls.find_offsets(FindOffsetsRequest(part, committed))
            except RequestError:
                found += [FoundOffset(NOT_LEADER_OR_FOLLOWER, -1, -1)] * len(part)
            else:
                found += answer.offsets
        return found


def _outcome(one: PartitionTimestamp, found: FoundOffset) -> PartitionOffset:
    # Of the ends of a log Kafka tells no time.
    timestamp = NO_TIMESTAMP if one.timestamp in (LATEST, EARLIEST) else found.timestamp
    return PartitionOffset(one.partition, found.error_code, timestamp, found.offset)
