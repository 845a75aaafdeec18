"""DescribeGroups, key 15, versions 0 to 6 (KIP-430 from version 3, KIP-345 from 4, KIP-1043 from 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import finish
from pidkeeper.service.kafka.wire.primitives import Reader, array, byte_string, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 6, first_flexible=5)

_THROTTLE_SINCE: Final = 1
_OPERATIONS_SINCE: Final = 3
_INSTANCES_SINCE: Final = 4
_MESSAGES_SINCE: Final = 6

_NO_OPERATIONS: Final = -(2**31)
"""Kafka's value for "authorised operations were not asked for"."""


class DescribeGroupsRequest(msgspec.Struct, frozen=True):
    """Which groups. Authorised operations are not told, asked for or not."""

    group_ids: list[str]
    include_authorized_operations: bool = False


class DescribedMember(msgspec.Struct, frozen=True):
    """A member. `metadata`, `assignment`: of the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(msgspec.Struct, frozen=True):
    """The outcome for one group. `state`: as Kafka names it; `protocol_data`: the protocol that was chosen.

    Beside an error everything is empty. `error_message`: version 6 alone tells it.
    """

    group_id: str
    error_code: int = 0
    state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedMember] = ()
    error_message: str | None = None


def read_describe_groups_request(reader: Reader, version: int) -> DescribeGroupsRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    least = 1 if flexible else 2
    count = reader.array_length(flexible=flexible, min_element_bytes=least)
    group_ids = [reader.string(flexible=flexible) for _ in range(count)]
    operations = reader.boolean() if version >= _OPERATIONS_SINCE else False
    finish(reader, flexible=flexible)
    return DescribeGroupsRequest(group_ids, operations)


def describe_groups_response(version: int, groups: Sequence[DescribedGroup]) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    throttle = int32(0) if version >= _THROTTLE_SINCE else b""
    return throttle + array([_described(one, version) for one in groups], flexible=flexible) + tags(flexible=flexible)


def _described(one: DescribedGroup, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            int16(one.error_code),
            string(one.error_message, flexible=True) if version >= _MESSAGES_SINCE else b"",
            string(one.group_id, flexible=flexible) + string(one.state, flexible=flexible),
            string(one.protocol_type, flexible=flexible) + string(one.protocol_data, flexible=flexible),
            array([_member(each, version) for each in one.members], flexible=flexible),
            int32(_NO_OPERATIONS) if version >= _OPERATIONS_SINCE else b"",
            tags(flexible=flexible),
        )
    )


def _member(one: DescribedMember, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            string(one.member_id, flexible=flexible),
            string(one.instance_id, flexible=flexible) if version >= _INSTANCES_SINCE else b"",
            string(one.client_id, flexible=flexible) + string(one.client_host, flexible=flexible),
            byte_string(one.metadata, flexible=flexible) + byte_string(one.assignment, flexible=flexible),
            tags(flexible=flexible),
        )
    )
