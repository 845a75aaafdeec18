"""The decisions about consumer groups: which members a generation has, and what is known of none any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from pidkeeper.controller.state import offset_decisions, requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.groups import limits
from pidkeeper.controller.state.groups.group import Group
from pidkeeper.controller.state.groups.state import any_twice, members_bytes
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.group_messages import CommitGroupResponse, DeleteGroupResponse, GroupDescription
from pidkeeper.protocol.groups import (
    GROUP_BYTES,
    MAX_MEMBERS_BYTES,
    NO_GENERATION,
    NO_VERSION,
    GroupRecord,
    RemoveGroupRecord,
)
from pidkeeper.protocol.metadata_version import GROUPS

NO_BROKER: Final = -1
"""Of a group that nobody coordinates."""


def commit_group(draft: Draft, request: requests.CommitGroup) -> CommitGroupResponse:
    """Let a group have these members if it is still as its coordinator knows it; the same answer when asked again.

    Raises STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED, GROUP_MAX_SIZE_REACHED, COORDINATOR_NOT_AVAILABLE at a bound,
    and INVALID_REQUEST for what no coordinator asks.
    """
    draft.require(GROUPS)
    draft.check_broker(*request.broker)
    group = draft.groups.get(request.group_id)
    wanted = GroupRecord(
        request.group_id,
        request.after,
        request.generation,
        request.protocol_type,
        request.members,
        *request.broker,
        draft.timestamp_ms,
    )
    if group is not None and group.record is not None and _is_repeated(group.record, wanted):
        return CommitGroupResponse(taken=True, group=described(group))
    if request.after != (NO_VERSION if group is None else group.version):
        return CommitGroupResponse(taken=False, group=None if group is None else described(group))
    _check_record(group, wanted)
    _check_room(draft, group, wanted)
    draft.write_group(wanted)
    after = draft.groups.get(request.group_id)
    return CommitGroupResponse(taken=True, group=None if after is None else described(after))


def delete_group(draft: Draft, request: requests.DeleteGroup) -> DeleteGroupResponse:
    """Forget a group with its offsets. Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP if it has members, or offsets
    that transactions hold."""
    draft.require(GROUPS)
    if request.broker is not None:
        draft.check_broker(*request.broker)
    group = draft.groups.get(request.group_id)
    if group is None:
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"nothing is known of group {request.group_id!r}")
    if group.members or group.pending:
        detail = f"group {group.group_id!r} has {len(group.members)} members and {group.pending} pending offsets"
        raise RequestError(ErrorCode.NON_EMPTY_GROUP, detail)
    draft.write_group(RemoveGroupRecord(request.group_id, draft.timestamp_ms))
    return DeleteGroupResponse(request.group_id)


def described(group: Group) -> GroupDescription:
    """A group, as callers are told of it."""
    record = group.record
    return GroupDescription(
        group.group_id,
        group.version,
        NO_GENERATION if record is None else record.generation,
        "" if record is None else record.protocol_type,
        list(group.members),
        NO_BROKER if record is None else record.broker_id,
        NO_BROKER if record is None else record.broker_epoch,
        group.offsets,
        group.pending,
        -1 if record is None else record.timestamp_ms,
    )


def most_bytes(request: requests.GroupRequest) -> int:
    """Bytes that the record takes at most."""
    match request:
        case requests.CommitGroup():
            texts = len(request.group_id.encode()) + len(request.protocol_type.encode())
            return GROUP_BYTES + texts + min(members_bytes(request.members), MAX_MEMBERS_BYTES)
        case requests.DeleteGroup():
            return GROUP_BYTES + len(request.group_id.encode())
        case _:
            return offset_decisions.most_bytes(request)


def _is_repeated(known: GroupRecord, wanted: GroupRecord) -> bool:
    """Whether a coordinator asks once more for what it was granted, and was not answered."""
    return replace(known, timestamp_ms=wanted.timestamp_ms) == wanted


def _check_record(group: Group | None, wanted: GroupRecord) -> None:
    """Raise RequestError for what must not follow a group."""
    if any_twice(wanted.members):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"two members of group {wanted.group_id!r} have one id")
    if group is not None and group.record is not None and wanted.generation < group.record.generation:
        detail = f"generation {wanted.generation} of group {wanted.group_id!r} follows {group.record.generation}"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    size = members_bytes(wanted.members)
    if size > MAX_MEMBERS_BYTES:
        detail = f"the members of group {wanted.group_id!r} take {size} bytes, {MAX_MEMBERS_BYTES} are allowed"
        raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, detail)


def _check_room(draft: Draft, group: Group | None, wanted: GroupRecord) -> None:
    groups = draft.groups
    size = members_bytes(wanted.members) - (0 if group is None else members_bytes(group.members))
    many = group is None and len(groups) >= limits.MAX_GROUPS
    if many or groups.members_bytes + size > limits.MAX_MEMBERS_BYTES:
        raise RequestError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{len(groups)} groups with {groups.members_bytes} bytes of members are kept, {limits.MAX_GROUPS} and "
            f"{limits.MAX_MEMBERS_BYTES} are the bounds: delete groups",
        )


DECIDERS: Final[dict[type[Any], Callable[[Draft, Any], Any]]] = {
    requests.CommitGroup: commit_group,
    requests.DeleteGroup: delete_group,
    requests.CommitOffsets: offset_decisions.commit_offsets,
    requests.DeleteOffsets: offset_decisions.delete_offsets,
    requests.ExpireOffsets: offset_decisions.expire_offsets,
}
