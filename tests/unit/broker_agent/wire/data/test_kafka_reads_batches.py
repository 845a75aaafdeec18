"""Kafka's own dump tool reads a segment of batches that got their offsets here, and of markers made here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from pidkeeper.broker_agent.kafka.wire.data.record_batch import control_batch, with_base_offset
from tests.support.kafka_broker import dump_log_segments, why_unavailable
from tests.support.split_batches import split_batches

BASE_OFFSET = 1000


def segment() -> bytes:
    """Three batches of two records and a marker each, compressed with nothing and with gzip."""
    pieces, offset = [], BASE_OFFSET
    for number in range(3):
        builder = DefaultRecordBatchBuilder(2, number % 2, True, 7 + number, 3, 0, 1 << 16)
        for delta in range(2):
            builder.append(delta, timestamp=1_700_000_000_000 + delta, key=None, value=b"v" * 300, headers=[])
        pieces.append(with_base_offset(bytes(builder.build()), offset, 0))
        pieces.append(
            control_batch(
                7 + number,
                3,
                committed=number != 1,
                base_offset=offset + 2,
                timestamp_ms=1_700_000_000_009,
                coordinator_epoch=40 + number,
                leader_epoch=0,
            )
        )
        offset += 3
    return b"".join(pieces)


@pytest.mark.timeout(120)
def test_the_dump_tool_reads_batches_and_markers(tmp_path: Path) -> None:
    if reason := why_unavailable():
        pytest.skip(reason)
    data = segment()
    path = tmp_path / f"{BASE_OFFSET:020}.log"
    path.write_bytes(data)
    text = dump_log_segments([path], deep=True)
    batches = re.findall(r"^baseOffset: (\d+) .*isControl: (\w+) .* crc: (\d+) isvalid: (\w+)", text, re.MULTILINE)
    expected = [
        (str(header.base_offset), str(header.is_control).lower(), str(header.crc), "true")
        for header in split_batches(data)
    ]
    assert batches == expected
    markers = re.findall(r"offset: (\d+) CreateTime: (\d+) .*endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text)
    assert markers == [
        ("1002", "1700000000009", "COMMIT", "40"),
        ("1005", "1700000000009", "ABORT", "41"),
        ("1008", "1700000000009", "COMMIT", "42"),
    ]
