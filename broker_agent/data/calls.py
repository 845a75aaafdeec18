"""What the data plane takes from the rest of the agent: the controllers' calls, and the registration in force."""

from __future__ import annotations

import uuid
from typing import Protocol

from pidkeeper.protocol.log_messages import (
    CommitObjectRequest,
    CommitObjectResponse,
    CreateTopicRequest,
    DeleteTopicRequest,
    DeleteTopicResponse,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FindTopicsRequest,
    ReadLogsRequest,
    ReadLogsResponse,
    TopicDescription,
    TopicsPage,
    WatchLogsRequest,
    WatchLogsResponse,
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


class LogCalls(Protocol):
    """The calls about topics and partition logs. `ControllerClient` has them; each raises RequestError."""

    async def commit_object(self, request: CommitObjectRequest) -> CommitObjectResponse: ...
    async def read_logs(self, request: ReadLogsRequest) -> ReadLogsResponse: ...
    async def watch_logs(self, request: WatchLogsRequest) -> WatchLogsResponse: ...
    async def find_offsets(self, request: FindOffsetsRequest) -> FindOffsetsResponse: ...
    async def create_topic(self, request: CreateTopicRequest) -> TopicDescription: ...
    async def delete_topic(self, request: DeleteTopicRequest) -> DeleteTopicResponse: ...
    async def find_topics(self, request: FindTopicsRequest) -> TopicsPage: ...
    async def topics(self, after: str, limit: int) -> TopicsPage: ...
    async def find_rolls(self, request: FindRollsRequest) -> FindRollsResponse: ...
    async def commit_segment(self, request: CommitSegmentRequest) -> CommitSegmentResponse: ...
    async def delete_records(self, request: DeleteRecordsRequest) -> DeleteRecordsResponse: ...
    async def find_garbage(self, request: FindGarbageRequest) -> FindGarbageResponse: ...
    async def objects_deleted(self, request: ObjectsDeletedRequest) -> ObjectsDeletedResponse: ...
    async def check_objects(self, request: CheckObjectsRequest) -> CheckObjectsResponse: ...
    async def kept_objects(self, after: int, limit: int) -> KeptObjectsPage: ...


class Registration(Protocol):
    """Under which name objects are put. `Session` is one; the epoch and the founding are None before the first.

    `store_epoch`: the epoch under which the quorum was last told of the store, None before it ever was: only then is it
    known to be the cluster's. It takes no objects under another epoch. `metadata_version`: the quorum's, as far as was
    heard.
    """

    broker_id: int
    broker_epoch: int | None
    metadata_version: int
    founding_id: uuid.UUID | None

    @property
    def store_epoch(self) -> int | None: ...

    def doubt_epoch(self, epoch: int) -> None: ...
