"""The decisions about segments, about what logs begin with, and about what is deleted from the store."""

from __future__ import annotations

from typing import Final

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.commit_decisions import check_committer
from pidkeeper.controller.state.draft import Draft
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.logs import ObjectsDeletedRecord
from pidkeeper.protocol.metadata_version import SEGMENTS
from pidkeeper.protocol.segment_messages import (
    HIGH_WATERMARK,
    CommitSegmentResponse,
    DeletedRecords,
    DeleteRecordsResponse,
    ObjectsDeletedResponse,
    ReleaseCollectionResponse,
)
from pidkeeper.protocol.segments import (
    FOUNDING_ID_BYTES,
    LOG_START_BYTES,
    RELEASE_BYTES,
    SEGMENT_BYTES,
    CollectionReleasedRecord,
    LogStartsRecord,
    SegmentRecord,
)
from pidkeeper.protocol.topic_names import RULE, is_topic_name

_KEY_BYTES: Final = 9
"""Of an encoded integer, at most."""


def commit_segment(draft: Draft, request: requests.CommitSegment) -> CommitSegmentResponse:
    """Let a segment take the place of a part of its log, if it still fits; the same answer when it is asked again.

    One that does not fit is garbage from then on, and its number is taken: an earlier attempt may come late, and must
    not be granted once the object is gone. Raises as `commit_object` does; NOT_ENOUGH_REPLICAS at a bound, or if
    something else is under way with the log.
    """
    draft.require(SEGMENTS)
    name, logs = request.object, draft.logs
    check_committer(draft, name, request.founding_id)
    if not is_topic_name(request.name.topic):
        # It is a part of the object's name, also where no log takes the segment.
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{request.name.topic!r}: a topic's name is {RULE}")
    last = logs.last_roll(name.broker_id)
    if last is not None and last.broker_epoch == name.broker_epoch and last.number >= name.number:
        if last.number > name.number:
            detail = f"segment {name.number} comes after {last.number}: they are committed in their order"
            raise RequestError(ErrorCode.INVALID_REQUEST, detail)
        return CommitSegmentResponse(last.joined)
    if not logs.has_room_for_roll(name.broker_id):
        raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, "no more segments may be kept: delete topics, or wait")
    if logs.is_reshaped(request.log):
        raise RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"log {request.log} is changed just now: ask again")
    joined = _fits(draft, request)
    record = SegmentRecord(
        name,
        request.log,
        request.name,
        request.end_offset,
        request.size,
        request.index_size,
        request.max_timestamp,
        request.replaces if joined else 0,
        draft.timestamp_ms,
    )
    logs.roll(record)
    draft.records.append(record)
    return CommitSegmentResponse(joined)


def _fits(draft: Draft, request: requests.CommitSegment) -> bool:
    topic, log = draft.logs.topic_of(request.log), draft.machine.logs.log(request.log)
    if topic is None or log is None:
        return False
    if (topic.name, request.log - topic.first_log) != (request.name.topic, request.name.partition):
        return False
    return log.covered(request.name.base_offset, request.end_offset) == request.replaces


def delete_records(draft: Draft, request: requests.DeleteRecords) -> DeleteRecordsResponse:
    """Drop what lies below an offset of each log (KIP-107). Raises STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED."""
    draft.require(SEGMENTS)
    draft.check_broker(*request.broker)
    answers, starts = [], []
    for log, offset in request.logs:
        if draft.logs.topic_of(log) is None:
            answers.append(DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code, -1))
            continue
        end, start = draft.logs.end(log), draft.logs.start(log)
        wanted = end if offset == HIGH_WATERMARK else offset
        if wanted > end:
            answers.append(DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE.kafka_code, -1))
            continue
        if wanted > start:
            draft.logs.begin(log, wanted)
            starts.append((log, wanted))
        answers.append(DeletedRecords(0, max(wanted, start)))
    if starts:
        draft.records.append(LogStartsRecord(tuple(starts), draft.timestamp_ms))
    return DeleteRecordsResponse(answers)


def retain(draft: Draft, request: requests.RetainLogs) -> None:
    """Drop what retention keeps no longer, but nothing that is not decided."""
    draft.require(SEGMENTS)
    starts = []
    for log, offset in request.starts:
        known = draft.machine.logs.log(log)
        if known is None or draft.logs.topic_of(log) is None:
            continue
        wanted = min(offset, known.last_stable)
        if wanted > draft.logs.start(log):
            draft.logs.begin(log, wanted)
            starts.append((log, wanted))
    if starts:
        draft.records.append(LogStartsRecord(tuple(starts), draft.timestamp_ms))


def objects_deleted(draft: Draft, request: requests.ObjectsDeleted) -> ObjectsDeletedResponse:
    """Objects are deleted from the store. Raises STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED."""
    draft.require(SEGMENTS)
    draft.check_broker(*request.broker)
    gone = tuple(key for key in dict.fromkeys(request.keys) if draft.logs.is_garbage(key))
    if gone:
        draft.logs.deleted(gone)
        draft.records.append(ObjectsDeletedRecord(gone, draft.timestamp_ms))
    return ObjectsDeletedResponse(len(gone))


def release_collection(draft: Draft, request: requests.ReleaseCollection) -> ReleaseCollectionResponse:
    """Collect the objects of these foundings. Raises INVALID_REQUEST if that of the quorum is not among them."""
    draft.require(SEGMENTS)
    own, foundings = draft.foundings.founding_id, tuple(dict.fromkeys(request.foundings))
    if own is None or own not in foundings:
        detail = f"the quorum is of founding {own}, which is not among them: look at the report again"
        raise RequestError(ErrorCode.INVALID_REQUEST, detail)
    if foundings != draft.logs.collected:
        draft.logs.collected = foundings
        draft.records.append(CollectionReleasedRecord(foundings, draft.timestamp_ms))
    return ReleaseCollectionResponse(list(foundings))


def most_bytes(request: requests.SegmentRequest) -> int:
    """Bytes that the record takes at most."""
    match request:
        case requests.CommitSegment():
            return SEGMENT_BYTES + len(request.name.topic.encode())
        case requests.DeleteRecords():
            return RELEASE_BYTES + LOG_START_BYTES * len(request.logs)
        case requests.RetainLogs():
            return RELEASE_BYTES + LOG_START_BYTES * len(request.starts)
        case requests.ObjectsDeleted():
            return RELEASE_BYTES + _KEY_BYTES * len(request.keys)
        case requests.ReleaseCollection():
            return RELEASE_BYTES + FOUNDING_ID_BYTES * len(request.foundings)
