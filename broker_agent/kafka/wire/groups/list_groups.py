"""ListGroups, key 16, versions 0 to 5 (KIP-518 from version 4, KIP-848 from 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import finish
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 5, first_flexible=3)

_THROTTLE_SINCE: Final = 1
_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5


class ListGroupsRequest(msgspec.Struct, frozen=True):
    """Groups in one of these states, and of one of these types; all where there are none."""

    states: list[str]
    types: list[str]


class ListedGroup(msgspec.Struct, frozen=True):
    """A group. `state`, `group_type`: as Kafka names them, "Stable" and "classic"."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


def read_list_groups_request(reader: Reader, version: int) -> ListGroupsRequest:
    """Read the whole body. Raises WireError."""
    states = _read_texts(reader) if version >= _STATES_SINCE else []
    types = _read_texts(reader) if version >= _TYPES_SINCE else []
    finish(reader, flexible=VERSIONS.is_flexible(version))
    return ListGroupsRequest(states, types)


def _read_texts(reader: Reader) -> list[str]:
    return [reader.string(flexible=True) for _ in range(reader.array_length(flexible=True, min_element_bytes=1))]


def list_groups_response(version: int, groups: Sequence[ListedGroup], error_code: int = 0) -> bytes:
    """The body of the answer. `error_code`: of the whole request."""
    flexible = VERSIONS.is_flexible(version)
    throttle = int32(0) if version >= _THROTTLE_SINCE else b""
    results = array([_listed(one, version) for one in groups], flexible=flexible)
    return throttle + int16(error_code) + results + tags(flexible=flexible)


def _listed(one: ListedGroup, version: int) -> bytes:
    flexible = VERSIONS.is_flexible(version)
    return b"".join(
        (
            string(one.group_id, flexible=flexible) + string(one.protocol_type, flexible=flexible),
            string(one.state, flexible=flexible) if version >= _STATES_SINCE else b"",
            string(one.group_type, flexible=flexible) if version >= _TYPES_SINCE else b"",
            tags(flexible=flexible),
        )
    )
