"""Heartbeat, key 12, versions 0 to 4 (KIP-345 from version 3)."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import code_response, finish
from pidkeeper.service.kafka.wire.primitives import Reader
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 4, first_flexible=4)

_THROTTLE_SINCE: Final = 1
_INSTANCES_SINCE: Final = 3


class HeartbeatRequest(msgspec.Struct, frozen=True):
    """A member of a generation lives."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


def read_heartbeat_request(reader: Reader, version: int) -> HeartbeatRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    group_id, generation, member_id = reader.string(flexible=flexible), reader.int32(), reader.string(flexible=flexible)
    instance_id = reader.nullable_string(flexible=flexible) if version >= _INSTANCES_SINCE else None
    finish(reader, flexible=flexible)
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def heartbeat_response(version: int, error_code: int) -> bytes:
    """The body of the answer."""
    return code_response(version, error_code, _THROTTLE_SINCE, flexible=VERSIONS.is_flexible(version))
