"""Batches that other codecs build are read by ours, and ours by theirs; what is no batch is refused."""

from __future__ import annotations

import struct
import tracemalloc
import warnings
from typing import Any, Final

import aiokafka.codec
import google_crc32c
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    CORRUPT_MESSAGE,
    HEADER_BYTES,
    INVALID_RECORD,
    MAX_SEQUENCE,
    NO_SEQUENCE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    BatchError,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    control_batch,
    read_batch_header,
    with_base_offset,
)
from pidkeeper.service.kafka.wire.primitives import WireError
from tests.support.split_batches import split_batches

with warnings.catch_warnings():
    # kafka-python reads its bundled schemas in a way that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka.record.default_records import DefaultRecordBatch as PythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as PythonBuilder

BUILDERS: Final = {"aiokafka": AioBuilder, "kafka-python": PythonBuilder}
CODECS: Final = {"aiokafka": aiokafka.codec, "kafka-python": kafka.codec}

int64s = st.integers(-(2**63), 2**63 - 1)
timestamps = st.integers(0, 2**42)


def build(
    builder: str = "aiokafka",
    *,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    times: list[int] | None = None,
    value: bytes = b"value",
) -> bytes:
    """A batch with a record at each of `times`."""
    producer_id, epoch, sequence = producer
    made = BUILDERS[builder](
        magic=2,
        compression_type=compression.value,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for delta, timestamp in enumerate(times or [1_700_000_000_000]):
        made.append(delta, timestamp=timestamp, key=b"key", value=value, headers=[])
    return bytes(made.build())


producers = st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, MAX_SEQUENCE))


@pytest.mark.parametrize("builder", BUILDERS)
@settings(max_examples=50)
@given(producers, st.booleans(), st.lists(timestamps, min_size=1, max_size=5))
def test_headers(builder: str, producer: tuple[int, int, int], transactional: bool, times: list[int]) -> None:
    batch = build(builder, producer=producer, transactional=transactional, times=times)
    header = read_batch_header(batch)
    check_crc(batch, header)
    assert header == BatchHeader(
        position=0,
        base_offset=0,
        batch_length=len(batch) - 12,
        partition_leader_epoch=header.partition_leader_epoch,
        magic=2,
        crc=PythonBatch(batch).crc,
        attributes=0x10 if transactional else 0,
        last_offset_delta=len(times) - 1,
        base_timestamp=times[0],
        max_timestamp=max(times),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        records_count=len(times),
    )
    assert (header.size, header.end, header.last_offset) == (len(batch), len(batch), len(times) - 1)
    assert (header.is_transactional, header.is_control) == (transactional, False)
    assert (header.compression, header.timestamp_type) == (Compression.NONE, TimestampType.CREATE_TIME)
    assert header.last_sequence == (producer[2] + len(times) - 1) % 2**31 == PythonBatch(batch).last_sequence


@pytest.mark.parametrize(
    ("builder", "compression"),
    [("aiokafka", each) for each in Compression]
    + [("kafka-python", each) for each in (Compression.GZIP, Compression.ZSTD)],
)
def test_every_compression(builder: str, compression: Compression) -> None:
    name = compression.name.lower()
    if compression != Compression.NONE and not getattr(CODECS[builder], f"has_{name}")():
        pytest.skip(f"{builder} has no {name} here")
    batch = build(builder, compression=compression, times=[5, 6, 7], value=b"a" * 500)
    header = read_batch_header(batch)
    check_crc(batch, header)
    assert header.compression == compression
    assert (header.records_count, header.last_offset_delta) == (3, 2)
    assert (len(batch) < 1000) == (compression != Compression.NONE)


def test_a_batch_without_a_producer_has_no_sequence() -> None:
    header = read_batch_header(build(times=[1, 2, 3]))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, NO_SEQUENCE)
    assert header.last_sequence == NO_SEQUENCE


@pytest.mark.parametrize("builder", BUILDERS)
@settings(max_examples=30)
@given(st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.booleans())
def test_with_base_offset(builder: str, base_offset: int, leader_epoch: int, viewed: bool) -> None:
    batch = build(builder, times=[4, 5])
    moved = with_base_offset(memoryview(batch) if viewed else batch, base_offset, leader_epoch)
    header = read_batch_header(moved)
    check_crc(moved, header)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, leader_epoch)
    assert (moved[8:12], moved[16:]) == (batch[8:12], batch[16:])
    for read in (AioBatch(moved), PythonBatch(moved)):
        assert read.validate_crc()
        assert [record.offset for record in read] == [base_offset, base_offset + 1]


@settings(max_examples=30)
@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.booleans(),
    st.integers(0, 2**62),
    timestamps,
    st.integers(-1, 2**31 - 1),
)
def test_a_marker(
    producer_id: int, epoch: int, committed: bool, base_offset: int, timestamp: int, coordinator_epoch: int
) -> None:
    batch = control_batch(
        producer_id,
        epoch,
        committed=committed,
        base_offset=base_offset,
        timestamp_ms=timestamp,
        coordinator_epoch=coordinator_epoch,
        leader_epoch=8,
    )
    assert len(batch) == 78
    header = read_batch_header(batch)
    check_crc(batch, header)
    assert header.is_control and header.is_transactional and header.last_sequence == NO_SEQUENCE
    assert (header.base_offset, header.partition_leader_epoch, header.records_count) == (base_offset, 8, 1)
    for read in (AioBatch(batch), PythonBatch(batch)):
        assert read.validate_crc() and read.is_control_batch and read.is_transactional
        assert (read.producer_id, read.producer_epoch, read.base_sequence) == (producer_id, epoch, -1)
        (record,) = list(read)
        assert (record.offset, record.timestamp, record.headers) == (base_offset, timestamp, [])
        assert ControlRecord.parse(record.key) == (COMMIT_MARKER if committed else ABORT_MARKER)
        assert record.value == struct.pack(">hi", 0, coordinator_epoch)
    (control,) = list(PythonBatch(batch))
    assert (control.commit, control.abort, control.version) == (committed, not committed, 0)


def test_a_marker_byte_by_byte() -> None:
    batch = control_batch(7, 3, committed=True, base_offset=9, timestamp_ms=5, coordinator_epoch=4, leader_epoch=-1)
    covered = bytes.fromhex(
        "0030 00000000 0000000000000005 0000000000000005 0000000000000007 0003 ffffffff 00000001"
        "20 00 00 00  08 0000 0001  0c 0000 00000004  00"
    )
    crc = google_crc32c.value(covered).to_bytes(4, "big")
    assert batch == bytes.fromhex("0000000000000009 00000042 ffffffff 02") + crc + covered


def test_batches_one_after_another() -> None:
    batches = [build(times=[1]), build("kafka-python", times=[2, 3]), build(compression=Compression.GZIP)]
    buffer = b"".join(batches)
    for data in (buffer, memoryview(buffer), memoryview(b"x" + buffer)[1:]):
        headers = split_batches(data)
        assert [bytes(data[header.position : header.end]) for header in headers] == batches
        assert [header.records_count for header in headers] == [1, 2, 1]
        for header in headers:
            check_crc(data, header)
    assert split_batches(b"") == []


def test_every_truncation_is_refused() -> None:
    batch = build()
    for first in (b"", batch):
        for size in range(1, len(batch)):
            with pytest.raises(BatchError, match=f"at {len(first)} is truncated: {size} bytes"):
                split_batches(first + batch[:size])


def patched(at: int, form: str, value: int, batch: bytes | None = None) -> bytes:
    changed = bytearray(batch or build(times=[1, 2, 3]))
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("batch", "code", "message"),
    [
        (patched(16, ">b", 0), UNSUPPORTED_FOR_MESSAGE_FORMAT, "magic 0, and only 2"),
        (patched(16, ">b", 1)[:30], UNSUPPORTED_FOR_MESSAGE_FORMAT, "magic 1, and only 2"),
        (patched(16, ">b", 3), CORRUPT_MESSAGE, "magic 3"),
        (patched(16, ">b", -1), CORRUPT_MESSAGE, "magic 255"),
        (patched(8, ">i", -1), CORRUPT_MESSAGE, "a length of -1"),
        (patched(8, ">i", -(2**31)), CORRUPT_MESSAGE, "a length of -2147483648"),
        (patched(8, ">i", 0), CORRUPT_MESSAGE, "a length of 0"),
        (patched(8, ">i", HEADER_BYTES - 13), CORRUPT_MESSAGE, "a length of 48"),
        (patched(8, ">i", 2**31 - 1), CORRUPT_MESSAGE, "where it tells 2147483659"),
        (patched(57, ">i", 0), INVALID_RECORD, "tells 0 records"),
        (patched(57, ">i", 0, patched(23, ">i", -1)), INVALID_RECORD, "tells 0 records"),
        (patched(57, ">i", -1), INVALID_RECORD, "tells -1 records"),
        (patched(57, ">i", 2), INVALID_RECORD, "2 records and a last offset delta of 2"),
        (patched(23, ">i", -1), INVALID_RECORD, "3 records and a last offset delta of -1"),
        (patched(23, ">i", 3), INVALID_RECORD, "3 records and a last offset delta of 3"),
        (patched(21, ">h", 5), CORRUPT_MESSAGE, "unknown compression"),
    ],
)
def test_what_is_no_batch(batch: bytes, code: int, message: str) -> None:
    with pytest.raises(BatchError, match=message) as refused:
        split_batches(batch)
    assert refused.value.error_code == code
    assert isinstance(refused.value, WireError)


def test_the_crc_covers_what_the_producer_wrote() -> None:
    batch = build(times=[1, 2], value=b"v" * 20)
    for at in range(len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 0x40
        if at in range(17):
            check_crc(bytes(changed), read_batch_header(batch))
            continue
        header = replace(read_batch_header(batch), crc=int.from_bytes(changed[17:21], "big"))
        with pytest.raises(BatchError, match="has CRC") as refused:
            check_crc(bytes(changed), header)
        assert refused.value.error_code == CORRUPT_MESSAGE


def test_a_large_batch_is_checked_without_a_copy_of_it() -> None:
    batch = memoryview(b"before" + build(value=bytes(800_000)))[6:]
    header = read_batch_header(batch)
    tracemalloc.start()
    try:
        check_crc(batch, header)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@settings(max_examples=200)
@given(st.binary(max_size=150), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=5))
def test_noise_is_read_or_refused_and_nothing_else(noise: bytes, changes: list[tuple[int, int]]) -> None:
    mutated = bytearray(build(times=[1, 2]) + control_batch(**MARKER))
    for at, value in changes:
        mutated[at % len(mutated)] = value
    for data in (noise, bytes(mutated), bytes(mutated) + noise):
        try:
            for header in split_batches(data):
                check_crc(data, header)
        except BatchError:
            continue


MARKER: Final[dict[str, Any]] = {
    "producer_id": 7,
    "producer_epoch": 3,
    "committed": True,
    "base_offset": 2,
    "timestamp_ms": 1_700_000_000_000,
    "coordinator_epoch": 0,
}
