"""The rows of the route table about consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from pidkeeper.controller.api.group_operations import GroupOperations
from pidkeeper.controller.api.models import GroupOffsetsQuery, GroupQuery, GroupsQuery
from pidkeeper.controller.api.operations import Operations
from pidkeeper.controller.api.refusals import PROPOSAL, SESSION
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.group_messages import (
    CommitGroupRequest,
    CommitGroupResponse,
    CommitOffsetsRequest,
    CommitOffsetsResponse,
    DeleteGroupRequest,
    DeleteGroupResponse,
    DeleteOffsetsRequest,
    DeleteOffsetsResponse,
    FetchOffsetsRequest,
    FindGroupRequest,
    FindGroupResponse,
    GroupDescription,
    GroupsPage,
    OffsetsPage,
    ResetOffsetsRequest,
)
from pidkeeper.service.access import Access
from pidkeeper.service.call import Call
from pidkeeper.service.routes import Route

_CONFIRMED: Final = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.REQUEST_TIMED_OUT,
)
_COMMIT: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_SIZE: Final = (ErrorCode.INVALID_COMMIT_OFFSET_SIZE,)
_MEMBER: Final = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
_TRANSACTION: Final = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_DELETION: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND)
_SHOWN: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.GROUP_ID_NOT_FOUND)


def _on_groups(
    method: Callable[[GroupOperations, Call[Any, Any, Any]], Awaitable[Any]],
) -> Callable[[Operations, Call[Any, Any, Any]], Awaitable[Any]]:
    return lambda operations, call: method(operations.groups, call)


GROUP_ROUTES: Final[tuple[Route[Operations], ...]] = (
    Route(
        method="POST",
        path="/v1/groups/find",
        name="find_group",
        summary="Find a consumer group: its members, and the version that the next commit has to name.",
        access=Access.BROKER,
        handler=_on_groups(GroupOperations.find),
        request=FindGroupRequest,
        response=FindGroupResponse,
        errors=_CONFIRMED,
    ),
    Route(
        method="POST",
        path="/v1/groups/commit",
        name="commit_group",
        summary="Let a consumer group have other members, if nobody else has gone on with it.",
        access=Access.BROKER,
        handler=_on_groups(GroupOperations.commit),
        request=CommitGroupRequest,
        response=CommitGroupResponse,
        errors=(*SESSION, *_COMMIT, ErrorCode.GROUP_MAX_SIZE_REACHED),
    ),
    Route(
        method="POST",
        path="/v1/groups/offsets/commit",
        name="commit_offsets",
        summary="Commit offsets of a consumer group, at once or with a transaction (KIP-447).",
        access=Access.BROKER,
        handler=_on_groups(GroupOperations.commit_offsets),
        request=CommitOffsetsRequest,
        response=CommitOffsetsResponse,
        errors=(*SESSION, *_COMMIT, *_SIZE, *_MEMBER, *_TRANSACTION),
    ),
    Route(
        method="POST",
        path="/v1/groups/offsets/fetch",
        name="fetch_offsets",
        summary="Tell where a consumer group is to go on, page by page.",
        access=Access.BROKER,
        handler=_on_groups(GroupOperations.fetch_offsets),
        request=FetchOffsetsRequest,
        response=OffsetsPage,
        errors=_CONFIRMED,
    ),
    Route(
        method="POST",
        path="/v1/groups/delete",
        name="delete_group",
        summary="Forget a consumer group without members for a client of a broker (KIP-229).",
        access=Access.BROKER,
        handler=_on_groups(GroupOperations.delete),
        request=DeleteGroupRequest,
        response=DeleteGroupResponse,
        errors=(*SESSION, *_DELETION, ErrorCode.NON_EMPTY_GROUP),
    ),
    Route(
        method="POST",
        path="/v1/groups/offsets/delete",
        name="delete_offsets",
        summary="Forget offsets of a consumer group for a client of a broker (KIP-496).",
        access=Access.BROKER,
        handler=_on_groups(GroupOperations.delete_offsets),
        request=DeleteOffsetsRequest,
        response=DeleteOffsetsResponse,
        errors=(*SESSION, *_DELETION, ErrorCode.MESSAGE_TOO_LARGE),
    ),
    Route(
        method="GET",
        path="/v1/groups",
        name="list_groups",
        summary="List the consumer groups in order of their ids, page by page.",
        access=Access.VIEWER,
        handler=_on_groups(GroupOperations.groups),
        query_model=GroupsQuery,
        query_texts=frozenset({"after"}),
        response=GroupsPage,
        errors=(ErrorCode.NOT_CONTROLLER,),
    ),
    Route(
        method="GET",
        path="/v1/groups/describe",
        name="describe_group",
        summary="Describe a consumer group: its generation and the members of it.",
        access=Access.VIEWER,
        handler=_on_groups(GroupOperations.describe),
        query_model=GroupQuery,
        query_texts=frozenset({"group"}),
        response=GroupDescription,
        errors=_SHOWN,
    ),
    Route(
        method="GET",
        path="/v1/groups/offsets",
        name="list_group_offsets",
        summary="List the offsets of a consumer group, and those that transactions hold, page by page.",
        access=Access.VIEWER,
        handler=_on_groups(GroupOperations.offsets),
        query_model=GroupOffsetsQuery,
        query_texts=frozenset({"group", "after_topic"}),
        response=OffsetsPage,
        errors=_SHOWN,
    ),
    Route(
        method="DELETE",
        path="/v1/groups",
        name="remove_group",
        summary="Forget a consumer group without members, with its offsets.",
        access=Access.OPERATOR,
        handler=_on_groups(GroupOperations.remove),
        query_model=GroupQuery,
        query_texts=frozenset({"group"}),
        response=DeleteGroupResponse,
        errors=(*PROPOSAL, *_DELETION, ErrorCode.NON_EMPTY_GROUP),
    ),
    Route(
        method="POST",
        path="/v1/groups/offsets/reset",
        name="reset_offsets",
        summary="Have a consumer group without members go on at other offsets.",
        access=Access.OPERATOR,
        handler=_on_groups(GroupOperations.reset),
        request=ResetOffsetsRequest,
        response=CommitOffsetsResponse,
        errors=(*PROPOSAL, *_COMMIT, *_SIZE, ErrorCode.NON_EMPTY_GROUP),
    ),
    Route(
        method="POST",
        path="/v1/groups/offsets/forget",
        name="forget_offsets",
        summary="Forget offsets of a consumer group.",
        access=Access.OPERATOR,
        handler=_on_groups(GroupOperations.forget_offsets),
        request=DeleteOffsetsRequest,
        response=DeleteOffsetsResponse,
        errors=(*PROPOSAL, *_DELETION, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NON_EMPTY_GROUP),
    ),
)
