"""The records in what Fetch answers, as a consumer sees them (Kafka documentation, "Message Format"). No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from pidkeeper.broker_agent.kafka.wire.data.decompression import UnreadableError, decompressed
from pidkeeper.broker_agent.kafka.wire.data.fetch import AbortedTransaction
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    BatchHeader,
    TimestampType,
    check_crc,
    read_batch_header,
)

MAX_VARINT_BYTES: Final = 10
"""A zigzag varint of 64 bits has seven of them in a byte."""

ABORT: Final = 0
COMMIT: Final = 1
"""Types in the key of a control record (KIP-98)."""

_ENDS: Final[dict[int, Literal["ABORT", "COMMIT"]]] = {ABORT: "ABORT", COMMIT: "COMMIT"}


class Header(msgspec.Struct, frozen=True):
    """One header of a record."""

    key: bytes
    value: bytes | None


class LogRecord(msgspec.Struct, frozen=True):
    """One record, or the end of a transaction. `timestamp_ms`: since 1970; ids and epochs are -1 for none."""

    offset: int
    type: Literal["RECORD", "COMMIT", "ABORT", "CONTROL"]
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def batches(buffer: Buffer) -> Iterator[BatchHeader]:
    """The headers of the whole batches in `buffer`, whose last one may be cut off. Raises WireError."""
    at = 0
    while len(buffer) - at >= PREFIX_BYTES:
        size = PREFIX_BYTES + int.from_bytes(buffer[at + 8 : at + PREFIX_BYTES], "big", signed=True)
        if size > len(buffer) - at:
            return
        header = read_batch_header(buffer, at)
        yield header
        at = header.end


def records_of(buffer: Buffer, header: BatchHeader) -> Iterator[LogRecord]:
    """The records of a batch. Raises WireError for a wrong CRC, UnreadableError, and MissingCodecError."""
    check_crc(buffer, header)
    data = decompressed(buffer[header.position + HEADER_BYTES : header.end], header.compression)
    reader = _RecordReader(data)
    for _ in range(header.records_count):
        yield reader.record(header)
    reader.finish()


def record_times(buffer: Buffer, header: BatchHeader, limit: int) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record of a batch, nothing else of which is read; its records have `limit` bytes.

    Raises UnreadableError, and MissingCodecError.
    """
    data = decompressed(buffer[header.position + HEADER_BYTES : header.end], header.compression, limit)
    reader = _RecordReader(data)
    for _ in range(header.records_count):
        yield reader.time(header)


class Aborted:
    """Which batches of one answer belong to transactions that were aborted (KIP-98, as Kafka's consumer finds them)."""

    def __init__(self, transactions: Sequence[AbortedTransaction]) -> None:
        self._to_come = sorted(transactions, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def has(self, header: BatchHeader) -> bool:
        """Whether the next batch does. Batches come in the order of their offsets."""
        while self._to_come and self._to_come[-1].first_offset <= header.last_offset:
            self._open.add(self._to_come.pop().producer_id)
        return header.is_transactional and not header.is_control and header.producer_id in self._open

    def end(self, producer_id: int) -> None:
        """The marker of an aborted transaction was passed."""
        self._open.discard(producer_id)


class _RecordReader:
    """Reads records one after another. Raises UnreadableError instead of reading past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def record(self, batch: BatchHeader) -> LogRecord:
        """The next record."""
        length = self._varint()
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise UnreadableError(f"a record of {length} bytes, {len(self._data) - self._at} are there")
        self._take(1)  # Attributes, none of which is in use.
        timestamp_ms = batch.base_timestamp + self._varint()
        if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
            timestamp_ms = batch.max_timestamp
        offset = batch.base_offset + self._varint()
        key, value = self._nullable_bytes(), self._nullable_bytes()
        headers = self._headers(end)
        if self._at != end:
            raise UnreadableError(f"a record ends at byte {self._at}, and tells {end}")
        return LogRecord(
            offset,
            _type(batch, key),
            timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.is_transactional,
            key,
            value,
            headers,
        )

    def time(self, batch: BatchHeader) -> tuple[int, int]:
        """Offset and timestamp of the next record."""
        length = self._varint()
        start = self._at
        self._take(1)
        timestamp_ms = batch.base_timestamp + self._varint()
        if batch.timestamp_type == TimestampType.LOG_APPEND_TIME:
            timestamp_ms = batch.max_timestamp
        offset = batch.base_offset + self._varint()
        if not self._at - start <= length <= len(self._data) - start:
            raise UnreadableError(f"a record of {length} bytes, {len(self._data) - start} are there")
        self._at = start + length
        return offset, timestamp_ms

    def finish(self) -> None:
        """Raise UnreadableError unless all was read."""
        if self._at != len(self._data):
            raise UnreadableError(f"{len(self._data) - self._at} bytes are left over")

    def _headers(self, end: int) -> list[Header]:
        count = self._varint()
        # Each takes two bytes at least.
        if not 0 <= count <= (end - self._at) // 2:
            raise UnreadableError(f"a record of {count} headers, {end - self._at} bytes are there for them")
        return [Header(self._nullable_bytes() or b"", self._nullable_bytes()) for _ in range(count)]

    def _nullable_bytes(self) -> bytes | None:
        length = self._varint()
        return None if length == -1 else self._take(length)

    def _take(self, size: int) -> bytes:
        start = self._at
        if not 0 <= size <= len(self._data) - start:
            raise UnreadableError(f"{size} bytes wanted at {start}, {len(self._data) - start} are there")
        self._at += size
        return self._data[start : self._at]

    def _varint(self) -> int:
        value = 0
        for index in range(MAX_VARINT_BYTES):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise UnreadableError(f"the varint that ends at {self._at} is longer than {MAX_VARINT_BYTES} bytes")


def _type(batch: BatchHeader, key: bytes | None) -> Literal["RECORD", "COMMIT", "ABORT", "CONTROL"]:
    """Of a control record the key is version and type, an INT16 each."""
    if not batch.is_control:
        return "RECORD"
    if key is None or len(key) < 4:
        raise UnreadableError("a control record without a type")
    return _ENDS.get(int.from_bytes(key[2:4], "big", signed=True), "CONTROL")
