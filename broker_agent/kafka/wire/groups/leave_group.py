"""LeaveGroup, key 13, versions 0 to 5 (batched from version 3 on: KIP-345; KIP-800 from 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import MAX_MEMBERS, bounded, code_response, finish
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 5, first_flexible=4)

_THROTTLE_SINCE: Final = 1
_BATCHED_SINCE: Final = 3
_REASONS_SINCE: Final = 5


class LeavingMember(msgspec.Struct, frozen=True):
    """A member that leaves; a static one may be named by its instance id alone, with a member id "". `reason`: for
    people."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(msgspec.Struct, frozen=True):
    """`members`: exactly one before version 3."""

    group_id: str
    members: list[LeavingMember]


class LeftMember(msgspec.Struct, frozen=True):
    """The outcome for one member."""

    member_id: str
    instance_id: str | None
    error_code: int = 0


class LeaveGroupResponse(msgspec.Struct, frozen=True):
    """The outcome. `error_code`: of the whole request, beside which there are no members."""

    error_code: int = 0
    members: Sequence[LeftMember] = ()


def read_leave_group_request(reader: Reader, version: int) -> LeaveGroupRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    group_id = reader.string(flexible=flexible)
    if version >= _BATCHED_SINCE:
        least = 3 if flexible else 4
        count = bounded(reader.array_length(flexible=flexible, min_element_bytes=least), MAX_MEMBERS, "members")
        members = [_read_member(reader, version) for _ in range(count)]
    else:
        members = [LeavingMember(reader.string(flexible=flexible))]
    finish(reader, flexible=flexible)
    return LeaveGroupRequest(group_id, members)


def _read_member(reader: Reader, version: int) -> LeavingMember:
    flexible = VERSIONS.is_flexible(version)
    member = LeavingMember(
        reader.string(flexible=flexible),
        reader.nullable_string(flexible=flexible),
        reader.nullable_string(flexible=flexible) if version >= _REASONS_SINCE else None,
    )
    if flexible:
        reader.skip_tags()
    return member


def leave_group_response(version: int, response: LeaveGroupResponse) -> bytes:
    """The body of the answer. Before version 3 the code of the one member is that of the request."""
    flexible = VERSIONS.is_flexible(version)
    if version < _BATCHED_SINCE:
        code = response.error_code or next((one.error_code for one in response.members), 0)
        return code_response(version, code, _THROTTLE_SINCE, flexible=flexible)
    members = [
        string(one.member_id, flexible=flexible)
        + string(one.instance_id, flexible=flexible)
        + int16(one.error_code)
        + tags(flexible=flexible)
        for one in response.members
    ]
    return int32(0) + int16(response.error_code) + array(members, flexible=flexible) + tags(flexible=flexible)
