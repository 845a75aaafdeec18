"""Produce: from the batches of a request to the answer for each partition (KIP-98).

What was answered without an error is in the store, and in its log, on a majority of the quorum: with every value of
acks alike.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

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
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    PartitionAppend,
    PartitionRecords,
    ProduceRequest,
    TopicAppend,
    TopicRecords,
)
from pidkeeper.broker_agent.kafka.wire.data.record_batch import BatchError
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import TopicDescription
from pidkeeper.protocol.metadata_version import TRANSACTION_EPOCHS

MAX_SECONDS: Final = 30.0
"""Kafka's default of producers' `request.timeout.ms`; a request that asks for more has no more."""

LEAST_SECONDS: Final = 1.0
"""A producer with acks 1 may send a timeout of 0, for in Kafka it waits for nothing."""

_ACKS: Final = (-1, 0, 1)

Told = Callable[[list[TopicAppend] | None], None]


_UNSETTLED: Final = PartitionAppend(-1, REQUEST_TIMED_OUT)
"""In the place of an outcome that is not known yet."""


class _Append(msgspec.Struct, frozen=True):
    """A request that goes on. `wanted`: its partitions with their topics, in its order; `size`: bytes of its batches;
    `deadline`: by the loop's clock."""

    request: ProduceRequest
    wanted: Sequence[tuple[str, PartitionRecords]]
    size: int
    deadline: float
    told: Told


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
        self._waiting: set[asyncio.Task[None]] = set()

    def begin(self, request: ProduceRequest, caller: Caller, told: Told) -> None:
        """Have the request's batches join their logs. They queue in the order in which this is called, topic by topic.

        `told` is called once, in a later turn of the event loop: with the outcome for each partition once all are known
        or the time of the request is up; with None if something broke, which is reported.
        """
        self._counters.produce_requests += 1
        loop = asyncio.get_running_loop()
        if (code := self._refusal(request, caller)) is not None:
            loop.call_soon(told, _refused(request, code))
            return
        wanted: list[tuple[str, PartitionRecords]] = []
        size = 0
        for topic in request.topics:
            for one in topic.partitions:
                wanted.append((topic.topic, one))
                size += len(one.records or b"")
        now = loop.time()
        seconds = min(max(request.timeout_ms / 1000, LEAST_SECONDS), MAX_SECONDS)
        append = _Append(request, wanted, size, now + seconds, told)
        topics = self._known(request.topics, now)
        if topics is not None and self._turns.are_free(topics) and self._gatherer.room.take_now(size):
            self._queue(append, topics, now)
            return
        # Those behind it wait for the turn that it has from now on, not from when its task begins.
        names = {one.topic for one in request.topics}
        task = loop.create_task(self._queue_later(append, names, self._turns.turn(names)))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def produce(self, request: ProduceRequest, caller: Caller) -> list[TopicAppend]:
        """As `begin`. Raises RuntimeError where that tells None."""
        found: asyncio.Future[list[TopicAppend] | None] = asyncio.get_running_loop().create_future()
        self.begin(request, caller, lambda outcomes: None if found.done() else found.set_result(outcomes))
        if (outcomes := await found) is None:
            raise RuntimeError("the request failed: what broke was reported")
        return outcomes

    async def stop(self) -> None:
        """Give up on what has not joined the queue."""
        tasks = tuple(self._waiting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _queue_later(
        self, append: _Append, names: set[str], turn: contextlib.AbstractAsyncContextManager[None]
    ) -> None:
        """Queue it once its topics are known and there is room, behind those that came before."""
        try:
            async with asyncio.timeout_at(append.deadline), turn:
                topics = await self._topics.find(names)
                await self._gatherer.room.take(append.size)
                self._queue(append, topics, asyncio.get_running_loop().time())
        except (RequestError, TimeoutError):
            self._counters.refused_batches[REQUEST_TIMED_OUT] += len(append.wanted)
            append.told(_refused(append.request, REQUEST_TIMED_OUT))
        except Exception as error:  # noqa: BLE001 - the edge of a task: whatever broke, the connection must end
            report = {"message": "a Produce request failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(report)
            append.told(None)

    def _known(self, asked: Sequence[TopicRecords], now: float) -> dict[str, TopicDescription] | None:
        """The topics, if all of them are known."""
        topics: dict[str, TopicDescription] = {}
        for one in asked:
            if (topic := self._topics.known(one.topic, now)) is None:
                return None
            topics[one.topic] = topic
        return topics

    def _queue(self, append: _Append, topics: dict[str, TopicDescription], now: float) -> None:
        """Have what is not refused join the queue. All of the request has room."""
        outcomes = [_UNSETTLED] * len(append.wanted)
        batches: dict[int, NewBatch] = {}
        kept = 0
        try:
            kept = self._check(append, topics, outcomes, batches)
        finally:
            if kept < append.size:
                self._gatherer.room.give_back(append.size - kept)

        def answer(found: Sequence[int]) -> None:
            for index, offset in zip(batches, found, strict=True):
                topic, one = append.wanted[index]
                if offset < 0:
                    outcomes[index] = self._failed(topic, one.partition, -offset)
                else:
                    outcomes[index] = PartitionAppend(one.partition, base_offset=offset)
            append.told(_answer(append.request, outcomes))

        if batches:
            self._gatherer.append(list(batches.values()), now, append.deadline, answer)
        else:
            asyncio.get_running_loop().call_soon(answer, ())

    def _check(
        self,
        append: _Append,
        topics: dict[str, TopicDescription],
        outcomes: list[PartitionAppend],
        batches: dict[int, NewBatch],
    ) -> int:
        """Enter the outcomes of what is refused and, by their index in what is wanted, the batches of all else. Returns
        how many bytes these have."""
        name = append.request.transactional_id
        joining_id = name if append.request.joining else None
        kept = 0
        for index, (topic, one) in enumerate(append.wanted):
            log = log_of(topics.get(topic), one.partition)
            if log is None:
                outcomes[index] = PartitionAppend(one.partition, UNKNOWN_TOPIC_OR_PARTITION)
                self._counters.refused_batches[UNKNOWN_TOPIC_OR_PARTITION] += 1
                continue
            try:
                batch = checked_batch(
                    one.records,
                    log,
                    max_bytes=self._max_bytes,
                    transactional=name is not None,
                    joining_id=joining_id,
                )
            except BatchError as error:
                outcomes[index] = PartitionAppend(one.partition, error.error_code, error_message=str(error))
                self._counters.refused_batches[error.error_code] += 1
                continue
            batches[index] = batch
            kept += len(batch.data)
        self._counters.batches_in += len(batches)
        self._counters.bytes_in += kept
        return kept

    def _failed(self, topic: str, partition: int, code: int) -> PartitionAppend:
        self._counters.refused_batches[code] += 1
        if code == UNKNOWN_TOPIC_OR_PARTITION:
            self._topics.forget(topic)
        return PartitionAppend(partition, code)

    def _refusal(self, request: ProduceRequest, caller: Caller) -> int | None:
        """The code for every partition of a request that goes no further."""
        if request.acks not in _ACKS:
            return INVALID_REQUIRED_ACKS
        if request.transactional_id is not None:
            if not caller.may_use(request.transactional_id):
                return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            if request.joining and self._session.metadata_version < TRANSACTION_EPOCHS:
                return NOT_LEADER_OR_FOLLOWER
        # Another agent may have the store; clients look for it, and come again.
        return NOT_LEADER_OR_FOLLOWER if self._session.store_epoch is None else None


def _refused(request: ProduceRequest, code: int) -> list[TopicAppend]:
    """The same outcome for every partition."""
    return [
        TopicAppend(topic.topic, [PartitionAppend(one.partition, code) for one in topic.partitions])
        for topic in request.topics
    ]


def _answer(request: ProduceRequest, outcomes: Sequence[PartitionAppend]) -> list[TopicAppend]:
    """The outcomes, in the order of the request's partitions, topic by topic."""
    if len(request.topics) == 1:
        return [TopicAppend(request.topics[0].topic, outcomes)]
    rest = iter(outcomes)
    return [TopicAppend(topic.topic, [next(rest) for _ in topic.partitions]) for topic in request.topics]
