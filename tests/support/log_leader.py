"""The quorum's leader as far as partition logs go, in memory: what it answers to the calls of `ControllerClient`."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import (
    EARLIEST,
    LATEST,
    MAX_READ_BATCHES,
    MAX_TIMESTAMP,
    AbortedTransaction,
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FindTopicsRequest,
    FoundOffset,
    LogBatches,
    Marker,
    OfferedBatch,
    ReadLog,
    ReadLogsRequest,
    ReadLogsResponse,
    StoredBatch,
    TopicDescription,
    TopicsPage,
    WatchLogsRequest,
    WatchLogsResponse,
)
from pidkeeper.protocol.logs import ObjectId, last_sequence

FOUNDING = uuid.UUID(int=42)
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

UNKNOWN_TOPIC, OUT_OF_RANGE, OUT_OF_ORDER = 3, 1, 45


class MemoryRow(msgspec.Struct):
    """A batch or a marker in a log."""

    offset: int
    records: int
    producer_id: int
    stored: StoredBatch | None = None
    marker: Marker | None = None
    offered: OfferedBatch | None = None


class MemoryLog:
    """One partition's log."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.rows: list[MemoryRow] = []
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.newest: dict[int, deque[tuple[int, int, int]]] = {}

    @property
    def last_stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def refusal(self, batch: OfferedBatch) -> int | None:
        """The offset that a batch was given already, or minus the code of its refusal; None for a new one."""
        if batch.producer_id < 0:
            return None
        newest = self.newest.get(batch.producer_id)
        if newest is None:
            return None if batch.base_sequence == 0 else -OUT_OF_ORDER
        for first, last, offset in newest:
            if (first, last) == (batch.base_sequence, last_sequence(batch.base_sequence, batch.records)):
                return offset
        return None if batch.base_sequence == newest[-1][1] + 1 else -OUT_OF_ORDER

    def append(self, batch: OfferedBatch, stored: StoredBatch) -> int:
        """The offset of a batch that joins."""
        offset = self.end
        self.rows.append(MemoryRow(offset, batch.records, batch.producer_id, stored=stored, offered=batch))
        self.end += batch.records
        if batch.transactional:
            self.open.setdefault(batch.producer_id, offset)
        if batch.producer_id >= 0:
            last = last_sequence(batch.base_sequence, batch.records)
            self.newest.setdefault(batch.producer_id, deque(maxlen=5)).append((batch.base_sequence, last, offset))
        return offset

    def end_transaction(self, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """Append a marker."""
        offset = self.end
        first = self.open.pop(producer_id, offset)
        if not committed:
            self.aborted.append((producer_id, first, offset))
        marker = Marker(offset, producer_id, producer_epoch, committed, 1000)
        self.rows.append(MemoryRow(offset, 1, producer_id, marker=marker))
        self.end += 1


class LogLeader:
    """Each call has the name that it has in `ControllerClient`, and raises RequestError.

    `epochs`: those in force, by broker. `faults`: by call, what befalls the next ones: each is called with the request
    before it is carried out, and may raise, wait, or say that the answer is `lost` by returning True.
    `calls`: what was asked, in order. `commits`: the objects that were committed, in order.
    """

    def __init__(self, epochs: dict[int, int] | None = None) -> None:
        self.epochs = {7: 5} if epochs is None else epochs
        self.described: dict[str, TopicDescription] = {}
        self.logs: dict[int, MemoryLog] = {}
        self.next_log = 0
        self.calls: list[tuple[str, Any]] = []
        self.commits: list[CommitObjectRequest] = []
        self.objects: list[str] = []
        self.answers: dict[int, tuple[CommitObjectRequest, CommitObjectResponse]] = {}
        self.faults: dict[str, deque[Callable[[Any], Any]]] = {}
        self._moved = asyncio.Condition()

    def add_topic(self, name: str, partitions: int = 1) -> TopicDescription:
        """A topic that is there."""
        topic = TopicDescription(uuid.uuid4(), name, partitions, self.next_log, -1, -1)
        self.described[name] = topic
        for log in range(self.next_log, self.next_log + partitions):
            self.logs[log] = MemoryLog()
        self.next_log += partitions
        return topic

    def fault(self, call: str, *faults: Callable[[Any], Any]) -> None:
        """What befalls the next calls of that name."""
        self.faults.setdefault(call, deque()).extend(faults)

    def asked(self, call: str) -> list[Any]:
        """The requests of that call so far."""
        return [request for name, request in self.calls if name == call]

    async def end_transaction(self, log: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """A marker joins a log."""
        self.logs[log].end_transaction(producer_id, producer_epoch, committed=committed)
        await self._tell()

    async def commit_object(self, request: CommitObjectRequest) -> CommitObjectResponse:
        return await self._answer("commit_object", request, self._commit)

    async def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse:
        return await self._answer("read_logs", request, self._read)

    async def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        return await self._answer("find_offsets", request, self._find_offsets)

    async def create_topic(self, request: CreateTopicRequest) -> TopicDescription:
        return await self._answer("create_topic", request, self._create)

    async def delete_topic(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        return await self._answer("delete_topic", request, self._delete)

    async def find_topics(self, request: FindTopicsRequest) -> TopicsPage:
        return await self._answer(
            "find_topics",
            request,
            lambda asked: TopicsPage([self.described[name] for name in asked.names if name in self.described], None),
        )

    async def topics(self, after: str, limit: int) -> TopicsPage:
        names = sorted(name for name in self.described if name > after)
        page = [self.described[name] for name in names[:limit]]
        return await self._answer(
            "topics", (after, limit), lambda _: TopicsPage(page, page[-1].name if len(names) > limit else None)
        )

    async def watch_logs(self, request: WatchLogsRequest) -> WatchLogsResponse:
        await self._answer("watch_logs", request, lambda _: None)
        try:
            async with asyncio.timeout(request.wait_ms / 1000), self._moved:
                await self._moved.wait_for(lambda: self._gone_on(request))
        except TimeoutError:
            pass
        return WatchLogsResponse(self._gone_on(request))

    def _gone_on(self, request: WatchLogsRequest) -> list[int]:
        logs = []
        for watched in request.logs:
            log = self.logs.get(watched.log)
            if log is None or (log.end, log.last_stable) != (watched.end, watched.last_stable):
                logs.append(watched.log)
        return logs

    async def _answer(self, call: str, request: _Request, carry_out: Callable[[_Request], _Response]) -> _Response:
        self.calls.append((call, request))
        faults = self.faults.get(call)
        lost: Any = None
        if faults:
            lost = faults.popleft()(request)
            if asyncio.iscoroutine(lost):
                await lost
        await asyncio.sleep(0)
        answer = carry_out(request)
        await self._tell()
        if lost is True:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "the answer was lost")
        return answer

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    def _check(self, broker_id: int | None, broker_epoch: int | None) -> None:
        if broker_id is not None and self.epochs.get(broker_id) != broker_epoch:
            raise RequestError(ErrorCode.STALE_BROKER_EPOCH, f"epoch {broker_epoch}")

    def _commit(self, request: CommitObjectRequest) -> CommitObjectResponse:
        self._check(request.broker_id, request.broker_epoch)
        key = request.broker_epoch
        before, answer = self.answers.get(key, (None, None))
        if before is not None and answer is not None and request.number <= before.number:
            if request.number < before.number:
                raise RequestError(ErrorCode.INVALID_REQUEST, f"number {request.number} after {before.number}")
            assert request == before, "another object under the same name"
            return answer
        name = ObjectId(request.broker_id, request.broker_epoch, request.number).path(request.founding_id)
        self.objects.append(name)
        outcomes = [self._append(batch) for batch in request.batches]
        referenced = any(
            row.stored is not None and self.objects[row.stored.object] == name
            for log in self.logs.values()
            for row in log.rows[-len(outcomes) :]
        )
        answer = CommitObjectResponse(outcomes, referenced)
        self.answers[key] = request, answer
        self.commits.append(request)
        return answer

    def _append(self, batch: OfferedBatch) -> int:
        log = self.logs.get(batch.log)
        if log is None:
            return -UNKNOWN_TOPIC
        known = log.refusal(batch)
        if known is not None:
            return known
        return log.append(batch, StoredBatch(log.end, len(self.objects) - 1, batch.position, batch.size))

    def _read(self, request: ReadLogsRequest) -> ReadLogsResponse:
        left = MAX_READ_BATCHES
        answers = []
        for one in request.logs:
            answers.append(self._read_one(one, left, committed=request.committed))
            left = max(0, left - len(answers[-1].batches))
        return ReadLogsResponse(answers, list(self.objects))

    def _read_one(self, one: ReadLog, left: int, *, committed: bool) -> LogBatches:
        log = self.logs.get(one.log)
        if log is None:
            return LogBatches(one.log, UNKNOWN_TOPIC)
        offsets = log.start, log.end, log.last_stable
        if not log.start <= one.offset <= log.end:
            return LogBatches(one.log, OUT_OF_RANGE, *offsets)
        end = log.last_stable if committed else log.end
        batches: list[StoredBatch] = []
        markers: list[Marker] = []
        size, first, last = 0, one.offset, one.offset
        for row in log.rows:
            if row.offset + row.records <= one.offset or row.offset >= end:
                continue
            if row.marker is not None:
                markers.append(row.marker)
            elif row.stored is not None:
                if len(batches) >= left or (batches and size + row.stored.size > one.max_bytes):
                    break
                batches.append(row.stored)
                size += row.stored.size
            last = row.offset + row.records
        aborted = [
            AbortedTransaction(producer_id, begin)
            for producer_id, begin, ended in log.aborted
            if committed and begin < last and ended >= first
        ]
        return LogBatches(one.log, 0, *offsets, batches, markers, aborted)

    def _find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        return FindOffsetsResponse([self._find(log, time, committed=request.committed) for log, time in request.logs])

    def _find(self, number: int, timestamp: int, *, committed: bool) -> FoundOffset:
        log = self.logs.get(number)
        if log is None:
            return FoundOffset(UNKNOWN_TOPIC, -1, -1)
        if timestamp == LATEST:
            return FoundOffset(0, log.last_stable if committed else log.end, -1)
        if timestamp == EARLIEST:
            return FoundOffset(0, log.start, -1)
        times = [(row.offered.max_timestamp, row.offset) for row in log.rows if row.offered is not None]
        if timestamp == MAX_TIMESTAMP:
            latest = max(times, default=(-1, -1))
            return FoundOffset(0, latest[1], latest[0])
        found = next(((time, offset) for time, offset in times if time >= timestamp), (-1, -1))
        return FoundOffset(0, found[1], found[0])

    def _create(self, request: CreateTopicRequest) -> TopicDescription:
        self._check(request.broker_id, request.broker_epoch)
        if request.name in self.described:
            if self.described[request.name].topic_id == request.topic_id:
                return self.described[request.name]
            raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {request.name}")
        retention = request.retention_ms, request.retention_bytes
        if request.validate_only:
            return TopicDescription(request.topic_id, request.name, request.partitions, self.next_log, *retention)
        made = self.add_topic(request.name, request.partitions)
        topic = TopicDescription(request.topic_id, made.name, made.partitions, made.first_log, *retention)
        self.described[request.name] = topic
        return topic

    def _delete(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        self._check(request.broker_id, request.broker_epoch)
        topic = self.described.get(request.name)
        if topic is None or (request.topic_id is not None and topic.topic_id != request.topic_id):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.name}")
        del self.described[request.name]
        for log in range(topic.first_log, topic.first_log + topic.partitions):
            del self.logs[log]
        return DeleteTopicResponse(topic.topic_id, topic.name)
