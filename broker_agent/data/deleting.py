"""DeleteRecords: partitions lose what lies below an offset (KIP-107)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pidkeeper.broker_agent.data.calls import LogCalls
from pidkeeper.broker_agent.data.codes import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from pidkeeper.broker_agent.data.topics import Topics, log_of
from pidkeeper.broker_agent.kafka.wire.data.delete_records import (
    HIGH_WATERMARK,
    DeleteRecordsRequest,
    PartitionEnd,
    PartitionLowWatermark,
    TopicLowWatermarks,
)
from pidkeeper.protocol import segment_messages
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.segment_messages import DeletedRecords
from pidkeeper.protocol.segments import MAX_LOG_STARTS

_UNKNOWN: Final = DeletedRecords(UNKNOWN_TOPIC_OR_PARTITION, -1)


class RecordDeleter:
    """Serves DeleteRecords requests."""

    def __init__(self, calls: LogCalls, topics: Topics) -> None:
        self._calls = calls
        self._topics = topics

    async def delete_records(self, request: DeleteRecordsRequest) -> list[TopicLowWatermarks]:
        """The outcome for each partition. Of one that is named twice the last offset counts, as in Kafka."""
        wanted = [(topic.topic, one) for topic in request.topics for one in topic.partitions]
        try:
            rest = iter(await self._deleted(wanted))
        except RequestError as error:
            rest = iter([PartitionLowWatermark(one.partition, error_code=error.code.kafka_code) for _, one in wanted])
        return [TopicLowWatermarks(topic.topic, [next(rest) for _ in topic.partitions]) for topic in request.topics]

    async def _deleted(self, wanted: Sequence[tuple[str, PartitionEnd]]) -> list[PartitionLowWatermark]:
        topics = await self._topics.find(topic for topic, _ in wanted)
        logs = [log_of(topics.get(topic), one.partition) for topic, one in wanted]
        ends = {log: one.offset for log, (_, one) in zip(logs, wanted, strict=True) if log is not None}
        deleted: dict[int | None, DeletedRecords] = {
            log: DeletedRecords(OFFSET_OUT_OF_RANGE, -1) for log, offset in ends.items() if offset < HIGH_WATERMARK
        }
        asked = [(log, offset) for log, offset in ends.items() if offset >= HIGH_WATERMARK]
        for first in range(0, len(asked), MAX_LOG_STARTS):
            part = asked[first : first + MAX_LOG_STARTS]
            deleted |= zip((log for log, _ in part), await self._asked(part), strict=True)
        outcomes = []
        for log, (topic, one) in zip(logs, wanted, strict=True):
            found = deleted.get(log, _UNKNOWN)
            if log is not None and found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self._topics.forget(topic)
            outcomes.append(PartitionLowWatermark(one.partition, found.log_start, found.error_code))
        return outcomes

    async def _asked(self, logs: Sequence[tuple[int, int]]) -> list[DeletedRecords]:
        """The quorum's outcome for each log. What it refuses as a whole, each log is refused with."""
        try:
            broker_id, epoch = self._topics.asker()
            request = segment_messages.DeleteRecordsRequest(broker_id, epoch, tuple(logs))
            answer = await self._topics.told(self._calls.delete_records(request), epoch)
            if len(answer.logs) != len(logs):
                raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, "the quorum's answer makes no sense")
        except RequestError as error:
            return [DeletedRecords(error.code.kafka_code, -1)] * len(logs)
        return answer.logs
