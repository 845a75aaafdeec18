"""JoinGroup, key 11, versions 0 to 9 (KIP-62 from version 1, KIP-394 from 4, KIP-345 from 5, KIP-800 from 8, KIP-814
from 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import MAX_PROTOCOLS, bounded, finish
from pidkeeper.service.kafka.wire.primitives import Reader, array, byte_string, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 9, first_flexible=6)

_REBALANCE_TIMEOUT_SINCE: Final = 1
_THROTTLE_SINCE: Final = 2
_INSTANCES_SINCE: Final = 5
_PROTOCOL_TYPE_SINCE: Final = 7
_REASONS_SINCE: Final = 8
_MEMBER_ID_REQUIRED_SINCE: Final = 4
_SKIP_ASSIGNMENT_SINCE: Final = 9


class JoinProtocol(msgspec.Struct, frozen=True):
    """A protocol that a member knows, and its metadata: an assignor, and a subscription."""

    name: str
    metadata: bytes


class JoinGroupRequest(msgspec.Struct, frozen=True):
    """A member joins. `member_id`: "" of one that has none yet. `reason`: for people.

    `rebalance_timeout_ms`: the session timeout where the version has none. `takes_member_id`: whether it comes again
    with the id that MEMBER_ID_REQUIRED gives it (KIP-394). `skips_assignment`: whether it can be told that nothing has
    changed (KIP-814).
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: list[JoinProtocol]
    reason: str | None = None
    takes_member_id: bool = False
    skips_assignment: bool = False


class JoinedMember(msgspec.Struct, frozen=True):
    """A member, as its leader is told of it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinGroupResponse(msgspec.Struct, frozen=True):
    """The outcome. `members`: all of the generation for the leader, none for others. `leader` and `member_id` are ""
    and `protocol_type` and `protocol_name` None where there is nothing to tell."""

    member_id: str
    error_code: int = 0
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


def read_join_group_request(reader: Reader, version: int) -> JoinGroupRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    group_id, session_timeout_ms = reader.string(flexible=flexible), reader.int32()
    rebalance_timeout_ms = reader.int32() if version >= _REBALANCE_TIMEOUT_SINCE else session_timeout_ms
    member_id = reader.string(flexible=flexible)
    instance_id = reader.nullable_string(flexible=flexible) if version >= _INSTANCES_SINCE else None
    protocol_type = reader.string(flexible=flexible)
    least = 3 if flexible else 6
    count = bounded(reader.array_length(flexible=flexible, min_element_bytes=least), MAX_PROTOCOLS, "protocols")
    protocols = [_read_protocol(reader, flexible=flexible) for _ in range(count)]
    reason = reader.nullable_string(flexible=flexible) if version >= _REASONS_SINCE else None
    finish(reader, flexible=flexible)
    return JoinGroupRequest(
        group_id,
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        instance_id,
        protocol_type,
        protocols,
        reason,
        takes_member_id=version >= _MEMBER_ID_REQUIRED_SINCE,
        skips_assignment=version >= _SKIP_ASSIGNMENT_SINCE,
    )


def _read_protocol(reader: Reader, *, flexible: bool) -> JoinProtocol:
    protocol = JoinProtocol(reader.string(flexible=flexible), reader.byte_string(flexible=flexible))
    if flexible:
        reader.skip_tags()
    return protocol


def join_group_response(version: int, response: JoinGroupResponse) -> bytes:
    """The body of the answer."""
    flexible, types = VERSIONS.is_flexible(version), version >= _PROTOCOL_TYPE_SINCE
    # Before version 7 a protocol's name is never null.
    name = response.protocol_name if types else response.protocol_name or ""
    return b"".join(
        (
            int32(0) if version >= _THROTTLE_SINCE else b"",
            int16(response.error_code) + int32(response.generation),
            string(response.protocol_type, flexible=True) if types else b"",
            string(name, flexible=flexible) + string(response.leader, flexible=flexible),
            bytes((response.skip_assignment,)) if version >= _SKIP_ASSIGNMENT_SINCE else b"",
            string(response.member_id, flexible=flexible),
            array([_member(one, version) for one in response.members], flexible=flexible),
            tags(flexible=flexible),
        )
    )


def _member(one: JoinedMember, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            string(one.member_id, flexible=flexible),
            string(one.instance_id, flexible=flexible) if version >= _INSTANCES_SINCE else b"",
            byte_string(one.metadata, flexible=flexible) + tags(flexible=flexible),
        )
    )
