"""What is refused before a group is looked at. Pure."""

from __future__ import annotations

from pidkeeper.broker_agent.groups.settings import GroupSettings
from pidkeeper.broker_agent.kafka.wire.groups.join_group import JoinGroupRequest
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.groups import MAX_GROUP_ID_LENGTH, MAX_INSTANCE_ID_LENGTH, MAX_PROTOCOL_TYPE_LENGTH


def refused_group(group_id: str) -> ErrorCode | None:
    """Why no group of this id has members. Offsets alone may be those of the empty one."""
    return None if 1 <= len(group_id) <= MAX_GROUP_ID_LENGTH else ErrorCode.INVALID_GROUP_ID


def refused_join(request: JoinGroupRequest, settings: GroupSettings) -> ErrorCode | None:
    """Why a member cannot join any group (`GroupCoordinatorService.joinGroup`)."""
    if (refused := refused_group(request.group_id)) is not None:
        return refused
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if request.instance_id is not None and not 1 <= len(request.instance_id) <= MAX_INSTANCE_ID_LENGTH:
        return ErrorCode.INVALID_REQUEST
    if len(request.protocol_type) > MAX_PROTOCOL_TYPE_LENGTH:
        return ErrorCode.INVALID_REQUEST
    return None
