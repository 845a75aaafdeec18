"""The records by which tails of logs become segments, logs lose their beginning, and the store is cleaned up.

A segment is a part of one log as Kafka keeps it on disk (`FileRecords`), in one object: batches with their offsets and
control batches, one behind another. Beside it lies its index.
"""

from __future__ import annotations

import uuid
from typing import Annotated, ClassVar, Final

import msgspec

from pidkeeper.protocol.logs import MAX_PARTITIONS, LogNumber, ObjectId, Offset, Size, Timestamp
from pidkeeper.protocol.transactions import TopicName

MAX_SEGMENT_ROWS: Final = 8192
"""Batches, markers and earlier segments that one segment takes the place of: what an agent reads and keeps for it, and
what one record lets go of, in a few milliseconds."""

MAX_LOG_STARTS: Final = 1000
"""Logs whose start one record raises."""

MAX_FOUNDINGS: Final = 64
"""Foundings whose objects are collected: each is one restore more."""

SEGMENT_BYTES: Final = 160
LOG_START_BYTES: Final = 19
RELEASE_BYTES: Final = 48
"""At most, of an encoded SegmentRecord without its topic's name, of one log's start in a LogStartsRecord, and of a
CollectionReleasedRecord without its foundings, which take FOUNDING_ID_BYTES each."""

FOUNDING_ID_BYTES: Final = 40

MAX_LOG_SEGMENT_BYTES: Final = 12 << 20
"""Of a segment: a last batch, or what is left of an object's bytes, may pass it by 4 MiB."""

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".sparse"

Partition = Annotated[int, msgspec.Meta(ge=0, lt=MAX_PARTITIONS)]
Replaced = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEGMENT_ROWS)]


class SegmentName(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a segment is of: a partition, as Kafka names its directory, and a first offset, as Kafka names the file."""

    topic: TopicName
    partition: Partition
    base_offset: Offset

    def path(self, object_id: ObjectId, founding_id: uuid.UUID) -> str:
        """Its name in the store. Each roll has one of its own, so nobody ever puts other bytes under it."""
        name = object_id
        directory = f"segments/{founding_id}/{name.broker_id}/{name.broker_epoch}/{name.number:020}"
        return f"{directory}/{self.topic}-{self.partition}/{self.base_offset:020}{LOG_SUFFIX}"


class SegmentRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An agent rolled a part of a log: `end_offset - name.base_offset` offsets are in one segment from now on.

    `size`, `index_size`: bytes of the segment and of its index. `max_timestamp`: the latest of its records. `replaces`:
    the batches, markers and earlier segments of the log that it takes the place of; 0 if it does not, since it no
    longer fits: then the object is garbage, and its number is taken.
    """

    TYPE: ClassVar[int] = 26
    VERSION: ClassVar[int] = 0
    object: ObjectId
    log: LogNumber
    name: SegmentName
    end_offset: Offset
    size: Size
    index_size: Size
    max_timestamp: Timestamp
    replaces: Replaced
    timestamp_ms: int


class LogStartsRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Logs lost what lies below an offset: by retention, or on demand (KIP-107). `starts`: a log and an offset each."""

    TYPE: ClassVar[int] = 27
    VERSION: ClassVar[int] = 0
    starts: Annotated[tuple[tuple[LogNumber, Offset], ...], msgspec.Meta(min_length=1, max_length=MAX_LOG_STARTS)]
    timestamp_ms: int


class CollectionReleasedRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An operator has seen what is in the store: objects of these foundings that no log needs are deleted from then on.

    Before that nothing is deleted once a quorum took the place of another: its logs are those of a copy.
    """

    TYPE: ClassVar[int] = 28
    VERSION: ClassVar[int] = 0
    foundings: Annotated[tuple[uuid.UUID, ...], msgspec.Meta(min_length=1, max_length=MAX_FOUNDINGS)]
    timestamp_ms: int


RolledRecord = SegmentRecord | LogStartsRecord | CollectionReleasedRecord


def index_path(path: str) -> str:
    """The name of a segment's index; `path`: that of the segment."""
    return path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX
