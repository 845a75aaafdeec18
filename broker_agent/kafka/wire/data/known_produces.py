"""Produce requests that differ from earlier ones in their correlation id and records alone. Pure.

A producer that writes to one partition at a time sends the same bytes up to the records, with every batch. They are
read once: where they come again, what they say is known, and so is where the records are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from pidkeeper.broker_agent.kafka.wire.data.frames import RecordsReader
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    VERSIONS,
    PartitionRecords,
    ProduceRequest,
    TopicRecords,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.primitives import WireError

MAX_HEADS: Final = 1024
"""Remembered: one for each client id and partition in use. All are forgotten when there are more: that costs a reading
each."""

MAX_HEAD_BYTES: Final = 512
"""Longest one remembered (client id and topic have 249 characters at most), so all stay under 1 MiB."""

MAX_SIZES: Final = 4
"""Different lengths of heads, each of which is tried. What has another one is not remembered."""

_VERSION_AT: Final = 4
_ID_AT: Final = 8
_HEAD_AT: Final = 12
"""In a frame: behind its length are API key and version, the correlation id, and then the head."""

_NO_TAGS: Final = bytes(3)
"""Behind the records, of the partition, its topic and the request."""


class _Head(NamedTuple):
    """What a head says. The correlation id and the records in it are of the request that was read."""

    header: RequestHeader
    request: ProduceRequest

    def read(self, data: bytes, start: int, records_at: int, end: int) -> tuple[RequestHeader, ProduceRequest]:
        """The request of a frame that has this head. Raises WireError."""
        flexible = VERSIONS.is_flexible(self.header.api_version)
        reader = RecordsReader(data, start=records_at, end=end)
        records = reader.nullable_records(flexible=flexible)
        reader.expect(_NO_TAGS if flexible else b"")
        correlation_id = int.from_bytes(data[start + _ID_AT : start + _HEAD_AT], "big", signed=True)
        (topic,) = self.request.topics
        topics = [TopicRecords(topic.topic, [PartitionRecords(topic.partitions[0].partition, records)])]
        header = RequestHeader(self.header.api_key, self.header.api_version, correlation_id, self.header.client_id)
        known = self.request
        return header, ProduceRequest(known.transactional_id, known.acks, known.timeout_ms, topics, known.joining)


class KnownProduces:
    """The heads that were met."""

    def __init__(self) -> None:
        self._heads: dict[bytes, _Head] = {}
        self._sizes: set[int] = set()

    def read(self, data: bytes, start: int, end: int) -> tuple[RequestHeader, ProduceRequest] | None:
        """The request in a whole frame whose head was met; None for any other, and for what is not in order."""
        for size in self._sizes:
            records_at = start + _HEAD_AT + size
            head = self._heads.get(_key(data, start, records_at))
            if head is not None:
                try:
                    return head.read(data, start, records_at, end)
                except WireError:
                    return None
        return None

    def learn(self, data: bytes, start: int, records_at: int, header: RequestHeader, request: ProduceRequest) -> None:
        """Remember the head of a frame, whose last records begin with their length at `records_at`, if it is of one
        partition."""
        size = records_at - start - _HEAD_AT
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1 or size > MAX_HEAD_BYTES:
            return
        if size not in self._sizes and len(self._sizes) >= MAX_SIZES:
            return
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
            self._sizes.clear()
        self._sizes.add(size)
        topic = request.topics[0]
        bare = TopicRecords(topic.topic, [PartitionRecords(topic.partitions[0].partition, None)])
        self._heads[_key(data, start, records_at)] = _Head(header, replace(request, topics=[bare]))


def _key(data: bytes, start: int, records_at: int) -> bytes:
    """API key, version, and the head."""
    return data[start + _VERSION_AT : start + _ID_AT] + data[start + _HEAD_AT : records_at]
