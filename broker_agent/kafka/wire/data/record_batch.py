"""Record batches of magic 2 (KIP-98; Kafka documentation, "Message Format"): read and written.

All integers are big-endian:

     0  int64   base offset              21  int16  attributes        51  int16  producer epoch
     8  int32   length from byte 12 on   23  int32  last offset delta 53  int32  base sequence
    12  int32   partition leader epoch   27  int64  base timestamp    57  int32  record count
    16  int8    magic                    35  int64  max timestamp     61  records, compressed if attributes say so
    17  uint32  CRC-32C of 21..end       43  int64  producer id

Whoever appends a batch gives it base offset and leader epoch; the producer's CRC covers neither.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer
from pidkeeper.service.kafka.wire.primitives import WireError

HEADER_BYTES: Final = 61
PREFIX_BYTES: Final = 12
"""Base offset and length: what the length does not count."""
MAGIC: Final = 2

MAX_SEQUENCE: Final = 2**31 - 1

NO_LEADER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

CORRUPT_MESSAGE: Final = 2
UNSUPPORTED_FOR_MESSAGE_FORMAT: Final = 43
INVALID_RECORD: Final = 87

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_HEAD: Final = struct.Struct(">qii")
"""Base offset, length and leader epoch."""
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_CRC: Final = struct.Struct(">bI")
_MAGIC_AT: Final = 16
_COVERED_FROM: Final = 21

_COMPRESSION: Final = 0x07
_LAST_COMPRESSION: Final = 4
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_SPECIAL: Final = _LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL

_CRC_PIECE_BYTES: Final = 64 * 1024
"""The CRC takes nothing but bytes, so a view is copied piece by piece; this much stays in the processor's cache."""

_CONTROL_RECORD: Final = struct.Struct(">5BhhBhiB")
"""Length, attributes, timestamp and offset delta; length of the key, its version and type; length of the value, its
version and the coordinator epoch; number of headers. The lengths are zigzag varints of one byte."""
_ABORT: Final = 0
_COMMIT: Final = 1


class Compression(enum.IntEnum):
    """How the records behind the header are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(enum.IntEnum):
    """Whose clock the timestamps are from: the producer's, or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchError(WireError):
    """Not a batch that can be appended. `error_code`: Kafka's, for the partition's answer."""

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.error_code: Final = error_code


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """One header, with the `position` of its batch in the buffer. Timestamps in ms since 1970; ids are -1 for none."""

    position: int
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return PREFIX_BYTES + self.batch_length

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record: 0 follows MAX_SEQUENCE; NO_SEQUENCE if the first has none."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def compression(self) -> Compression:
        return Compression(self.attributes & _COMPRESSION)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_plain(self) -> bool:
        """Whether its records are a producer's, with the timestamps that it gave them, and of no transaction."""
        return not self.attributes & _SPECIAL

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker, which no producer may write, instead of records."""
        return bool(self.attributes & _CONTROL)


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, all of which must be there. Raises BatchError; the CRC is not checked."""
    there = len(buffer) - position
    if there > _MAGIC_AT and (magic := buffer[position + _MAGIC_AT]) != MAGIC:
        code = UNSUPPORTED_FOR_MESSAGE_FORMAT if magic < MAGIC else CORRUPT_MESSAGE
        raise BatchError(code, f"the batch at {position} has magic {magic}, and only {MAGIC} is taken")
    if there < HEADER_BYTES:
        raise BatchError(
            CORRUPT_MESSAGE, f"the batch at {position} is truncated: {there} bytes, and a header takes {HEADER_BYTES}"
        )
    header = BatchHeader(position, *_HEADER.unpack_from(buffer, position))
    if (size := header.size) < HEADER_BYTES:
        raise BatchError(CORRUPT_MESSAGE, f"the batch at {position} tells a length of {header.batch_length}")
    if size > there:
        raise BatchError(CORRUPT_MESSAGE, f"the batch at {position} is truncated: {there} bytes, where it tells {size}")
    _check_counts(header)
    return header


def _check_counts(header: BatchHeader) -> None:
    """Raise BatchError for what a producer never makes; compaction, which does, is not offered here."""
    if header.attributes & _COMPRESSION > _LAST_COMPRESSION:
        raise BatchError(CORRUPT_MESSAGE, f"the batch at {header.position} has an unknown compression")
    if header.records_count < 1:
        raise BatchError(INVALID_RECORD, f"the batch at {header.position} tells {header.records_count} records")
    if header.last_offset_delta != header.records_count - 1:
        raise BatchError(
            INVALID_RECORD,
            f"the batch at {header.position} tells {header.records_count} records and a last offset delta of "
            f"{header.last_offset_delta}",
        )


def check_crc(buffer: Buffer, header: BatchHeader) -> None:
    """Raise BatchError unless the batch of `header` in `buffer` is as its producer made it."""
    computed, end = 0, header.end
    for start in range(header.position + _COVERED_FROM, end, _CRC_PIECE_BYTES):
        piece = buffer[start : min(start + _CRC_PIECE_BYTES, end)]
        computed = google_crc32c.extend(computed, bytes(piece))
    if computed != header.crc:
        raise BatchError(
            CORRUPT_MESSAGE, f"the batch at {header.position} has CRC {header.crc:08x}, its bytes {computed:08x}"
        )


def with_base_offset(batch: Buffer, base_offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> bytes:
    """The one batch that `batch` is, with the offset of its first record and the leader epoch in their places."""
    length = len(batch) - PREFIX_BYTES
    return b"".join((_HEAD.pack(base_offset, length, leader_epoch), memoryview(batch)[_HEAD.size :]))


def control_batch(
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    base_offset: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The marker that ends a transaction in a partition: a batch of one record, 78 bytes.

    The record is Kafka's EndTxnMarker, version 0: its key tells the type, its value the coordinator epoch.
    """
    kind = _COMMIT if committed else _ABORT
    record = _CONTROL_RECORD.pack(2 * 16, 0, 0, 0, 2 * 4, 0, kind, 2 * 6, 0, coordinator_epoch, 0)
    covered = _AFTER_CRC.pack(
        _TRANSACTIONAL | _CONTROL, 0, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE, 1
    )
    covered += record
    head = _HEAD.pack(base_offset, HEADER_BYTES - PREFIX_BYTES + len(record), leader_epoch)
    return head + _CRC.pack(MAGIC, google_crc32c.value(covered)) + covered
