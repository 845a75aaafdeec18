"""A snapshot of the producer state, byte by byte. Integers are big-endian.

    offset  size
    0       8     magic `PIDPSTAT`
    8       2     format version, u16
    10      2     bytes of the partition's name, u16
    12      4     producers, u32
    16      4     unreplicated transactions, u32
    20      8     end offset: the log is covered up to there, it excluded, i64
    28            the partition's name, UTF-8
    ...     per producer, least recently appended first: producer id i64, epoch i16, coordinator epoch i32 (-1: none),
            last timestamp i64, first offset of the open transaction i64 (-1: none), retained batches u8; and per
            batch, oldest first: first sequence i32, last sequence i32, last offset i64, timestamp i64
    ...     16    per unreplicated transaction: first offset i64, offset of the marker i64
    ...     4     CRC32C of all bytes above, u32

The bytes end there. Kafka's own snapshot keeps one batch per producer, and no completed transactions: after a restart
it knows only the last batch again as a duplicate. Here all five are kept, so a restart changes no answer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import google_crc32c
import msgspec

from pidkeeper.broker_agent.producer_state.batches import (
    BATCHES_TO_RETAIN,
    MAX_COORDINATOR_EPOCH,
    MAX_OFFSET,
    MAX_PRODUCER_EPOCH,
    MAX_SEQUENCE,
    MAX_TIMESTAMP,
    NO_COORDINATOR_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchMetadata,
    ProducerStateEntry,
    check_range,
)
from pidkeeper.broker_agent.producer_state.transactions import MAX_UNREPLICATED
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

PRODUCER_SNAPSHOT_VERSION: Final = 1
MAX_PARTITION_BYTES: Final = 260
"""A topic's 249 characters (Kafka's `Topic.MAX_NAME_LENGTH`), a dash and the ten digits of an int32."""

_MAGIC: Final = b"PIDPSTAT"
_HEADER: Final = struct.Struct(">8sHHIIq")
_ENTRY: Final = struct.Struct(">qhiqqB")
_BATCH: Final = struct.Struct(">iiqq")
_TRANSACTION: Final = struct.Struct(">qq")
_CHECKSUM: Final = struct.Struct(">I")
_NO_OFFSET: Final = -1


class ProducerSnapshotError(ValueError):
    """Bytes that are no usable snapshot of this partition. The message says what is wrong with them."""


class ProducerSnapshot(msgspec.Struct, frozen=True):
    """What a snapshot holds. `unreplicated`: (first offset, offset of the marker) of completed transactions."""

    end_offset: int
    entries: tuple[ProducerStateEntry, ...]
    unreplicated: tuple[tuple[int, int], ...]


def max_snapshot_bytes(max_producers: int) -> int:
    """Size of the largest snapshot of `max_producers` producers; longer bytes are refused unread."""
    entries = max_producers * (_ENTRY.size + BATCHES_TO_RETAIN * _BATCH.size)
    return _HEADER.size + MAX_PARTITION_BYTES + entries + MAX_UNREPLICATED * _TRANSACTION.size + _CHECKSUM.size


def encode_partition(partition: str) -> bytes:
    """The name in a snapshot. Raises ValueError for an empty one or one above MAX_PARTITION_BYTES."""
    name = partition.encode()
    if not 1 <= len(name) <= MAX_PARTITION_BYTES:
        raise ValueError(f"a partition's name has 1 to {MAX_PARTITION_BYTES} bytes, this one {len(name)}")
    return name


def encode_snapshot(
    partition: str, end_offset: int, entries: Sequence[ProducerStateEntry], unreplicated: Sequence[tuple[int, int]]
) -> bytes:
    """The bytes that keep the state: the same bytes for the same state."""
    name = encode_partition(partition)
    parts = [
        _HEADER.pack(_MAGIC, PRODUCER_SNAPSHOT_VERSION, len(name), len(entries), len(unreplicated), end_offset),
        name,
    ]
    for entry in entries:
        first = _NO_OFFSET if entry.txn_first_offset is None else entry.txn_first_offset
        head = (entry.producer_id, entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp, first)
        parts.append(_ENTRY.pack(*head, len(entry.batches)))
        parts.extend(
            _BATCH.pack(batch.first_sequence, batch.last_sequence, batch.last_offset, batch.timestamp)
            for batch in entry.batches
        )
    parts.extend(_TRANSACTION.pack(first, last) for first, last in unreplicated)
    data = b"".join(parts)
    return data + _CHECKSUM.pack(google_crc32c.value(data))


def decode_snapshot(data: bytes, partition: str, max_producers: int) -> ProducerSnapshot:
    """What `encode_snapshot` wrote for this partition. Raises ProducerSnapshotError for anything else."""
    try:
        return _decode(data, partition, max_producers)
    except (ValueError, struct.error) as error:
        raise ProducerSnapshotError(f"producer snapshot of {partition}: {error}") from error


def _decode(data: bytes, partition: str, max_producers: int) -> ProducerSnapshot:
    if not _HEADER.size + _CHECKSUM.size <= len(data) <= max_snapshot_bytes(max_producers):
        raise ValueError(f"{len(data)} bytes are none: the header is longer, or the limit of {max_producers} producers")
    magic, version, name_bytes, producers, transactions, end_offset = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError(f"it does not start with {_MAGIC!r} but with {magic!r}")
    body = len(data) - _CHECKSUM.size
    if data[body:] != _CHECKSUM.pack(google_crc32c.value(data[:body])):
        raise ValueError("the checksum does not match the content: it is damaged or incomplete")
    if version != PRODUCER_SNAPSHOT_VERSION:
        raise ValueError(f"unknown version {version}: this build reads version {PRODUCER_SNAPSHOT_VERSION}")
    if producers > max_producers or transactions > MAX_UNREPLICATED:
        raise ValueError(
            f"{producers} producers and {transactions} transactions are above the limits of {max_producers} and "
            f"{MAX_UNREPLICATED}"
        )
    check_range("end offset", end_offset, 0, MAX_OFFSET + 1)
    position = _HEADER.size + name_bytes
    name = data[_HEADER.size : position]
    if name != encode_partition(partition):
        raise ValueError(f"it is of the partition {name!r}")
    entries = []
    for _ in range(producers):
        entry, position = _decode_entry(data, position, end_offset)
        entries.append(entry)
    if position + transactions * _TRANSACTION.size != body:
        raise ValueError(f"its entries end at byte {position} of {body}, with {transactions} transactions to come")
    unreplicated = tuple(_TRANSACTION.iter_unpack(data[position:body]))
    _check_together(entries, unreplicated, end_offset)
    return ProducerSnapshot(end_offset, tuple(entries), unreplicated)


def _decode_entry(data: bytes, position: int, end_offset: int) -> tuple[ProducerStateEntry, int]:
    producer_id, epoch, coordinator_epoch, last_timestamp, first, count = _ENTRY.unpack_from(data, position)
    position += _ENTRY.size
    check_range("producer id", producer_id, 0, MAX_PRODUCER_ID)
    check_range("producer epoch", epoch, 0, MAX_PRODUCER_EPOCH)
    check_range("coordinator epoch", coordinator_epoch, NO_COORDINATOR_EPOCH, MAX_COORDINATOR_EPOCH)
    check_range("last timestamp", last_timestamp, NO_TIMESTAMP, MAX_TIMESTAMP)
    check_range("first offset of a transaction", first, _NO_OFFSET, end_offset - 1)
    check_range("number of batches", count, 0, BATCHES_TO_RETAIN)
    batches = []
    lowest = 0
    for _ in range(count):
        batch = BatchMetadata(*_BATCH.unpack_from(data, position))
        position += _BATCH.size
        check_range("first sequence", batch.first_sequence, NO_SEQUENCE, MAX_SEQUENCE)
        sequences = (NO_SEQUENCE, NO_SEQUENCE) if batch.first_sequence == NO_SEQUENCE else (0, MAX_SEQUENCE)
        check_range("last sequence", batch.last_sequence, *sequences)
        check_range("last offset", batch.last_offset, lowest, end_offset - 1)
        check_range("timestamp", batch.timestamp, NO_TIMESTAMP, MAX_TIMESTAMP)
        lowest = batch.last_offset + 1
        batches.append(batch)
    opened = None if first == _NO_OFFSET else first
    entry = ProducerStateEntry(producer_id, epoch, coordinator_epoch, last_timestamp, opened, tuple(batches))
    return entry, position


def _check_together(
    entries: Sequence[ProducerStateEntry], unreplicated: Sequence[tuple[int, int]], end_offset: int
) -> None:
    if len({entry.producer_id for entry in entries}) != len(entries):
        raise ValueError("it names a producer twice")
    opened = [entry.txn_first_offset for entry in entries if entry.txn_first_offset is not None]
    if len(set(opened)) != len(opened):
        raise ValueError("two of its transactions begin at the same offset")
    before = (-1, -1)
    for first, last in unreplicated:
        if not (before[0] < first <= last < end_offset and before[1] < last):
            raise ValueError(f"its completed transaction {first} to {last} is out of order or behind the end")
        before = (first, last)
