"""Kafka's own dump tool and the audit read segments as they lie in the store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import astuple

from pidkeeper.broker_agent.kafka.wire.data.record_batch import Compression
from pidkeeper.pipeline.formats.record_batch import BatchHeader
from pidkeeper.pipeline.segments.segment_files import list_segments, plan, read_part
from tests.support.built_batches import built
from tests.support.kafka_broker import dump_log_segments, why_unavailable
from tests.support.roll_rig import RollRig
from tests.support.split_batches import split_batches


@pytest.fixture
async def segment(tmp_path: Path) -> Path:
    """A rolled segment with all there is: compressions, transactions that span and end in it, small ones before."""
    rig = RollRig()
    await rig.write((b"first", b"second"))
    await rig.write((b"third",), name="x")
    await rig.roller.roll_due()
    for number, compression in enumerate(Compression):
        rows = [(b"k%d" % number, b"value-%d-%d" % (number, one)) for one in range(3)]
        await rig.append(memoryview(built(0, *rows, compression=compression)))
    await rig.write((b"fourth",), name="y")
    rig.end("y", committed=False)
    rig.end("x", committed=True)
    await rig.write((b"x" * 5000,))
    await rig.roller.roll_due()
    # Both rolls are one segment by now.
    assert [(one.base_offset, one.end_offset) for one in rig.kept_segments()] == [(0, 22)]
    for name in await rig.store.names():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rig.store._objects[name])
    (name,) = rig.names()
    assert name.endswith("/t-0/00000000000000000000.log")
    await rig.stop()
    return tmp_path / name


@pytest.mark.timeout(120)
def test_the_dump_tool_reads_it(segment: Path) -> None:
    if reason := why_unavailable():
        pytest.skip(reason)
    data = segment.read_bytes()
    text = dump_log_segments([segment], deep=True, values=True)
    batches = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*producerId: (-?\d+) .*isTransactional: (\w+) "
        r"isControl: (\w+) .*position: (\d+) .*size: (\d+) magic: 2 compresscodec: (\w+) crc: (\d+) isvalid: true",
        text,
        re.MULTILINE,
    )
    assert batches == [
        (
            *(str(one) for one in (header.base_offset, header.last_offset, header.records_count, header.producer_id)),
            *(str(one).lower() for one in (header.is_transactional, header.is_control)),
            *(str(one) for one in (header.position, header.size)),
            header.compression.name.lower(),
            str(header.crc),
        )
        for header in split_batches(data)
    ]
    assert len(batches) == 11
    assert re.findall(r"offset: (\d+) CreateTime: .*payload: (first|second|third|fourth|value-\d-\d)", text) == [
        *(("0", "first"), ("1", "second"), ("2", "third")),
        *((str(3 + 3 * number + one), f"value-{number}-{one}") for number in range(5) for one in range(3)),
        ("18", "fourth"),
    ]
    assert re.findall(r"offset: (\d+) .*endTxnMarker: (\w+) ", text) == [("19", "ABORT"), ("20", "COMMIT")]


def test_the_audit_reads_it_where_it_is(segment: Path, tmp_path: Path) -> None:
    files = list_segments([str(tmp_path / "segments")])
    (file,) = (one for one in files if one.path == str(segment))
    assert (file.topic, file.partition, file.base_offset, file.size) == ("t", 0, 0, segment.stat().st_size)
    chunks = [chunk for parts in plan([file]) for part in parts for chunk in read_part(part)]
    assert [chunk.problems for chunk in chunks if chunk.problems] == []
    found = [header for chunk in chunks for header in chunk.batches()]
    ours = split_batches(segment.read_bytes())
    names = BatchHeader.__struct_fields__[:14]
    assert [[getattr(one, name) for name in names] for one in found] == [[*astuple(one)] for one in ours]
    assert [one.marker_type for one in found if one.marker_type is not None] == [0, 1]
