"""What callers are told of partition logs, from the applied state. Pure."""

from __future__ import annotations

from typing import Final

from pidkeeper.controller.node.segment_views import stored_segment
from pidkeeper.controller.node.stable_offsets import holder
from pidkeeper.controller.state.logs.partition_log import LocatedBatch, LoggedMarker, PartitionLog
from pidkeeper.controller.state.logs.rolled import LocatedSegment
from pidkeeper.controller.state.logs.state import LogsState
from pidkeeper.controller.state.topic_decisions import described
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.log_messages import (
    EARLIEST,
    LATEST,
    MAX_READ_BATCHES,
    MAX_TIMESTAMP,
    AbortedTransaction,
    FindOffsetsRequest,
    FindOffsetsResponse,
    FoundOffset,
    LogBatches,
    Marker,
    PartitionDescription,
    ReadLog,
    ReadLogsRequest,
    ReadLogsResponse,
    StoredBatch,
    TopicDescription,
    TopicPartitionsPage,
    TopicsPage,
)

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code
_NOWHERE: Final = -1


def read_logs(logs: LogsState, request: ReadLogsRequest) -> ReadLogsResponse:
    """Where the batches of some logs are."""
    objects: dict[int, int] = {}
    room = MAX_READ_BATCHES
    answers = []
    for wanted in request.logs:
        answer = _read_log(logs, wanted, objects, room, committed=request.committed)
        room -= len(answer.batches) + len(answer.markers) + (answer.segment is not None)
        answers.append(answer)
    return ReadLogsResponse(answers, [logs.objects.path(key) for key in objects])


def _read_log(logs: LogsState, wanted: ReadLog, objects: dict[int, int], room: int, *, committed: bool) -> LogBatches:
    """`objects`: the index of each object in the answer by its key; those that are new are added."""
    log = logs.log(wanted.log)
    if log is None:
        return LogBatches(wanted.log, _UNKNOWN)
    code = 0 if log.start <= wanted.offset <= log.end else ErrorCode.OFFSET_OUT_OF_RANGE.kafka_code
    below = log.last_stable if committed else log.end
    if code or wanted.offset >= below or room <= 0:
        return LogBatches(wanted.log, code, log.start, log.end, log.last_stable)
    if (rolled := log.segments.holding(wanted.offset)) is not None:
        segment = stored_segment(rolled, objects)
        return LogBatches(wanted.log, 0, log.start, log.end, log.last_stable, segment=segment)
    batches, markers, upto = _range(log, wanted, below, room)
    stored = [
        StoredBatch(one.base_offset, objects.setdefault(one.key, len(objects)), one.position, one.size)
        for one in batches
    ]
    aborted = log.aborted_between(wanted.offset, upto) if committed else []
    return LogBatches(
        wanted.log,
        0,
        log.start,
        log.end,
        log.last_stable,
        stored,
        [Marker(*one) for one in markers],
        [AbortedTransaction(one.producer_id, one.first_offset, one.marker_offset) for one in aborted],
    )


def _range(
    log: PartitionLog, wanted: ReadLog, below: int, room: int
) -> tuple[list[LocatedBatch], list[LoggedMarker], int]:
    """Batches and markers from the wanted offset on without a gap, and the offset behind the last of them."""
    found = log.batches_from(wanted.offset, below, room + 1)
    batches: list[LocatedBatch] = []
    size = 0
    for one in found[:room]:
        size += one.size
        if batches and size > wanted.max_bytes:
            break
        batches.append(one)
    upto = found[len(batches)].base_offset if len(batches) < len(found) else below
    markers = log.markers_from(wanted.offset, upto, room + 1)
    if len(batches) + len(markers) > room:
        # Whichever comes first, so that nothing between is left out.
        offsets = sorted([one.base_offset for one in batches] + [one.offset for one in markers])
        upto = offsets[room]
        batches = [one for one in batches if one.base_offset < upto]
        markers = [one for one in markers if one.offset < upto]
    return batches, markers, upto


def find_offsets(logs: LogsState, request: FindOffsetsRequest) -> FindOffsetsResponse:
    """Offsets of logs by time."""
    objects: dict[int, int] = {}
    found = [_find(logs.log(log), time, objects, committed=request.committed) for log, time in request.logs]
    return FindOffsetsResponse(found, [logs.objects.path(key) for key in objects])


def _find(log: PartitionLog | None, timestamp: int, objects: dict[int, int], *, committed: bool) -> FoundOffset:
    if log is None:
        return FoundOffset(_UNKNOWN, _NOWHERE, _NOWHERE)
    if timestamp == LATEST:
        return FoundOffset(0, log.last_stable if committed else log.end, _NOWHERE)
    if timestamp == EARLIEST:
        return FoundOffset(0, log.start, _NOWHERE)
    if timestamp < 0 and timestamp != MAX_TIMESTAMP:
        return FoundOffset(ErrorCode.INVALID_REQUEST.kafka_code, _NOWHERE, _NOWHERE)
    part = _latest(log) if timestamp == MAX_TIMESTAMP else log.segments.first_at(timestamp) or log.first_at(timestamp)
    if part is None or (committed and part.base_offset >= log.last_stable):
        return FoundOffset(0, _NOWHERE, _NOWHERE)
    batch = segment = None
    if isinstance(part, LocatedBatch):
        index = objects.setdefault(part.key, len(objects))
        batch = StoredBatch(part.base_offset, index, part.position, part.size)
    else:
        segment = stored_segment(part, objects)
    return FoundOffset(0, max(part.base_offset, log.start), part.max_timestamp, batch, segment)


def _latest(log: PartitionLog) -> LocatedBatch | LocatedSegment | None:
    """The first part of those with the latest record."""
    rolled, batch = log.segments.latest(), log.latest()
    if rolled is None or batch is None:
        return rolled or batch
    return rolled if rolled.max_timestamp >= batch.max_timestamp else batch


def topics_page(logs: LogsState, after: str, limit: int) -> TopicsPage:
    """At most `limit` topics whose names are above `after`."""
    found = logs.topics.after(after, limit + 1)
    more = found[limit - 1].name if len(found) > limit else None
    return TopicsPage([described(topic) for topic in found[:limit]], more)


def find_topics(logs: LogsState, names: list[str]) -> TopicsPage:
    """Those of the named topics that there are."""
    known = (logs.topics.get(name) for name in dict.fromkeys(names))
    found: list[TopicDescription] = [described(topic) for topic in known if topic is not None]
    return TopicsPage(found, None)


def topic_partitions(
    logs: LogsState, transactions: TransactionsState, name: str, after: int, limit: int
) -> TopicPartitionsPage | None:
    """A topic with at most `limit` of its partitions above the number `after`; None if there is no such topic."""
    topic = logs.topics.get(name)
    if topic is None:
        return None
    wanted = range(after + 1, min(after + 1 + limit, topic.partitions))
    partitions = [_described_log(logs, transactions, number, topic.first_log + number) for number in wanted]
    return TopicPartitionsPage(
        described(topic), partitions, wanted.stop - 1 if wanted.stop < topic.partitions else None
    )


def _described_log(
    logs: LogsState, transactions: TransactionsState, partition: int, number: int
) -> PartitionDescription:
    log = logs.log(number)
    assert log is not None, f"L2: log {number} has a topic, and is not there"
    held = holder(log, transactions)
    by = None if held is None else held.transaction
    return PartitionDescription(
        partition,
        number,
        log.start,
        log.end,
        log.last_stable,
        log.size,
        log.batch_count,
        None if by is None else by.transactional_id,
        None if by is None or by.start_ms < 0 else by.start_ms,
        len(log.segments),
    )
