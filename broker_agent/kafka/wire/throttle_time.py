"""Where the throttle time stands in answers (KIP-124), so that it can be written into one that is made already."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pidkeeper.service.kafka.wire.primitives import int32
from pidkeeper.service.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
    Versions,
)

_FIRST: Final[Mapping[int, int]] = MappingProxyType(
    {
        FETCH: 1,
        LIST_OFFSETS: 2,
        METADATA: 3,
        OFFSET_COMMIT: 3,
        OFFSET_FETCH: 3,
        FIND_COORDINATOR: 1,
        JOIN_GROUP: 2,
        HEARTBEAT: 1,
        LEAVE_GROUP: 1,
        SYNC_GROUP: 1,
        DESCRIBE_GROUPS: 1,
        LIST_GROUPS: 1,
        CREATE_TOPICS: 2,
        DELETE_TOPICS: 1,
        DELETE_RECORDS: 0,
        INIT_PRODUCER_ID: 0,
        ADD_PARTITIONS_TO_TXN: 0,
        ADD_OFFSETS_TO_TXN: 0,
        END_TXN: 0,
        TXN_OFFSET_COMMIT: 0,
        DESCRIBE_CONFIGS: 0,
        DELETE_GROUPS: 0,
    }
)
"""APIs whose answers begin with it, and since which version they do."""

_SECOND: Final[Mapping[int, int]] = MappingProxyType({OFFSET_DELETE: 0})
"""Those that have it behind an error code."""

_LAST: Final[Mapping[int, int]] = MappingProxyType({PRODUCE: 1})
"""Those that end with it, before their tagged fields. Answers here have none of these."""

_BEHIND_KEYS: Final[Mapping[int, int]] = MappingProxyType({API_VERSIONS: 1})
"""Those that have it behind an error code and the array of keys with their versions, before their tagged fields."""

_HEAD_BYTES: Final = 8
"""The length of the frame, and the correlation id."""


def with_throttle_time(frame: bytes, key: int, version: int, served: Mapping[int, Versions], ms: int) -> bytes:
    """The whole response frame with this throttle time, in milliseconds; as it is, if it has no room for one.

    `frame` answers version `version` of the API `key`; `served` are the versions of each API.
    """
    versions = served.get(key)
    if not frame or versions is None or version > versions.highest:
        return frame
    flexible = versions.is_flexible(version)
    if version >= _FIRST.get(key, version + 1):
        at = _HEAD_BYTES + flexible
    elif version >= _SECOND.get(key, version + 1):
        at = _HEAD_BYTES + flexible + 2
    elif version >= _LAST.get(key, version + 1):
        at = len(frame) - 4 - flexible
    elif version >= _BEHIND_KEYS.get(key, version + 1):
        at = _behind_keys(frame, flexible=flexible)
    else:
        return frame
    return b"".join((memoryview(frame)[:at], int32(ms), memoryview(frame)[at + 4 :]))


def _behind_keys(frame: bytes, *, flexible: bool) -> int:
    at = _HEAD_BYTES + 2
    if flexible:
        # The count, plus one, is one byte for fewer than 127 keys; each has a section of tagged fields.
        return at + 1 + (frame[at] - 1) * 7
    return at + 4 + int.from_bytes(frame[at : at + 4], "big") * 6
