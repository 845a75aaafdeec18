"""DeleteGroups, key 42, versions 0 to 2 (KIP-229)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pidkeeper.broker_agent.kafka.wire.groups.frames import finish
from pidkeeper.service.kafka.wire.primitives import Reader, array, int16, int32, string, tags
from pidkeeper.service.kafka.wire.versions import Versions

VERSIONS: Final = Versions(0, 2, first_flexible=2)


class DeleteGroupsRequest(msgspec.Struct, frozen=True):
    """Which groups are to go."""

    group_ids: list[str]


class DeletedGroup(msgspec.Struct, frozen=True):
    """The outcome for one group."""

    group_id: str
    error_code: int = 0


def read_delete_groups_request(reader: Reader, version: int) -> DeleteGroupsRequest:
    """Read the whole body. Raises WireError."""
    flexible = VERSIONS.is_flexible(version)
    least = 1 if flexible else 2
    count = reader.array_length(flexible=flexible, min_element_bytes=least)
    group_ids = [reader.string(flexible=flexible) for _ in range(count)]
    finish(reader, flexible=flexible)
    return DeleteGroupsRequest(group_ids)


def delete_groups_response(version: int, groups: Sequence[DeletedGroup]) -> bytes:
    """The body of the answer."""
    flexible = VERSIONS.is_flexible(version)
    end = tags(flexible=flexible)
    results = [string(one.group_id, flexible=flexible) + int16(one.error_code) + end for one in groups]
    return int32(0) + array(results, flexible=flexible) + end
