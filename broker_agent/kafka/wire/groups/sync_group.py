"""SyncGroup, key 14, versions 0 to 5 (KIP-345 from version 3, KIP-559 from 5)."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import MAX_MEMBERS, bounded, finish
from pidkeeper.service.kafka.wire.primitives import Reader, byte_string, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 5, first_flexible=4)

_THROTTLE_SINCE: Final = 1
_INSTANCES_SINCE: Final = 3
_PROTOCOLS_SINCE: Final = 5


class MemberAssignment(msgspec.Struct, frozen=True):
    """What the leader gives a member."""

    member_id: str
    assignment: bytes


class SyncGroupRequest(msgspec.Struct, frozen=True):
    """A member of a generation asks for its assignment; the leader brings `assignments`, others none.

    `protocol_type`, `protocol_name`: what it takes the group's to be, None if it does not tell. `tells_protocol`:
    whether it has to (`SyncGroupRequest.areMandatoryProtocolTypeAndNamePresent`).
    """

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[MemberAssignment]
    tells_protocol: bool = False


class SyncGroupResponse(msgspec.Struct, frozen=True):
    """The outcome; `assignment` is empty beside an error."""

    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


def read_sync_group_request(reader: Reader, version: int) -> SyncGroupRequest:
    """Read the whole body. Raises WireError."""
    flexible, tells = VERSIONS.is_flexible(version), version >= _PROTOCOLS_SINCE
    group_id, generation, member_id = reader.string(flexible=flexible), reader.int32(), reader.string(flexible=flexible)
    instance_id = reader.nullable_string(flexible=flexible) if version >= _INSTANCES_SINCE else None
    protocol_type = reader.nullable_string(flexible=flexible) if tells else None
    protocol_name = reader.nullable_string(flexible=flexible) if tells else None
    least = 3 if flexible else 6
    count = bounded(reader.array_length(flexible=flexible, min_element_bytes=least), MAX_MEMBERS, "assignments")
    assignments = [_read_assignment(reader, flexible=flexible) for _ in range(count)]
    finish(reader, flexible=flexible)
    return SyncGroupRequest(
        group_id, generation, member_id, instance_id, protocol_type, protocol_name, assignments, tells_protocol=tells
    )


def _read_assignment(reader: Reader, *, flexible: bool) -> MemberAssignment:
    assignment = MemberAssignment(reader.string(flexible=flexible), reader.byte_string(flexible=flexible))
    if flexible:
        reader.skip_tags()
    return assignment


def sync_group_response(version: int, response: SyncGroupResponse) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    protocol = string(response.protocol_type, flexible=flexible) + string(response.protocol_name, flexible=flexible)
    return b"".join(
        (
            int32(0) if version >= _THROTTLE_SINCE else b"",
            int16(response.error_code),
            protocol if version >= _PROTOCOLS_SINCE else b"",
            byte_string(response.assignment, flexible=flexible) + tags(flexible=flexible),
        )
    )
