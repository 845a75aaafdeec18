"""Encodes Kafka log segments: record batches of format 2, markers, and messages of formats 0 and 1.

Written from the format's description alone, without the reader's constants: what both agree on is not one typing error.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import BinaryIO, Final

import google_crc32c

NO_PRODUCER: Final = (-1, -1, -1)
START_MS: Final = 1_700_000_000_000
BULK_PIECE_BATCHES: Final = 20_000


def varint(value: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append((rest & 0x7F) | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def record(offset_delta: int, value: bytes, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    """One record without headers."""
    key_part = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + key_part + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    base_offset: int,
    values: Sequence[bytes] = (b"value",),
    *,
    producer: tuple[int, int, int] = NO_PRODUCER,
    transactional: bool = False,
    compression: int = 0,
    log_append_time: bool = False,
    delete_horizon: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    base_timestamp: int = START_MS,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A batch with the right length and CRC. `producer`: id, epoch, base sequence.

    `payload` stands for the records as they are on disk, of which there are `record_count`; with a compression it need
    not be compressed in truth, nobody who reads headers looks.
    """
    body = payload if payload is not None else b"".join(record(delta, value) for delta, value in enumerate(values))
    count = len(values) if record_count is None else record_count
    attributes = compression | log_append_time << 3 | transactional << 4 | control << 5 | delete_horizon << 6
    covered = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            max(count - 1, 0) if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            base_timestamp if max_timestamp is None else max_timestamp,
            *producer,
            count,
        )
        + body
    )
    crc = google_crc32c.value(covered)
    return struct.pack(">qiibI", base_offset, len(covered) + 9, leader_epoch, 2, crc) + covered


def marker(
    base_offset: int,
    producer: tuple[int, int],
    *,
    commit: bool,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    kind: int | None = None,
) -> bytes:
    """The control batch that ends a transaction. `kind` overrides the control record's type."""
    key = struct.pack(">hh", 0, int(commit) if kind is None else kind)
    content = record(0, struct.pack(">hi", 0, coordinator_epoch), key)
    return batch(
        base_offset,
        producer=(*producer, -1),
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
        payload=content,
        record_count=1,
    )


def old_message(magic: int, offset: int, value: bytes = b"old", key: bytes = b"") -> bytes:
    """A message of format 0 or 1; its CRC is the one of zlib."""
    covered = struct.pack(">bb", magic, 0) + (struct.pack(">q", START_MS) if magic else b"")
    covered += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered)) + covered


def write_many(file: BinaryIO, count: int, *, producers: int = 1000, records: int = 5, record_bytes: int = 20) -> int:
    """Write `count` idempotent batches of `records` records that follow one another lawfully; the bytes written.

    Producer p writes every `producers`-th batch. The CRC of every batch is right; only what differs is packed again.
    """
    template = bytearray(batch(0, [b"x" * record_bytes] * records, producer=(0, 0, 0)))
    size = len(template)
    first, crc_at, covered_at, producer_at, sequence_at = struct.Struct(">q"), 17, 21, 43, 53
    packed_crc, packed_sequence, crc32c = struct.Struct(">I"), struct.Struct(">i"), google_crc32c.value
    written = 0
    for start in range(0, count, BULK_PIECE_BATCHES):
        piece = bytearray()
        for number in range(start, min(start + BULK_PIECE_BATCHES, count)):
            turn, producer = divmod(number, producers)
            first.pack_into(template, 0, number * records)
            first.pack_into(template, producer_at, producer)
            packed_sequence.pack_into(template, sequence_at, turn * records & 0x7FFFFFFF)
            packed_crc.pack_into(template, crc_at, crc32c(bytes(template[covered_at:])))
            piece += template
        written += file.write(piece)
    assert written == count * size, f"{written} bytes written of {count} batches of {size}"
    return written
