"""The segments in golden/ are read as they were meant, and the script that wrote them still writes the same."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pidkeeper.pipeline.formats.log_segment import SegmentReader
from tests.pipeline.write_golden_segments import GOLDEN, cases, expectation

SEGMENTS = sorted(GOLDEN.glob("*/*.log"))


def test_the_files_are_what_the_script_writes() -> None:
    assert {path.parent.name: path.read_bytes() for path in SEGMENTS} == {
        f"{topic}-0": case.data for topic, case in cases().items()
    }
    assert {path.parent.name: path.with_suffix(".json").read_text() for path in SEGMENTS} == {
        f"{topic}-0": expectation(case) for topic, case in cases().items()
    }


@pytest.mark.parametrize("path", SEGMENTS, ids=lambda path: path.parent.name)
def test_a_golden_segment_is_read_as_expected(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    with path.open("rb") as file:
        chunks = list(SegmentReader(file, path.stat().st_size, base_offset=int(path.stem)).chunks())
    assert [msgspec.to_builtins(each) for chunk in chunks for each in chunk.batches()] == expected["batches"]
    assert [[each.kind, each.position] for chunk in chunks for each in chunk.problems] == expected["problems"]
