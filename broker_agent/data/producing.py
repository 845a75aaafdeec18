"""Produce: from the batches of a request to the answer for each partition (KIP-98).

What was answered without an error is in the store, and in its log, on a majority of the quorum: with every value of
acks alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.data.batches import NewBatch, checked_batch
from pidkeeper.broker_agent.data.calls import Registration
from pidkeeper.broker_agent.data.codes import (
    INVALID_REQUIRED_ACKS,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.gathering import Gatherer
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topic_turns import TopicTurns
from pidkeeper.broker_agent.data.topics import Topics, log_of
from pidkeeper.broker_agent.kafka.wire.data.produce import PartitionAppend, ProduceRequest, TopicAppend
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchError
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import TopicDescription

MAX_SECONDS: Final = 30.0
"""Kafka's default of producers' `request.timeout.ms`; a request that asks for more has no more."""

LEAST_SECONDS: Final = 1.0
"""A producer with acks 1 may send a timeout of 0, for in Kafka it waits for nothing."""

_ACKS: Final = (-1, 0, 1)


class _Wanted(NamedTuple):
    """One partition of a request, in its order."""

    topic: str
    partition: int
    records: memoryview | None


class Producer:
    """Serves Produce requests."""

    def __init__(
        self,
        settings: DataSettings,
        session: Registration,
        topics: Topics,
        gatherer: Gatherer,
        counters: Counters,
    ) -> None:
        self._max_bytes = settings.max_message_bytes
        self._session = session
        self._topics = topics
        self._gatherer = gatherer
        self._counters = counters
        self._turns = TopicTurns()

    async def produce(self, request: ProduceRequest, caller: Caller) -> list[TopicAppend]:
        """The outcome for each partition, when all are known, or the time of the request is up."""
        self._counters.produce_requests += 1
        wanted = [
            _Wanted(topic.topic, one.partition, one.records) for topic in request.topics for one in topic.partitions
        ]
        if request.acks not in _ACKS:
            return _answer(request, [PartitionAppend(one.partition, INVALID_REQUIRED_ACKS) for one in wanted])
        if request.transactional_id is not None and not caller.may_use(request.transactional_id):
            code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _answer(request, [PartitionAppend(one.partition, code) for one in wanted])
        if self._session.store_epoch is None:
            # Another agent may have the store; clients look for it, and come again.
            return _answer(request, [PartitionAppend(one.partition, NOT_LEADER_OR_FOLLOWER) for one in wanted])
        seconds = min(max(request.timeout_ms / 1000, LEAST_SECONDS), MAX_SECONDS)
        deadline = asyncio.get_running_loop().time() + seconds
        transactional = request.transactional_id is not None
        return _answer(request, await self._append(wanted, deadline, transactional=transactional))

    async def _append(
        self, wanted: Sequence[_Wanted], deadline: float, *, transactional: bool
    ) -> list[PartitionAppend]:
        """The outcome of each. Requests join the queue in the order in which they came, topic by topic."""
        names = {one.topic for one in wanted}
        size = sum(len(one.records or b"") for one in wanted)
        room = self._gatherer.room
        try:
            async with asyncio.timeout_at(deadline), self._turns.turn(names):
                topics = await self._topics.find(names)
                await room.take(size)
                kept = 0
                try:
                    outcomes, batches = self._check(wanted, topics, transactional=transactional)
                    kept = sum(len(batch.data) for batch in batches.values())
                finally:
                    room.give_back(size - kept)
                pending = self._gatherer.append(list(batches.values()), deadline) if batches else None
        except (RequestError, TimeoutError):
            return [PartitionAppend(one.partition, REQUEST_TIMED_OUT) for one in wanted]
        if pending is not None:
            for index, outcome in zip(batches, await self._gatherer.outcomes(pending), strict=True):
                outcomes[index] = self._outcome(wanted[index], outcome)
        return [outcomes[index] for index in range(len(wanted))]

    def _check(
        self, wanted: Sequence[_Wanted], topics: dict[str, TopicDescription], *, transactional: bool
    ) -> tuple[dict[int, PartitionAppend], dict[int, NewBatch]]:
        """By their index in `wanted`: what is refused, and the batches of the others."""
        refused: dict[int, PartitionAppend] = {}
        batches: dict[int, NewBatch] = {}
        for index, one in enumerate(wanted):
            log = log_of(topics.get(one.topic), one.partition)
            if log is None:
                refused[index] = PartitionAppend(one.partition, UNKNOWN_TOPIC_OR_PARTITION)
                continue
            try:
                batch = checked_batch(one.records, log, max_bytes=self._max_bytes, transactional=transactional)
            except BatchError as error:
                refused[index] = PartitionAppend(one.partition, error.error_code, error_message=str(error))
                continue
            batches[index] = batch
            self._counters.batches_in += 1
            self._counters.bytes_in += len(batch.data)
        self._counters.refused_batches += len(refused)
        return refused, batches

    def _outcome(self, one: _Wanted, outcome: int) -> PartitionAppend:
        if outcome >= 0:
            return PartitionAppend(one.partition, base_offset=outcome)
        self._counters.refused_batches += 1
        if outcome == -UNKNOWN_TOPIC_OR_PARTITION:
            self._topics.forget(one.topic)
        return PartitionAppend(one.partition, -outcome)


def _answer(request: ProduceRequest, outcomes: Sequence[PartitionAppend]) -> list[TopicAppend]:
    """The outcomes, in the order of the request's partitions, topic by topic."""
    rest = iter(outcomes)
    return [TopicAppend(topic.topic, [next(rest) for _ in topic.partitions]) for topic in request.topics]
