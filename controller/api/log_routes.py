"""The rows of the route table about topics, partition logs, segments and the store's objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from pidkeeper.controller.api.log_operations import LogOperations
from pidkeeper.controller.api.models import ObjectsQuery, TopicPartitionsQuery, TopicQuery, TopicsQuery
from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.api.refusals import PROPOSAL, SESSION
from pidkeeper.controller.api.segment_operations import SegmentOperations
from pidkeeper.protocol.errors import ErrorCode
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
    TopicPartitionsPage,
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
    ReleaseCollectionRequest,
    ReleaseCollectionResponse,
)
from pidkeeper.service.access import Access
from pidkeeper.service.call import Call
from pidkeeper.service.routes import Route

_TOPIC: Final = (*PROPOSAL, ErrorCode.UNSUPPORTED_VERSION)
_NEW_TOPIC: Final = (
    *_TOPIC,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS,
)
_READ: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _on_logs(
    method: Callable[[LogOperations, Call[Any, Any, Any]], Awaitable[Any]],
) -> Callable[[Operations, Call[Any, Any, Any]], Awaitable[Any]]:
    return lambda operations, call: method(operations.logs, call)


def _on_segments(
    method: Callable[[SegmentOperations, Call[Any, Any, Any]], Awaitable[Any]],
) -> Callable[[Operations, Call[Any, Any, Any]], Awaitable[Any]]:
    return lambda operations, call: method(operations.segments, call)


LOG_ROUTES: Final[tuple[Route[Operations], ...]] = (
    Route(
        method="POST",
        path="/v1/objects/commit",
        name="commit_object",
        summary="Let the record batches of an object in the store join their partition logs.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.commit),
        request=CommitObjectRequest,
        response=CommitObjectResponse,
        errors=(*SESSION, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.STORE_REFUSED, ErrorCode.FOUNDING_UNDER_WAY),
    ),
    Route(
        method="POST",
        path="/v1/logs/read",
        name="read_logs",
        summary="Tell where the batches of some partition logs are, from an offset of each on.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.read),
        request=ReadLogsRequest,
        response=ReadLogsResponse,
        errors=(*_READ, ErrorCode.REQUEST_TIMED_OUT),
    ),
    Route(
        method="POST",
        path="/v1/logs/watch",
        name="watch_logs",
        summary="Wait until one of some partition logs goes on.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.watch),
        request=WatchLogsRequest,
        response=WatchLogsResponse,
        errors=_READ,
    ),
    Route(
        method="POST",
        path="/v1/logs/offsets",
        name="find_offsets",
        summary="Find offsets of partition logs by time: the first, the next, or those of records.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.offsets),
        request=FindOffsetsRequest,
        response=FindOffsetsResponse,
        errors=(*_READ, ErrorCode.REQUEST_TIMED_OUT),
    ),
    Route(
        method="GET",
        path="/v1/topics",
        name="list_topics",
        summary="List the topics in order of their names, page by page.",
        access=Access.VIEWER,
        handler=_on_logs(LogOperations.topics),
        query_model=TopicsQuery,
        query_texts=frozenset({"after"}),
        response=TopicsPage,
        errors=(ErrorCode.NOT_CONTROLLER,),
    ),
    Route(
        method="GET",
        path="/v1/topics/describe",
        name="describe_topic",
        summary="Describe a topic and its partitions: log, offsets, bytes and batches, page by page.",
        access=Access.VIEWER,
        handler=_on_logs(LogOperations.describe_topic),
        query_model=TopicPartitionsQuery,
        query_texts=frozenset({"name"}),
        response=TopicPartitionsPage,
        errors=(ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
    Route(
        method="POST",
        path="/v1/topics/find",
        name="find_topics",
        summary="Find topics by name.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.find_topics),
        request=FindTopicsRequest,
        response=TopicsPage,
        errors=_READ,
    ),
    Route(
        method="POST",
        path="/v1/topics/create",
        name="create_topic",
        summary="Create a topic for a client of a broker.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.create_topic),
        request=CreateTopicRequest,
        response=TopicDescription,
        errors=(*_NEW_TOPIC, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ),
    Route(
        method="POST",
        path="/v1/topics/delete",
        name="delete_topic",
        summary="Delete a topic for a client of a broker, with all that it holds.",
        access=Access.BROKER,
        handler=_on_logs(LogOperations.delete_topic),
        request=DeleteTopicRequest,
        response=DeleteTopicResponse,
        errors=(*SESSION, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
    Route(
        method="POST",
        path="/v1/topics",
        name="order_topic",
        summary="Create a topic.",
        access=Access.OPERATOR,
        handler=_on_logs(LogOperations.order_topic),
        request=CreateTopicRequest,
        response=TopicDescription,
        errors=_NEW_TOPIC,
    ),
    Route(
        method="DELETE",
        path="/v1/topics",
        name="remove_topic",
        summary="Delete a topic, with all that it holds.",
        access=Access.OPERATOR,
        handler=_on_logs(LogOperations.remove_topic),
        query_model=TopicQuery,
        query_texts=frozenset({"name", "topic_id"}),
        response=DeleteTopicResponse,
        errors=(*_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
    Route(
        method="POST",
        path="/v1/segments/commit",
        name="commit_segment",
        summary="Let a segment in the store take the place of a part of its partition log.",
        access=Access.BROKER,
        handler=_on_segments(SegmentOperations.commit),
        request=CommitSegmentRequest,
        response=CommitSegmentResponse,
        errors=(*SESSION, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.STORE_REFUSED, ErrorCode.FOUNDING_UNDER_WAY),
    ),
    Route(
        method="POST",
        path="/v1/logs/rolls",
        name="find_rolls",
        summary="List partition logs whose tails are to be rolled into segments.",
        access=Access.BROKER,
        handler=_on_segments(SegmentOperations.rolls),
        request=FindRollsRequest,
        response=FindRollsResponse,
        errors=_READ,
    ),
    Route(
        method="POST",
        path="/v1/logs/delete-records",
        name="delete_records",
        summary="Drop what lies below an offset of partition logs (KIP-107).",
        access=Access.BROKER,
        handler=_on_segments(SegmentOperations.delete_records),
        request=DeleteRecordsRequest,
        response=DeleteRecordsResponse,
        errors=(*SESSION, ErrorCode.UNSUPPORTED_VERSION),
    ),
    Route(
        method="POST",
        path="/v1/objects/garbage",
        name="find_garbage",
        summary="List objects of the store that no partition log needs.",
        access=Access.BROKER,
        handler=_on_segments(SegmentOperations.garbage),
        request=FindGarbageRequest,
        response=FindGarbageResponse,
        errors=(*_READ, ErrorCode.REQUEST_TIMED_OUT),
    ),
    Route(
        method="POST",
        path="/v1/objects/deleted",
        name="objects_deleted",
        summary="Tell that objects which no partition log needs are deleted from the store.",
        access=Access.BROKER,
        handler=_on_segments(SegmentOperations.deleted),
        request=ObjectsDeletedRequest,
        response=ObjectsDeletedResponse,
        errors=(*SESSION, ErrorCode.UNSUPPORTED_VERSION),
    ),
    Route(
        method="POST",
        path="/v1/objects/check",
        name="check_objects",
        summary="Tell which of some objects in the store nobody needs, nor ever will.",
        access=Access.BROKER,
        handler=_on_segments(SegmentOperations.check),
        request=CheckObjectsRequest,
        response=CheckObjectsResponse,
        errors=(*_READ, ErrorCode.REQUEST_TIMED_OUT),
    ),
    Route(
        method="GET",
        path="/v1/objects",
        name="list_objects",
        summary="List the objects of the store that the quorum knows, page by page.",
        access=Access.VIEWER,
        handler=_on_segments(SegmentOperations.kept),
        query_model=ObjectsQuery,
        response=KeptObjectsPage,
        errors=(*_READ, ErrorCode.REQUEST_TIMED_OUT),
    ),
    Route(
        method="POST",
        path="/v1/objects/release",
        name="release_collection",
        summary="Have unneeded objects of some foundings deleted from the store.",
        access=Access.OPERATOR,
        handler=_on_segments(SegmentOperations.release),
        request=ReleaseCollectionRequest,
        response=ReleaseCollectionResponse,
        errors=_TOPIC,
    ),
)
