"""Requests and response values of the calls about segments and what is deleted; see `messages`."""

from __future__ import annotations

import uuid
from typing import Annotated, Final

import msgspec

from pidkeeper.protocol.logs import MAX_DELETED, BrokerId, LogNumber, ObjectId, Offset, Size, Timestamp
from pidkeeper.protocol.segments import MAX_FOUNDINGS, MAX_LOG_STARTS, MAX_SEGMENT_ROWS, SegmentName

MAX_DUE_LOGS: Final = 1000
"""Logs on one page of those that are to be rolled."""

MAX_TRAILING_SEGMENTS: Final = 8
"""Last segments of a log that a roller is told of: those that it may take into the new one."""

MAX_CHECKED_OBJECTS: Final = 1000
"""As many names as one page of a store's listing has."""

MAX_OBJECTS_PAGE: Final = 1000
"""Objects on one page of those that are kept."""

HIGH_WATERMARK: Final = -1
"""As an offset of DeleteRecords: all that is there (KIP-107)."""


class StoredSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment, and its index beside it (`index_path`). `object`: of the answer's objects, by its index there.

    `size`, `index_size`: in bytes. It holds every offset from `base_offset` to `end_offset - 1`.
    """

    base_offset: int
    end_offset: int
    object: int
    size: int
    index_size: int
    max_timestamp: int


class FindRollsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logs whose tails are to be rolled."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_DUE_LOGS)]


class DueLog(msgspec.Struct, frozen=True, array_like=True):
    """A log that is to be rolled. Its tail goes from `tail_start` to `last_stable`, `rows` batches and markers.

    `segments`: its last ones, ascending, MAX_TRAILING_SEGMENTS at most. `size`: of the tail's batches, in bytes.
    """

    log: int
    topic: str
    partition: int
    tail_start: int
    last_stable: int
    rows: int
    size: int
    segments: list[StoredSegment]


class FindRollsResponse(msgspec.Struct, frozen=True):
    """Those that have the most rows come first. `segment_bytes`: how large a segment shall become.

    `objects`: the names of the segments.
    """

    logs: list[DueLog]
    objects: list[str]
    segment_bytes: int


class CommitSegmentRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Let a segment take the place of the part of a log that it holds. It is durable in the store, with its index.

    `number`: of the object; every segment of an epoch has a higher one than those before it. A request whose answer was
    lost may be sent again, as long as none with a higher number was sent. `replaces`: batches, markers and segments in
    this part of the log, as the caller knows it. Fields as of SegmentRecord.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    founding_id: uuid.UUID
    number: Offset
    log: LogNumber
    name: SegmentName
    end_offset: Offset
    size: Size
    index_size: Size
    max_timestamp: Timestamp
    replaces: Annotated[int, msgspec.Meta(ge=1, le=MAX_SEGMENT_ROWS)]


class CommitSegmentResponse(msgspec.Struct, frozen=True):
    """`joined`: the log reads from it now. If not, it is garbage, which the caller does not delete itself."""

    joined: bool


class DeleteRecordsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Drop what lies below an offset of logs (KIP-107). An offset may be HIGH_WATERMARK.

    `broker_id` and `broker_epoch`: of the agent that asks for a client.
    """

    broker_id: BrokerId
    broker_epoch: Offset
    logs: Annotated[
        tuple[tuple[LogNumber, Annotated[int, msgspec.Meta(ge=HIGH_WATERMARK, le=2**63 - 1)]], ...],
        msgspec.Meta(min_length=1, max_length=MAX_LOG_STARTS),
    ]


class DeletedRecords(msgspec.Struct, frozen=True, array_like=True):
    """`log_start`: the first offset that there is now, -1 with an error. `error_code`: Kafka's."""

    error_code: int
    log_start: int


class DeleteRecordsResponse(msgspec.Struct, frozen=True):
    """One for each log that was asked for, in that order."""

    logs: list[DeletedRecords]


class FindGarbageRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objects that are to be deleted from the store."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_DELETED)]


class GarbageObject(msgspec.Struct, frozen=True, array_like=True):
    """An object that no log needs. `key`: what `objects_deleted` calls it. `names`: all that there is of it."""

    key: int
    names: list[str]


class FindGarbageResponse(msgspec.Struct, frozen=True):
    """`held`: nothing may be deleted, since an operator has not released it."""

    objects: list[GarbageObject]
    held: bool


class ObjectsDeletedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """These objects are deleted from the store, durably. Keys that are not garbage any more are passed over."""

    broker_id: BrokerId
    broker_epoch: Offset
    keys: Annotated[tuple[Offset, ...], msgspec.Meta(min_length=1, max_length=MAX_DELETED)]


class ObjectsDeletedResponse(msgspec.Struct, frozen=True):
    """Objects that were garbage until now."""

    deleted: int


class CheckObjectsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which objects of a founding does nobody need? Answered from a confirmed state.

    `segments`: the objects are segments; if not, they are those of batches.
    """

    founding_id: uuid.UUID
    segments: bool
    objects: Annotated[tuple[ObjectId, ...], msgspec.Meta(min_length=1, max_length=MAX_CHECKED_OBJECTS)]


class CheckObjectsResponse(msgspec.Struct, frozen=True):
    """`unnamed`: the indices of those that are no object of any log, nor garbage. `dead`: of these, those that never
    will be one, since whoever might commit it is fenced. `held`: none of this founding may be deleted for now.
    """

    unnamed: list[int]
    dead: list[int]
    held: bool


class KeptObject(msgspec.Struct, frozen=True, array_like=True):
    """An object of the quorum's: its key, names, bytes of the first of these, and batches that logs have in it."""

    key: int
    names: list[str]
    size: int
    batches: int


class KeptObjectsPage(msgspec.Struct, frozen=True):
    """Objects in the order of their keys. `next_after` goes into `after` for the next page; null on the last one.

    `founding_id`: of the quorum. `foundings`: those whose unneeded objects are collected. `held`: none are, since
    `founding_id` is not among them.
    """

    objects: list[KeptObject]
    next_after: int | None
    founding_id: uuid.UUID | None
    foundings: list[uuid.UUID]
    held: bool


class ReleaseCollectionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Collect the unneeded objects of these foundings from now on. That of the quorum has to be among them."""

    foundings: Annotated[list[uuid.UUID], msgspec.Meta(min_length=1, max_length=MAX_FOUNDINGS)]


class ReleaseCollectionResponse(msgspec.Struct, frozen=True):
    """The foundings whose unneeded objects are collected."""

    foundings: list[uuid.UUID]
