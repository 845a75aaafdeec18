"""Produce requests that differ from earlier ones in their correlation id and records alone. Pure.

A producer that writes to one partition at a time sends the same bytes up to the records, with every batch. They are
read once: where they come again, what they say is known, and so is where the records are.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from pidkeeper.broker_agent.kafka.wire.data.frames import MAX_PRODUCE_FRAME_BYTES
from pidkeeper.broker_agent.kafka.wire.data.produce import (
    VERSIONS,
    PartitionRecords,
    ProduceRequest,
    TopicRecords,
)
from pidkeeper.service.kafka.wire.headers import RequestHeader
from pidkeeper.service.kafka.wire.primitives import MAX_VARINT_BYTES

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
    flexible: bool

    def read(self, data: bytes, start: int, records_at: int, end: int) -> tuple[RequestHeader, ProduceRequest] | None:
        """The request of a frame that has this head; None if its records are not all that is behind that."""
        if self.flexible:
            if data[end - len(_NO_TAGS) : end] != _NO_TAGS:
                return None
            end -= len(_NO_TAGS)
            begin = _behind_compact_length(data, records_at, end)
        else:
            begin = records_at + 4
            if int.from_bytes(data[records_at:begin], "big") != end - begin:
                return None
        if not 0 <= begin <= end:
            return None
        correlation_id = int.from_bytes(data[start + _ID_AT : start + _HEAD_AT], "big", signed=True)
        (topic,) = self.request.topics
        topics = [TopicRecords(topic.topic, [PartitionRecords(topic.partitions[0].partition, data[begin:end])])]
        header = RequestHeader(self.header.api_key, self.header.api_version, correlation_id, self.header.client_id)
        known = self.request
        return header, ProduceRequest(known.transactional_id, known.acks, known.timeout_ms, topics, known.joining)


def _behind_compact_length(data: bytes, start: int, end: int) -> int:
    """Where the records begin whose length is at `start`, if they reach to `end`; -1 if they do not."""
    value = 0
    for at in range(start, min(start + MAX_VARINT_BYTES, end)):
        byte = data[at]
        value |= (byte & 0x7F) << (7 * (at - start))
        if byte < 0x80:
            return at + 1 if value - 1 == end - (at + 1) else -1
    return -1


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
            if head is not None and end - start <= 4 + MAX_PRODUCE_FRAME_BYTES:
                return head.read(data, start, records_at, end)
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
        topic, flexible = request.topics[0], VERSIONS.is_flexible(header.api_version)
        bare = TopicRecords(topic.topic, [PartitionRecords(topic.partitions[0].partition, None)])
        self._heads[_key(data, start, records_at)] = _Head(header, replace(request, topics=[bare]), flexible)


def _key(data: bytes, start: int, records_at: int) -> bytes:
    """API key, version, and the head."""
    return data[start + _VERSION_AT : start + _ID_AT] + data[start + _HEAD_AT : records_at]
