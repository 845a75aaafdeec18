"""Records that other codecs build are read, compressed in every way; what is none is refused within bounds."""

from __future__ import annotations

import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.kafka.wire.data.decompression import MissingCodecError, UnreadableError, decompressed
from pidkeeper.broker_agent.kafka.wire.data.fetch import AbortedTransaction
from pidkeeper.broker_agent.kafka.wire.data.record_batch import (
    HEADER_BYTES,
    Compression,
    control_batch,
    read_batch_header,
)
from pidkeeper.broker_agent.kafka.wire.data.records import (
    Aborted,
    Header,
    LogRecord,
    _RecordReader,
    batches,
    records_of,
)
from pidkeeper.service.kafka.wire.primitives import WireError
from tests.support.built_batches import BUILDERS, TIME_MS, built

RECORDS = [(b"k", b"v" * 1000), (None, b""), (b"\x00\xff", None)]
COMPRESSED = [one for one in Compression if one != Compression.NONE]


def read(batch: bytes) -> list[LogRecord]:
    return [record for header in batches(batch) for record in records_of(batch, header)]


# kafka-python has no codec for the others without further packages.
@pytest.mark.parametrize(
    ("builder", "compression"),
    [*(("aiokafka", one) for one in Compression), *(("kafka-python", one) for one in list(Compression)[:2])],
)
def test_records(builder: str, compression: Compression) -> None:
    headers = [("name", b"value"), ("none", None)]
    batch = built(
        40,
        *RECORDS,
        builder=builder,
        compression=compression,
        producer=(7, 3, 0),
        transactional=True,
        headers=headers,
    )
    assert read_batch_header(batch).compression == compression
    told = [Header(b"name", b"value"), Header(b"none", None)]
    assert read(batch) == [
        LogRecord(40 + delta, "RECORD", TIME_MS + delta, 7, 3, True, key, value, told)
        for delta, (key, value) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_a_transaction(committed: bool) -> None:
    marker = control_batch(7, 3, committed=committed, base_offset=9, timestamp_ms=TIME_MS, coordinator_epoch=0)
    (one,) = read(marker)
    assert (one.offset, one.type, one.producer_id) == (9, "COMMIT" if committed else "ABORT", 7)


def test_the_last_batch_of_an_answer_may_be_cut_off() -> None:
    whole, more = built(0, *RECORDS), built(3, *RECORDS)
    for cut in range(len(more)):
        assert [header.base_offset for header in batches(whole + more[:cut])] == [0]
    assert [header.base_offset for header in batches(whole + more)] == [0, 3]


def test_a_batch_that_is_damaged_is_told() -> None:
    batch = bytearray(built(0, *RECORDS))
    batch[-1] ^= 1
    with pytest.raises(WireError, match="CRC"):
        read(bytes(batch))
    with pytest.raises(WireError):
        list(batches(b"\0" * 8 + b"\xff" * 4 + b"\0" * 100))


def test_who_was_aborted_is_found_as_a_consumer_finds_it() -> None:
    aborted = Aborted([AbortedTransaction(8, 6), AbortedTransaction(7, 2)])

    def batch(offset: int, producer_id: int, *, transactional: bool = True) -> bool:
        data = built(offset, (b"k", b"v"), producer=(producer_id, 0, 0), transactional=transactional)
        return aborted.has(read_batch_header(data))

    assert not batch(1, 7), "a transaction before, which was committed"
    assert batch(2, 7)
    assert not batch(3, 8), "its aborted one begins later"
    assert not batch(4, 7, transactional=False)
    aborted.end(7)
    assert not batch(5, 7), "the transaction behind it"
    assert batch(6, 8)


def test_snappy_is_read_in_javas_frame_and_without() -> None:
    framed = built(0, *RECORDS, compression=Compression.SNAPPY)[HEADER_BYTES:]
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompressed(framed, Compression.SNAPPY) == built(0, *RECORDS)[HEADER_BYTES:]
    # librdkafka sends it without.
    assert decompressed(bytes(cramjam.snappy.compress_raw(b"x" * 500)), Compression.SNAPPY) == b"x" * 500


@pytest.mark.parametrize("compression", COMPRESSED)
def test_no_batch_takes_more_memory_than_the_bound(compression: Compression) -> None:
    batch = built(0, (b"k", b"v" * 100_000), compression=compression)
    payload = batch[HEADER_BYTES:]
    size = len(decompressed(payload, compression))
    assert len(decompressed(payload, compression, size)) == size
    with pytest.raises(UnreadableError):
        decompressed(payload, compression, size - 1)


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_what_is_not_compressed_so_is_told(compression: Compression, damage: str) -> None:
    payload = built(0, *RECORDS, compression=compression)[HEADER_BYTES:]
    with pytest.raises(UnreadableError):
        decompressed(payload[:-4] if damage == "cut" else b"\xff" * 40, compression)


def test_without_cramjam_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert len(read(built(0, *RECORDS, compression=Compression.GZIP))) == 3
    for compression in (Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        batch = built(0, *RECORDS)
        with pytest.raises(MissingCodecError, match=rf"{compression.name.lower()}.*pidkeeper\[compression\]"):
            decompressed(batch[HEADER_BYTES:], compression)


@given(st.binary(max_size=60))
def test_bytes_that_are_no_records_are_refused(data: bytes) -> None:
    header = read_batch_header(built(0, *RECORDS))
    reader = _RecordReader(data)
    try:
        for _ in range(3):
            reader.record(header)
        reader.finish()
    except UnreadableError:
        return


@pytest.mark.parametrize("builder", BUILDERS)
def test_records_that_are_cut_off_are_refused(builder: str) -> None:
    batch = built(0, *RECORDS, builder=builder, headers=[("h", b"v")])
    header = read_batch_header(batch)
    for end in range(len(batch) - HEADER_BYTES):
        reader = _RecordReader(batch[HEADER_BYTES : HEADER_BYTES + end])
        with pytest.raises(UnreadableError):
            list(map(reader.record, [header] * len(RECORDS)))
