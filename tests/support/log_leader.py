"""The quorum's leader as far as partition logs go, in memory: the real state and its decisions, without consensus."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pidkeeper.controller.node.log_views import find_offsets, find_topics, read_logs, topics_page
from pidkeeper.controller.node.log_watch import LogWatch
from pidkeeper.controller.node.segment_views import check_objects, due_logs, garbage, kept_objects
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.log_messages import (
    MAX_NAMED_TOPICS,
    MAX_READ_BATCHES,
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FindTopicsRequest,
    ReadLog,
    ReadLogsRequest,
    ReadLogsResponse,
    TopicDescription,
    TopicsPage,
    WatchLogsRequest,
    WatchLogsResponse,
)
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    LeaderChangeRecord,
    ProducerIdFloorRecord,
    Record,
    decode_batch,
    encode_batch,
)
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    CommitSegmentRequest,
    CommitSegmentResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FindGarbageRequest,
    FindGarbageResponse,
    FindRollsRequest,
    FindRollsResponse,
    KeptObjectsPage,
    ObjectsDeletedRequest,
    ObjectsDeletedResponse,
)
from pidkeeper.protocol.transactions import TopicPartitions

FOUNDING: Final = uuid.UUID(int=42)
STORE: Final = uuid.UUID(int=43)
CLUSTER_ID: Final = "stub-cluster"
NOW: Final = 1_700_000_000_000
FIRST_EPOCH: Final = 5
"""Of the broker that registers first."""

GIVEN: Final = 1_000_000
"""Producer IDs below it were given to somebody."""

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class LogLeader:
    """Each call has the name that it has in `ControllerClient`, and raises RequestError.

    `faults`: by call, what befalls the next ones: each is called with the request before it is carried out, and may
    raise, wait, or say that the answer is `lost` by returning True. `edits`: by call, what is done to every answer:
    called with the request and the answer. `calls`: what was asked, in order. `commits`: the objects that were
    committed, in order, without those that were asked for again. `segment_bytes`: how large segments shall become.
    """

    def __init__(self) -> None:
        self.machine = StateMachine(CLUSTER_ID)
        self.calls: list[tuple[str, Any]] = []
        self.commits: list[CommitObjectRequest] = []
        self.faults: dict[str, deque[Callable[[Any], Any]]] = {}
        self.edits: dict[str, Callable[[Any, Any], None]] = {}
        self.segment_bytes = 8 << 20
        self._watch = LogWatch()
        history: list[Record] = [
            FeatureLevelRecord(LATEST),
            FoundingRecord(FOUNDING, DEFAULT_BLOCK_SIZE, False, 0),
            ProducerIdFloorRecord(GIVEN, 0),
        ]
        self._replay([*history, *(LeaderChangeRecord(1) for _ in range(len(history), FIRST_EPOCH))])

    # What a test does to it, and asks of it.

    def decide(self, request: requests.Request) -> Any:
        """Decide one request and replay it, as all members do. Raises RequestError."""
        draft = Draft(self.machine, NOW)
        answer = decide(draft, request)
        self._replay(draft.records)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def register(self, broker_id: int = 7) -> int:
        """A new process of a broker, with the cluster's store: its epoch."""
        epoch: int = self.decide(requests.RegisterBroker(broker_id, str(uuid.uuid4()), store_id=STORE)).broker_epoch
        return epoch

    def add_topic(self, name: str, partitions: int = 1) -> TopicDescription:
        """An operator creates a topic."""
        made: TopicDescription = self.decide(
            requests.CreateTopic(uuid.uuid4(), name, partitions, -1, -1, None, validate_only=False)
        )
        return made

    def drop_topic(self, name: str) -> None:
        """An operator deletes a topic."""
        self.decide(requests.DeleteTopic(name, None, None))

    def topic(self, name: str) -> TopicDescription:
        """A topic that there is."""
        (found,) = find_topics(self.machine.logs, [name]).topics
        return found

    def topic_names(self) -> list[str]:
        """Of all topics."""
        return [one.name for one in topics_page(self.machine.logs, "", MAX_NAMED_TOPICS).topics]

    def begin(self, transactional_id: str, topic: str, *partitions: int, broker_id: int = 7) -> tuple[int, int]:
        """A new producer begins a transaction in these partitions: its ID and epoch."""
        broker = self._broker(broker_id)
        pair = self.decide(requests.InitProducerId(*broker, transactional_id, 60_000, -1, -1, -1, may_take_block=True))
        producer = pair.producer_id, pair.producer_epoch
        joined = (TopicPartitions(topic, partitions),)
        self.decide(requests.AddPartitionsToTxn(*broker, transactional_id, *producer, joined))
        return producer

    def end(self, transactional_id: str, *, committed: bool, broker_id: int = 7) -> None:
        """The producer ends its transaction."""
        record = self.machine.transactions.get(transactional_id)
        assert record is not None, f"{transactional_id} is unknown"
        producer = record.producer_id, record.producer_epoch
        self.decide(requests.EndTxn(*self._broker(broker_id), transactional_id, *producer, committed))

    def fault(self, call: str, *faults: Callable[[Any], Any]) -> None:
        """What befalls the next calls of that name."""
        self.faults.setdefault(call, deque()).extend(faults)

    def asked(self, call: str) -> list[Any]:
        """The requests of that call so far."""
        return [request for name, request in self.calls if name == call]

    def places(self, log: int) -> list[tuple[int, str, int, int]]:
        """Of each batch in a log, its base offset, and the object, the position and the size of it there."""
        answer = read_logs(self.machine.logs, ReadLogsRequest([ReadLog(log, 0, 2**31 - 1)]))
        batches = answer.logs[0].batches
        assert len(batches) < MAX_READ_BATCHES, "there may be more than one answer holds"
        return [(one.base_offset, answer.objects[one.object], one.position, one.size) for one in batches]

    # The calls.

    async def commit_object(self, request: CommitObjectRequest) -> CommitObjectResponse:
        return await self._answer("commit_object", request, self._commit)

    async def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse:
        return await self._answer("read_logs", request, lambda asked: read_logs(self.machine.logs, asked))

    async def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse:
        return await self._answer("find_offsets", request, lambda asked: find_offsets(self.machine.logs, asked))

    async def create_topic(self, request: CreateTopicRequest) -> TopicDescription:
        return await self._answer("create_topic", request, self._create)

    async def delete_topic(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        return await self._answer("delete_topic", request, self._delete)

    async def find_topics(self, request: FindTopicsRequest) -> TopicsPage:
        return await self._answer("find_topics", request, lambda asked: find_topics(self.machine.logs, asked.names))

    async def topics(self, after: str, limit: int) -> TopicsPage:
        return await self._answer("topics", (after, limit), lambda asked: topics_page(self.machine.logs, *asked))

    async def find_rolls(self, request: FindRollsRequest) -> FindRollsResponse:
        return await self._answer("find_rolls", request, self._find_rolls)

    async def commit_segment(self, request: CommitSegmentRequest) -> CommitSegmentResponse:
        return await self._answer("commit_segment", request, self._commit_segment)

    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        return await self._answer("delete_records", request, self._delete_records)

    async def find_garbage(self, request: FindGarbageRequest) -> FindGarbageResponse:
        return await self._answer("find_garbage", request, self._find_garbage)

    async def objects_deleted(self, request: ObjectsDeletedRequest) -> ObjectsDeletedResponse:
        return await self._answer("objects_deleted", request, self._objects_deleted)

    async def check_objects(self, request: CheckObjectsRequest) -> CheckObjectsResponse:
        return await self._answer("check_objects", request, lambda asked: check_objects(self.machine, asked))

    async def kept_objects(self, after: int, limit: int) -> KeptObjectsPage:
        return await self._answer("kept_objects", (after, limit), lambda asked: kept_objects(self.machine, *asked))

    async def watch_logs(self, request: WatchLogsRequest) -> WatchLogsResponse:
        answer: asyncio.Future[WatchLogsResponse] = asyncio.get_running_loop().create_future()
        await self._answer("watch_logs", request, lambda asked: self._watch.add(self.machine.logs, asked.logs, answer))
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                return await answer
        except TimeoutError:
            return WatchLogsResponse([])
        finally:
            self._watch.remove(answer)

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
        if lost is True:
            raise RequestError(ErrorCode.REQUEST_TIMED_OUT, "the answer was lost")
        if call in self.edits:
            self.edits[call](request, answer)
        return answer

    def _commit(self, request: CommitObjectRequest) -> CommitObjectResponse:
        before = self.machine.next_offset
        name = ObjectId(request.broker_id, request.broker_epoch, request.number)
        answer: CommitObjectResponse = self.decide(
            requests.CommitObject(name, request.founding_id, request.size, request.batches)
        )
        if self.machine.next_offset > before:
            self.commits.append(request)
        return answer

    def _find_rolls(self, request: FindRollsRequest) -> FindRollsResponse:
        """All logs with rows that are decided, as if each was due."""
        logs = self.machine.logs
        known = ((number, logs.log(number)) for number in logs.numbers())
        due = [number for number, log in known if log is not None and log.last_stable > log.tail_start]
        return due_logs(logs, due[: request.limit], self.segment_bytes)

    def _commit_segment(self, request: CommitSegmentRequest) -> CommitSegmentResponse:
        answer: CommitSegmentResponse = self.decide(
            requests.CommitSegment(
                ObjectId(request.broker_id, request.broker_epoch, request.number),
                request.founding_id,
                request.log,
                request.name,
                request.end_offset,
                request.size,
                request.index_size,
                request.max_timestamp,
                request.replaces,
            )
        )
        return answer

    def _delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        answer: DeleteRecordsResponse = self.decide(
            requests.DeleteRecords((request.broker_id, request.broker_epoch), request.logs)
        )
        return answer

    def _find_garbage(self, request: FindGarbageRequest) -> FindGarbageResponse:
        """As if all of it had been garbage for long."""
        return garbage(self.machine, request.limit, self.machine.logs.objects.became_garbage)

    def _objects_deleted(self, request: ObjectsDeletedRequest) -> ObjectsDeletedResponse:
        answer: ObjectsDeletedResponse = self.decide(
            requests.ObjectsDeleted((request.broker_id, request.broker_epoch), request.keys)
        )
        return answer

    def _create(self, request: CreateTopicRequest) -> TopicDescription:
        wanted = request.topic_id, request.name, request.partitions, request.retention_ms, request.retention_bytes
        made: TopicDescription = self.decide(
            requests.CreateTopic(*wanted, _asker(request), validate_only=request.validate_only)
        )
        return made

    def _delete(self, request: DeleteTopicRequest) -> DeleteTopicResponse:
        gone: DeleteTopicResponse = self.decide(requests.DeleteTopic(request.name, request.topic_id, _asker(request)))
        return gone

    def _broker(self, broker_id: int) -> tuple[int, int]:
        registration = self.machine.brokers.get(broker_id)
        assert registration is not None, f"broker {broker_id} is not registered"
        return broker_id, registration.broker_epoch

    def _replay(self, records: list[Record]) -> None:
        if records:
            self.machine.replay(decode_batch(encode_batch(records)))
            self._watch.applied(self.machine.logs)


def _asker(request: CreateTopicRequest | DeleteTopicRequest) -> tuple[int, int]:
    """The agent that asks, which has to say so."""
    if request.broker_id is None or request.broker_epoch is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, "broker_id and broker_epoch are missing")
    return request.broker_id, request.broker_epoch
