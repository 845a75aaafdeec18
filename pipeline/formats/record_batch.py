"""Headers of the record batches (magic 2) in a Kafka log segment.

A segment is record batches one after another. All integers are big-endian (Kafka documentation, "Message format"):

     0  int64   base offset              21  int16  attributes        51  int16  producer epoch
     8  int32   length from byte 12 on   23  int32  last offset delta 53  int32  base sequence
    12  int32   partition leader epoch   27  int64  base timestamp    57  int32  record count
    16  int8    magic                    35  int64  max timestamp     61  records, compressed if attributes say so
    17  uint32  CRC-32C of 21..end       43  int64  producer id

Attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 the base timestamp is a delete
horizon. The broker writes base offset and leader epoch after the producer made the CRC, so it covers neither these nor
length and magic. Nothing needs decompression: a control batch, whose record says commit or abort, is never compressed.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from typing import Final

import msgspec

HEADER_BYTES: Final = 61
PREFIX_BYTES: Final = 12
"""Base offset and length: what `length` does not count."""
MAGIC: Final = 2
LEAST_LENGTH: Final = HEADER_BYTES - PREFIX_BYTES
LEAST_OLD_LENGTH: Final = {0: 14, 1: 22}
"""CRC, magic, attributes, in version 1 a timestamp, and the lengths of key and value."""

SEGMENT_OFFSETS: Final = 1 << 31
"""A segment holds offsets below its base offset plus this: its index stores them as int32."""
MAX_SEQUENCE: Final = (1 << 31) - 1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
KNOWN_ATTRIBUTES: Final = 0x7F

MARKERS: Final = {0: "abort", 1: "commit"}
"""Other control records are KRaft's own and concern no producer."""

FIELDS: Final = {
    "base_offset": (0, "q"),
    "batch_length": (8, "i"),
    "partition_leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_offset_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "record_count": (57, "i"),
}
"""Byte and type code (of `struct` and `array`) of every field of the header, in the order of the disk."""
_HEADER: Final = struct.Struct(">" + "".join(code for _, code in FIELDS.values()))
START: Final = struct.Struct(">qiibIhi")
"""The first seven fields: all that walking over batches needs."""
AFTER_CRC: Final = 21
"""Where the bytes begin that the CRC covers."""
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_VALUE: Final = struct.Struct(">hi")
_MAX_VARINT_BYTES: Final = 10

assert _HEADER.size == HEADER_BYTES
assert all(array(code).itemsize == struct.calcsize(">" + code) for _, code in FIELDS.values())


class Problem(msgspec.Struct, frozen=True):
    """What is not a good batch. `position` is the byte at which it starts; log_segment.py lists the kinds."""

    kind: str
    position: int
    detail: str


class Marker(msgspec.Struct, frozen=True):
    """The control record of batch number `row` of a chunk. `coordinator_epoch` is None unless `type` is in MARKERS."""

    row: int
    type: int
    coordinator_epoch: int | None


class BatchHeader(msgspec.Struct, frozen=True):
    """One header, field by field, with the position of the batch in the file; timestamps in milliseconds."""

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
    record_count: int
    marker_type: int | None = None
    coordinator_epoch: int | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 if there are none."""
        return last_sequence(self.base_sequence, self.last_offset_delta)


class Chunk(msgspec.Struct):
    """Good batches in the order of the file, as columns, and the problems between them.

    `headers` holds HEADER_BYTES a batch exactly as on disk; `positions` is int64.
    """

    headers: bytearray = msgspec.field(default_factory=bytearray)
    positions: array[int] = msgspec.field(default_factory=lambda: array("q"))
    markers: list[Marker] = msgspec.field(default_factory=list)
    problems: list[Problem] = msgspec.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.positions)

    def column(self, name: str) -> array[int]:
        """One field of all batches in the machine's byte order, without a Python object a value."""
        first, code = FIELDS[name]
        values = array(code)
        width = values.itemsize
        swapped = bytearray(len(self) * width)
        for byte in range(width):
            target = width - 1 - byte if sys.byteorder == "little" else byte
            swapped[target::width] = self.headers[first + byte :: HEADER_BYTES]
        values.frombytes(swapped)
        return values

    def batches(self) -> Iterator[BatchHeader]:
        """The same, an object a batch: for looking at a few."""
        markers = {marker.row: marker for marker in self.markers}
        for row, position in enumerate(self.positions):
            marker = markers.get(row)
            fields = _HEADER.unpack_from(self.headers, row * HEADER_BYTES)
            found = (None, None) if marker is None else (marker.type, marker.coordinator_epoch)
            yield BatchHeader(position, *fields, *found)


def read_header(data: bytes, position: int = 0) -> BatchHeader:
    """The header of the batch that begins at `position`, of which all HEADER_BYTES are there."""
    return BatchHeader(position, *_HEADER.unpack_from(data, position))


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """The sequence of a batch's last record: 0 follows 2147483647; -1 (no sequence) stays -1."""
    return -1 if base_sequence < 0 else (base_sequence + last_offset_delta) & MAX_SEQUENCE


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint at `at`, and the byte behind it. Raises ValueError if it is too long, IndexError if cut off."""
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + count + 1
    raise ValueError(f"a varint at byte {at} of the batch is longer than {_MAX_VARINT_BYTES} bytes")


def read_marker(batch: bytes) -> tuple[int, int | None]:
    """Type and coordinator epoch of the control record that a control batch begins with.

    The record: varint length, int8 attributes, varint timestamp and offset deltas, then key and value, each behind its
    varint length. Key: int16 version, int16 type. Value of commit and abort: int16 version, int32 coordinator epoch.
    Raises ValueError if the batch does not hold that.
    """
    try:
        _, at = _varint(batch, HEADER_BYTES)
        _, at = _varint(batch, at + 1)
        _, at = _varint(batch, at)
        key_bytes, at = _varint(batch, at)
        _, kind = _CONTROL_KEY.unpack_from(batch, at)
        value_bytes, value_at = _varint(batch, at + key_bytes)
        epoch = _CONTROL_VALUE.unpack_from(batch, value_at)[1] if kind in MARKERS else None
    except (IndexError, struct.error) as error:
        raise ValueError(f"the control record is cut off: {error}") from None
    if key_bytes < _CONTROL_KEY.size or (kind in MARKERS and value_bytes < _CONTROL_VALUE.size):
        raise ValueError(
            f"the control record has {key_bytes} bytes of key and {value_bytes} of value, which is too few"
        )
    return kind, epoch
