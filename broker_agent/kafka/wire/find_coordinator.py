"""FindCoordinator, key 10, versions 0 to 6 (batched from version 4 on: KIP-699)."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 6, first_flexible=3)

GROUP: Final = 0
TRANSACTION: Final = 1

FIRST_BATCHED_VERSION: Final = 4


class FindCoordinatorRequest(msgspec.Struct, frozen=True):
    """`keys`: group or transactional ids, exactly one before version 4. `key_type`: GROUP or TRANSACTION."""

    keys: list[str]
    key_type: int = GROUP


class Coordinator(msgspec.Struct, frozen=True):
    """The answer for one key; `error_message` is null on success. On an error the node is -1, "" and -1."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int = 0
    error_message: str | None = None


def read_find_coordinator_request(reader: Reader, version: int) -> FindCoordinatorRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    keys = [reader.string(flexible=flexible)] if version < FIRST_BATCHED_VERSION else []
    key_type = reader.int8() if version >= 1 else GROUP
    if version >= FIRST_BATCHED_VERSION:
        count = reader.array_length(flexible=True, min_element_bytes=1)
        keys = [reader.string(flexible=True) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    reader.finish()
    return FindCoordinatorRequest(keys, key_type)


def find_coordinator_response(version: int, coordinators: list[Coordinator]) -> bytes:
    """The body of the answer: one coordinator for each key, in the order of the keys."""
    flexible = VERSIONS.is_flexible(version)
    throttle = int32(0) if version >= 1 else b""
    if version >= FIRST_BATCHED_VERSION:
        return throttle + array([_batched(one) for one in coordinators], flexible=True) + tags(flexible=True)
    (one,) = coordinators
    message = string(one.error_message, flexible=flexible) if version >= 1 else b""
    return throttle + int16(one.error_code) + message + _node(one, flexible=flexible) + tags(flexible=flexible)


def _node(one: Coordinator, *, flexible: bool) -> bytes:
    return int32(one.node_id) + string(one.host, flexible=flexible) + int32(one.port)


def _batched(one: Coordinator) -> bytes:
    return b"".join(
        (
            string(one.key, flexible=True),
            _node(one, flexible=True),
            int16(one.error_code),
            string(one.error_message, flexible=True),
            tags(flexible=True),
        )
    )
