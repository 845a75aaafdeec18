"""Headers as this code reads them against Kafka's own dump tool, on segments that a real broker wrote."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pidkeeper.pipeline.formats.log_segment import SegmentReader
from pidkeeper.pipeline.formats.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    MARKERS,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
    Problem,
)
from pidkeeper.pipeline.formats.segment_ranges import split
from tests.pipeline.real_producers import WRAPPING_PRODUCER
from tests.support.kafka_broker import dump_log_segments

pytestmark = pytest.mark.timeout(400)
RANGE_BYTES: Final = 4 << 10
FIELD: Final = re.compile(r"(\w+): (\S+)")
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
"""As the dump tool names them."""


def read(path: Path) -> tuple[list[BatchHeader], list[Problem]]:
    with path.open("rb") as file:
        chunks = list(SegmentReader(file, path.stat().st_size, base_offset=int(path.stem)).chunks())
    return [header for chunk in chunks for header in chunk.batches()], [
        each for chunk in chunks for each in chunk.problems
    ]


def as_dumped(header: BatchHeader) -> dict[str, str]:
    """The fields of a header under the dump tool's names."""
    attributes = header.attributes
    horizon = f"OptionalLong[{header.base_timestamp}]" if attributes & DELETE_HORIZON else "OptionalLong.empty"
    return {
        "baseOffset": str(header.base_offset),
        "lastOffset": str(header.base_offset + header.last_offset_delta),
        "count": str(header.record_count),
        "baseSequence": str(header.base_sequence),
        "lastSequence": str(header.last_sequence),
        "producerId": str(header.producer_id),
        "producerEpoch": str(header.producer_epoch),
        "partitionLeaderEpoch": str(header.partition_leader_epoch),
        "isTransactional": str(bool(attributes & TRANSACTIONAL)).lower(),
        "isControl": str(bool(attributes & CONTROL)).lower(),
        "deleteHorizonMs": horizon,
        "position": str(header.position),
        TIMESTAMP_TYPES[bool(attributes & TIMESTAMP_TYPE)]: str(header.max_timestamp),
        "size": str(header.batch_length + 12),
        "magic": str(header.magic),
        "compresscodec": COMPRESSIONS[attributes & COMPRESSION_MASK],
        "crc": str(header.crc),
        "isvalid": "true",
    }


def dumped(text: str) -> dict[str, list[list[str]]]:
    """Lines of the dump by the directory and name of the segment: a batch each, with the lines of its records."""
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        if line.startswith("Dumping "):
            current = found.setdefault("/".join(Path(line.removeprefix("Dumping ")).parts[-2:]), [])
        elif line.startswith("baseOffset: "):
            current.append([line])
        elif line.startswith("| "):
            current[-1].append(line)
    return found


def segments(logs: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(logs.glob("*-*/*.log")):
        yield "/".join(path.parts[-2:]), path


@pytest.fixture(scope="session")
def headers(kafka_logs: Path) -> dict[str, list[BatchHeader]]:
    """Our reading of every segment, without a problem in any that holds something."""
    found = {}
    for name, path in segments(kafka_logs):
        found[name], problems = read(path)
        assert [each.kind for each in problems] == ([] if path.stat().st_size else ["empty"]), f"{name}: {problems}"
    return found


def of_topic(headers: dict[str, list[BatchHeader]], topic: str) -> list[BatchHeader]:
    return [each for name, batches in headers.items() if name.startswith(f"{topic}-0/") for each in batches]


def test_every_field_of_every_batch_is_what_the_dump_tool_says(
    kafka_logs: Path, headers: dict[str, list[BatchHeader]]
) -> None:
    text = dump_log_segments(path for _, path in segments(kafka_logs))
    theirs = {name: [dict(FIELD.findall(lines[0])) for lines in batches] for name, batches in dumped(text).items()}
    assert theirs == {name: [as_dumped(each) for each in batches] for name, batches in headers.items()}


def test_markers_and_first_timestamps_are_what_the_dump_tool_says(
    kafka_logs: Path, headers: dict[str, list[BatchHeader]]
) -> None:
    text = dump_log_segments((path for _, path in segments(kafka_logs)), deep=True)
    markers, timestamps = 0, 0
    for name, batches in dumped(text).items():
        for ours, (_, *records) in zip(headers[name], batches, strict=True):
            first = dict(FIELD.findall(records[0])) if records else {}
            if ours.marker_type in MARKERS:
                markers += 1
                assert (MARKERS[ours.marker_type], str(ours.coordinator_epoch)) == (
                    first["endTxnMarker"].lower(),
                    first["coordinatorEpoch"],
                ), f"{name} at byte {ours.position}"
            else:
                assert "endTxnMarker" not in first, f"{name} at byte {ours.position}: {records[0]}"
            if first.get("offset") == str(ours.base_offset) and not ours.attributes & (DELETE_HORIZON | TIMESTAMP_TYPE):
                timestamps += 1
                assert str(ours.base_timestamp) == first["CreateTime"], f"{name} at byte {ours.position}"
    assert markers > 10 and timestamps > 50, f"only {markers} markers and {timestamps} timestamps were compared"


def test_the_broker_wrote_what_this_test_is_about(headers: dict[str, list[BatchHeader]]) -> None:
    codecs = {COMPRESSIONS[each.attributes & COMPRESSION_MASK] for each in of_topic(headers, "codecs")}
    assert codecs == set(COMPRESSIONS)
    assert all(each.attributes & TIMESTAMP_TYPE for each in of_topic(headers, "stamped"))
    assert sum(name.startswith("codecs-0/") for name in headers) > 2, "the topic did not roll"
    assert {each.attributes & TRANSACTIONAL for each in of_topic(headers, "python")} == {0}
    for topic in ("transactions", "asynchronous", "compacted"):
        kinds = Counter(each.marker_type for each in of_topic(headers, topic) if each.marker_type is not None)
        assert kinds[1] > 0 and (kinds[0] > 0 or topic == "compacted"), f"{topic}: {kinds}"
    epochs = [each.producer_epoch for each in of_topic(headers, "transactions")]
    assert len(set(epochs)) > 2 and epochs == sorted(epochs), "the epoch was not bumped"


def test_a_producer_goes_on_with_sequence_0_after_the_largest(headers: dict[str, list[BatchHeader]]) -> None:
    batches = of_topic(headers, "wrapped")
    assert {each.producer_id for each in batches} == {WRAPPING_PRODUCER}
    assert [(each.base_sequence, each.last_sequence) for each in batches] == [
        (2147483633, 2147483642),
        (2147483643, 4),
        (5, 14),
        (15, 24),
    ]


def test_compaction_leaves_gaps_horizons_and_fewer_records_than_offsets(headers: dict[str, list[BatchHeader]]) -> None:
    batches = of_topic(headers, "compacted")
    assert any(each.attributes & DELETE_HORIZON for each in batches)
    assert any(each.record_count < each.last_offset_delta + 1 for each in batches)
    ends = [each.base_offset + each.last_offset_delta for each in batches]
    assert any(end + 1 < each.base_offset for end, each in zip(ends, batches[1:], strict=False)), "no gap"


def test_ranges_of_a_segment_hold_every_batch_once_with_and_without_its_index(
    kafka_logs: Path, headers: dict[str, list[BatchHeader]]
) -> None:
    cut = 0
    for name, path in segments(kafka_logs):
        size, base_offset = path.stat().st_size, int(path.stem)
        for index in (b"", path.with_suffix(".index").read_bytes()):
            with path.open("rb") as file:
                parts = split(file, size, base_offset=base_offset, index=index, range_bytes=RANGE_BYTES)
                found = [
                    each
                    for part in parts
                    for chunk in SegmentReader(file, size, base_offset=base_offset, part=part).chunks()
                    for each in chunk.batches()
                ]
            assert found == headers[name], f"{name} in {parts}"
            cut += bool(index) and len(parts) - 1
    assert cut > 5, f"the indexes led to {cut} cuts only"
