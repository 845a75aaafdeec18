"""What the name of an object in the store says. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from pidkeeper.broker_agent.data.store.port import is_name
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segments import SegmentName, index_path
from pidkeeper.protocol.topic_names import is_topic_name

PREFIXES: Final = ("segments/", "wal/")
"""Of all names that agents give to objects with records, in the order of their bytes."""

_WAL_PARTS: Final = 5
_SEGMENT_PARTS: Final = 7


class ObjectName(NamedTuple):
    """Under which founding an object was put, whether it is a segment or its index, and which one."""

    founding_id: uuid.UUID
    segment: bool
    id: ObjectId


def parsed(name: str) -> ObjectName | None:
    """What an agent of this build would call exactly so; None if nothing."""
    if not is_name(name):
        return None
    parts = name.split("/")
    try:
        if parts[0] == "wal" and len(parts) == _WAL_PARTS:
            return _of_batches(name, parts)
        if parts[0] == "segments" and len(parts) == _SEGMENT_PARTS:
            return _of_segment(name, parts)
    except (ValueError, msgspec.ValidationError):
        pass
    return None


def _of_batches(name: str, parts: Sequence[str]) -> ObjectName | None:
    founding_id, object_id = uuid.UUID(parts[1]), _object_id(parts)
    # Made anew and compared: no other spelling of the same numbers passes.
    return ObjectName(founding_id, False, object_id) if name == object_id.path(founding_id) else None


def _of_segment(name: str, parts: Sequence[str]) -> ObjectName | None:
    founding_id, object_id = uuid.UUID(parts[1]), _object_id(parts)
    topic, _, partition = parts[5].rpartition("-")
    if not is_topic_name(topic):
        return None
    base_offset = parts[6].partition(".")[0]
    path = msgspec.convert((topic, int(partition), int(base_offset)), SegmentName).path(object_id, founding_id)
    return ObjectName(founding_id, True, object_id) if name in {path, index_path(path)} else None


def _object_id(parts: Sequence[str]) -> ObjectId:
    return msgspec.convert([int(part) for part in parts[2:5]], ObjectId)
