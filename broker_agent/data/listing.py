"""ListOffsets: offsets of partitions by time, from a confirmed state (KIP-79, KIP-734)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.data.calls import LogCalls
from pidkeeper.broker_agent.data.codes import NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION
from pidkeeper.broker_agent.data.record_finding import RecordFinder, RecordTime
from pidkeeper.broker_agent.data.segment_reading import GoneError
from pidkeeper.broker_agent.data.topics import Topics, log_of
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.list_offsets import (
    NO_TIMESTAMP,
    ListOffsetsRequest,
    PartitionOffset,
    PartitionTimestamp,
    TopicOffsets,
    is_known_timestamp,
)
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import EARLIEST, LATEST, MAX_TIMESTAMP, FindOffsetsRequest, FoundOffset

MAX_ASKED: Final = 500
"""Logs in one call: at 600 bytes at most, with the name of a segment, they make less than the 512 KiB that an answer
may have."""

MAX_CALLS: Final = 4
"""Calls at a time."""


class OffsetLister:
    """Serves ListOffsets requests."""

    def __init__(self, calls: LogCalls, topics: Topics, finder: RecordFinder) -> None:
        self._calls = calls
        self._topics = topics
        self._finder = finder
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
        found = await self._found(list(logs.values()), committed=committed)
        for index, (code, offset, timestamp) in zip(logs, found, strict=True):
            topic, one = wanted[index]
            # Of the ends of a log Kafka tells no time.
            told = NO_TIMESTAMP if one.timestamp in (LATEST, EARLIEST) else timestamp
            outcomes[index] = PartitionOffset(one.partition, code, told, offset)
            if code == UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.forget(topic)
        return [outcomes[index] for index in range(len(wanted))]

    async def _found(self, logs: list[tuple[int, int]], *, committed: bool) -> list[tuple[int, int, int]]:
        """For each log and time Kafka's code, the offset and the time there."""
        found = await self._ask(logs, committed=committed)
        records = await asyncio.gather(*(self._record(*one, confirmed=False) for one in zip(logs, found, strict=True)))
        gone = [index for index, one in enumerate(records) if one is None]
        if gone:
            again = await self._ask([logs[index] for index in gone], committed=committed)
            asked = zip([logs[index] for index in gone], again, strict=True)
            anew = await asyncio.gather(*(self._record(*one, confirmed=True) for one in asked))
            for index, answer, record in zip(gone, again, anew, strict=True):
                found[index], records[index] = answer, record
        return [
            (one.error_code, *(record or RecordTime(one.offset, one.timestamp)))
            for (one, _), record in zip(found, records, strict=True)
        ]

    async def _record(
        self, log: tuple[int, int], answer: tuple[FoundOffset, Sequence[str]], *, confirmed: bool
    ) -> RecordTime | None:
        """The very record in what the quorum found. None if it is gone from there, unless `confirmed`."""
        found, objects = answer
        told = RecordTime(found.offset, found.timestamp)
        timestamp = found.timestamp if log[1] == MAX_TIMESTAMP else log[1]
        try:
            return await self._finder.find(objects, found, timestamp, confirmed=confirmed) or told
        except GoneError:
            return None

    async def _ask(self, logs: list[tuple[int, int]], *, committed: bool) -> list[tuple[FoundOffset, Sequence[str]]]:
        """The answer for each log, with the names that its index leads to."""
        found: list[tuple[FoundOffset, Sequence[str]]] = []
        for start in range(0, len(logs), MAX_ASKED):
            part = logs[start : start + MAX_ASKED]
            try:
                async with self._room:
                    answer = await self._calls.find_offsets(FindOffsetsRequest(part, committed))
            except RequestError:
                found += [(FoundOffset(NOT_LEADER_OR_FOLLOWER, -1, -1), ())] * len(part)
            else:
                found += [(one, answer.objects) for one in answer.offsets]
        return found
