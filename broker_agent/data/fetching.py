"""Fetch: where the quorum says the batches are, and when to answer (KIP-74 for the limits, KIP-98 for transactions)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from pidkeeper.broker_agent.coordinator.caller import Caller
from pidkeeper.broker_agent.data.byte_budget import ByteBudget
from pidkeeper.broker_agent.data.calls import LogCalls, Registration
from pidkeeper.broker_agent.data.codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from pidkeeper.broker_agent.data.counters import Counters
from pidkeeper.broker_agent.data.reading import BatchReader, Reading
from pidkeeper.broker_agent.data.segment_reading import GoneError, PlannedSegment, SegmentReader
from pidkeeper.broker_agent.data.selecting import Part, Selected, assembled, select
from pidkeeper.broker_agent.data.settings import DataSettings
from pidkeeper.broker_agent.data.topics import Topics, log_of
from pidkeeper.broker_agent.data.watching import Watcher
from pidkeeper.broker_agent.kafka.wire.data.fetch import (
    FINAL_EPOCH,
    AbortedTransaction,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
)
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.log_messages import AbortedTransaction as Aborted
from pidkeeper.protocol.log_messages import LogBatches, ReadLog, ReadLogsRequest

MAX_WAIT_SECONDS: Final = 30.0
"""Consumers wait for an answer as long as that by default (Java's `request.timeout.ms`), and ask for half a second."""

HANG_UP_SECONDS: Final = 1.0
"""Between two looks whether a consumer that waits is still there."""

MAX_READ_CALLS: Final = 16
"""Calls for coordinates at a time."""

MAX_ASKED: Final = 500
"""Logs in one call: at 640 bytes at most, with the name of a segment, they make less than the 512 KiB that an answer
may have."""

FIRST_EPOCH: Final = 0
"""The session epoch that asks for a new session (KIP-227); it is answered without one."""

Encode = Callable[[int, Sequence[FetchedTopic]], bytes]
"""The code of the whole request and the outcomes, as an answer."""


class Wanted(NamedTuple):
    """One partition of a request, in its order. `log`: None where there is none such, or that is not `known`."""

    topic: str
    asked: FetchPartition
    log: int | None
    known: bool = True


class Found(NamedTuple):
    """What there is for each partition of a request, and what of it goes into the answer.

    `objects`: the names of those that hold it, to which the indices of batches and segments lead. `segments`: those
    that could be read. `confirmed`: no leader knows more.
    """

    objects: list[str]
    logs: list[LogBatches]
    segments: list[PlannedSegment | None]
    selected: list[Selected]
    confirmed: bool

    @property
    def size(self) -> int:
        """In bytes, of what goes into the answer."""
        return sum(one.size for one in self.selected)

    def suffices(self, min_bytes: int) -> bool:
        """Whether it is answered at once: with enough, an error, or what lies behind the end of the log (as Kafka's
        DelayedFetch has it of segments that are not the last)."""
        return self.size >= min_bytes or any(one.error_code or one.segment is not None for one in self.logs)


class Loaded(NamedTuple):
    """What is answered of one partition. `aborted`: transactions that have something in that."""

    error_code: int
    pieces: list[Buffer]
    aborted: Sequence[Aborted]


class Fetcher:
    """Serves Fetch requests."""

    def __init__(
        self,
        settings: DataSettings,
        calls: LogCalls,
        session: Registration,
        topics: Topics,
        reader: BatchReader,
        segments: SegmentReader,
        watcher: Watcher,
        counters: Counters,
    ) -> None:
        self._calls = calls
        self._session = session
        self._topics = topics
        self._reader = reader
        self._segments = segments
        self._watcher = watcher
        self._counters = counters
        self._max_bytes = settings.max_fetch_bytes
        self.bytes = ByteBudget(settings.fetching_bytes)
        self._room = asyncio.Semaphore(MAX_READ_CALLS)

    async def fetch(self, request: FetchRequest, caller: Caller, encode: Encode) -> bytes:
        """The answer, once `min_bytes` are there, a partition has an error, or the time is up. A caller that has to
        wait is answered without any topic at once, as in Kafka (KIP-219)."""
        self._counters.fetch_requests += 1
        if request.session_epoch not in (FIRST_EPOCH, FINAL_EPOCH):
            return encode(FETCH_SESSION_ID_NOT_FOUND, ())
        if (room := _room(caller)) == 0:
            return encode(NONE, ())
        request = _within(request, room)
        wanted = await self._resolve(request)
        try:
            return await self._answer(request, wanted, caller, encode, confirmed=False)
        except GoneError:
            return await self._answer(request, wanted, caller, encode, confirmed=True)

    async def _answer(
        self, request: FetchRequest, wanted: Sequence[Wanted], caller: Caller, encode: Encode, *, confirmed: bool
    ) -> bytes:
        """Raises GoneError unless `confirmed`."""
        found = await self._wait(request, wanted, caller, confirmed=confirmed)
        if caller.meter is not None and not caller.meter.fetched(found.size):
            return encode(NONE, ())
        size = min(found.size, self.bytes.capacity)
        await self.bytes.take(size)
        try:
            outcomes = await self._load(request, wanted, found)
            answer = encode(NONE, _by_topic(request, outcomes))
        finally:
            self.bytes.give_back(size)
        self._counters.bytes_out += size
        return answer

    async def _wait(self, request: FetchRequest, wanted: Sequence[Wanted], caller: Caller, *, confirmed: bool) -> Found:
        """What there is when it is time to answer."""
        deadline = asyncio.get_running_loop().time() + min(max(request.max_wait_ms / 1000, 0.0), MAX_WAIT_SECONDS)
        while True:
            found = await self._look(request, wanted, confirmed=confirmed)
            if not wanted or found.suffices(request.min_bytes):
                return found
            interests = {one.log: (one.end, one.last_stable) for one in found.logs}
            if not await self._moves(interests, deadline, caller):
                return found

    async def _moves(self, interests: dict[int, tuple[int, int]], deadline: float, caller: Caller) -> bool:
        """Whether one of the logs goes on before the deadline, and while the consumer stays."""
        loop = asyncio.get_running_loop()
        while (left := deadline - loop.time()) > 0 and not caller.has_hung_up():
            if await self._watcher.wait(interests, min(left, HANG_UP_SECONDS)):
                return True
        return False

    async def _resolve(self, request: FetchRequest) -> list[Wanted]:
        names = [topic.topic for topic in request.topics]
        # Partitions are answered as those that nobody leads: consumers look for another agent, and ask again.
        unknown = [Wanted(topic.topic, one, None, known=False) for topic in request.topics for one in topic.partitions]
        if self._session.store_epoch is None:
            return unknown
        try:
            topics = await self._topics.find(names)
        except RequestError:
            return unknown
        return [
            Wanted(topic.topic, one, log_of(topics.get(topic.topic), one.partition))
            for topic in request.topics
            for one in topic.partitions
        ]

    async def _look(self, request: FetchRequest, wanted: Sequence[Wanted], *, confirmed: bool) -> Found:
        """What the quorum says of each."""
        objects: list[str] = []
        found = [_unread(one) for one in wanted]
        asked = [index for index, one in enumerate(found) if one.error_code == NONE]
        for start in range(0, len(asked), MAX_ASKED):
            part = asked[start : start + MAX_ASKED]
            await self._read(request, wanted, part, found, objects, confirmed=confirmed)
            # A leader that was deposed may know less than it told this consumer before.
            doubted = [index for index in part if found[index].error_code == OFFSET_OUT_OF_RANGE]
            if doubted and not confirmed:
                await self._read(request, wanted, doubted, found, objects, confirmed=True)
        for one, outcome in zip(wanted, found, strict=True):
            if outcome.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.forget(one.topic)
        rolled = [one.segment for one in found if one.segment is not None]
        plans = iter(await asyncio.gather(*(self._segments.plan(objects, one, confirmed=confirmed) for one in rolled)))
        segments = [None if one.segment is None else next(plans) for one in found]
        parts = [
            Part(one.asked.fetch_offset, one.asked.partition_max_bytes, log, segment and segment.sparse)
            for one, log, segment in zip(wanted, found, segments, strict=True)
        ]
        return Found(objects, found, segments, select(parts, min(request.max_bytes, self._max_bytes)), confirmed)

    async def _read(
        self,
        request: FetchRequest,
        wanted: Sequence[Wanted],
        indices: Sequence[int],
        found: list[LogBatches],
        objects: list[str],
        *,
        confirmed: bool,
    ) -> None:
        """Ask the quorum for those of `indices`, and set them in `found`; their objects join `objects`."""
        logs = []
        for index in indices:
            log, asked = wanted[index].log, wanted[index].asked
            assert log is not None, "what is not there is not read"
            logs.append(ReadLog(log, asked.fetch_offset, max(0, min(asked.partition_max_bytes, self._max_bytes))))
        committed = request.isolation_level is IsolationLevel.READ_COMMITTED
        try:
            async with self._room:
                answer = await self._calls.read_logs(ReadLogsRequest(logs, committed, confirmed))
        except RequestError:
            for index, read in zip(indices, logs, strict=True):
                found[index] = LogBatches(read.log, NOT_LEADER_OR_FOLLOWER)
            return
        for index, outcome in zip(indices, answer.logs, strict=True):
            found[index] = _shifted(outcome, len(objects))
        objects += answer.objects

    async def _load(self, request: FetchRequest, wanted: Sequence[Wanted], found: Found) -> list[FetchedPartition]:
        """The outcome for each partition, with its bytes. Raises GoneError unless what was found is confirmed."""
        batches = [batch for one in found.selected for batch in one.batches]
        reading = await self._reader.read(found.objects, batches, confirmed=found.confirmed)
        indices = [index for index, log in enumerate(found.logs) if log.segment is not None]
        parts = await asyncio.gather(*(self._of_segment(wanted[index].asked, found, index) for index in indices))
        of_segments = dict(zip(indices, parts, strict=True))
        committed = request.isolation_level is IsolationLevel.READ_COMMITTED
        outcomes = []
        for index, (one, log) in enumerate(zip(wanted, found.logs, strict=True)):
            loaded = of_segments.get(index) or _of_tail(one.asked, found, index, reading)
            aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in loaded.aborted]
            outcomes.append(
                FetchedPartition(
                    one.asked.partition,
                    loaded.error_code,
                    log.end,
                    log.last_stable,
                    log.log_start,
                    aborted if committed else None,
                    loaded.pieces,
                )
            )
        return outcomes

    async def _of_segment(self, asked: FetchPartition, found: Found, index: int) -> Loaded:
        segment, span = found.segments[index], found.selected[index].span
        if segment is None:
            return Loaded(KAFKA_STORAGE_ERROR, [], [])
        if span is None:
            return Loaded(NONE, [], [])
        part = await self._segments.part(segment, span, asked.fetch_offset, confirmed=found.confirmed)
        return Loaded(KAFKA_STORAGE_ERROR, [], []) if part is None else Loaded(NONE, [part.records], part.aborted)


def _of_tail(asked: FetchPartition, found: Found, index: int, reading: Reading) -> Loaded:
    """Raises GoneError unless what was found is confirmed."""
    log, chosen = found.logs[index], found.selected[index]
    if log.error_code != NONE:
        return Loaded(log.error_code, [], [])
    code, pieces = assembled(chosen.rows, asked.fetch_offset, reading.found)
    if code != NONE and not found.confirmed and not reading.gone.isdisjoint(chosen.batches):
        raise GoneError(f"batches of log {log.log} are missing")
    return Loaded(code, pieces, log.aborted)


def _room(caller: Caller) -> int | None:
    return None if caller.meter is None else caller.meter.fetch_room()


def _within(request: FetchRequest, room: int | None) -> FetchRequest:
    """The request, for as many bytes as there is room for: it does not wait for more (KAFKA-9677)."""
    if room is None or room >= request.max_bytes:
        return request
    return replace(request, max_bytes=room, min_bytes=min(request.min_bytes, room))


def _shifted(outcome: LogBatches, by: int) -> LogBatches:
    """With the indices of its objects behind those of another answer."""
    if not by:
        return outcome
    segment = outcome.segment
    return replace(
        outcome,
        batches=[replace(one, object=one.object + by) for one in outcome.batches],
        segment=None if segment is None else replace(segment, object=segment.object + by),
    )


def _unread(one: Wanted) -> LogBatches:
    """Its outcome before the quorum was asked, which is the last one if it has an error."""
    if one.log is None:
        return LogBatches(-1, UNKNOWN_TOPIC_OR_PARTITION if one.known else NOT_LEADER_OR_FOLLOWER)
    return LogBatches(one.log, NONE if one.asked.fetch_offset >= 0 else OFFSET_OUT_OF_RANGE)


def _by_topic(request: FetchRequest, outcomes: Sequence[FetchedPartition]) -> list[FetchedTopic]:
    rest = iter(outcomes)
    return [FetchedTopic(topic.topic, [next(rest) for _ in topic.partitions]) for topic in request.topics]
