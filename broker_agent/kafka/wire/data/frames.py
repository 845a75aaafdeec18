"""Frames that hold records: these are copied once where they are read, and written as pieces.

A request with records may be larger than others. A response with records is a sequence of bytes-like pieces, which a
transport writes one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from pidkeeper.service.kafka.wire.headers import RequestHeader, frame_response
from pidkeeper.service.kafka.wire.primitives import Reader, WireError, int32, varint
from pidkeeper.service.kafka.wire.versions import Versions

Buffer: TypeAlias = bytes | memoryview
"""Bytes, or a view of some: one dimension, one byte an item."""

MAX_PRODUCE_FRAME_BYTES: Final = 8 * 1024 * 1024
"""Largest Produce request after its length field. Producers send at most 1 MiB by default (Java's `max.request.size`,
librdkafka's `message.max.bytes`); eight times that leaves room for settings."""


class RecordsReader(Reader):
    """A Reader of a frame with records. `records_at`: where the last ones begin, with their length."""

    __slots__ = ("records_at",)

    def __init__(
        self, data: bytes, limit: int = MAX_PRODUCE_FRAME_BYTES, start: int = 0, end: int | None = None
    ) -> None:
        super().__init__(data, limit, start, end)
        self.records_at = start

    def nullable_records(self, *, flexible: bool) -> bytes | None:
        """RECORDS, or COMPACT_RECORDS where `flexible`: a copy, for a view would keep all that came with it."""
        self.records_at = self._position
        length = self.varint() - 1 if flexible else self.int32()
        if length == -1:
            return None
        if length < 0:
            raise WireError(f"records of {length} bytes at {self._position}")
        start = self._take(length)
        return self._data[start : start + length]


def array_head(count: int, *, flexible: bool) -> bytes:
    """The count in front of an array's elements, compact where `flexible`."""
    return varint(count + 1) if flexible else int32(count)


def records_head(pieces: Sequence[Buffer], *, flexible: bool) -> bytes:
    """The length in front of records that are in `pieces`. It is written as an array's count is."""
    return array_head(sum(map(len, pieces)), flexible=flexible)


def frame_pieces(header: RequestHeader, versions: Versions, body: Sequence[Buffer]) -> list[Buffer]:
    """The response frame around a body in pieces; `versions` are those of the API.

    Raises struct.error above 2 GiB, which the length field cannot tell: whoever gathers the records bounds them.
    """
    head = frame_response(header, versions, b"")[4:]
    return [int32(len(head) + sum(map(len, body))) + head, *body]
