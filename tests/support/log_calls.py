"""The calls about partition logs, as they come by HTTP, at a leader in memory."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.log_messages import (
    CommitObjectRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    FindOffsetsRequest,
    FindTopicsRequest,
    ReadLogsRequest,
    WatchLogsRequest,
)
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CommitSegmentRequest,
    DeleteRecordsRequest,
    FindGarbageRequest,
    FindRollsRequest,
    ObjectsDeletedRequest,
)
from tests.support.log_leader import LogLeader

CALLS: Final[dict[str, tuple[str, type[msgspec.Struct]]]] = {
    "/v1/objects/commit": ("commit_object", CommitObjectRequest),
    "/v1/logs/read": ("read_logs", ReadLogsRequest),
    "/v1/logs/watch": ("watch_logs", WatchLogsRequest),
    "/v1/logs/offsets": ("find_offsets", FindOffsetsRequest),
    "/v1/logs/rolls": ("find_rolls", FindRollsRequest),
    "/v1/logs/delete-records": ("delete_records", DeleteRecordsRequest),
    "/v1/segments/commit": ("commit_segment", CommitSegmentRequest),
    "/v1/objects/garbage": ("find_garbage", FindGarbageRequest),
    "/v1/objects/deleted": ("objects_deleted", ObjectsDeletedRequest),
    "/v1/objects/check": ("check_objects", CheckObjectsRequest),
    "/v1/topics/create": ("create_topic", CreateTopicRequest),
    "/v1/topics/delete": ("delete_topic", DeleteTopicRequest),
    "/v1/topics/find": ("find_topics", FindTopicsRequest),
}


async def call_log_leader(leader: LogLeader, request: web.Request) -> bytes:
    """The answer to one request. Raises RequestError."""
    if request.method == "GET":
        after, limit = request.query["after"], int(request.query["limit"])
        if request.path == "/v1/objects":
            return msgspec.json.encode(await leader.kept_objects(int(after), limit))
        return msgspec.json.encode(await leader.topics(after, limit))
    name, kind = CALLS[request.path]
    try:
        asked = msgspec.json.decode(await request.read(), type=kind)
    except msgspec.DecodeError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from None
    answer: Any = await getattr(leader, name)(asked)
    return msgspec.json.encode(answer)
