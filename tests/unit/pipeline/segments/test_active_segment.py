"""The segment that a broker will write to next: it is empty, and nothing is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.segments.segment_files import list_segments
from tests.support.segment_builder import batch


def segments(path: Path, *contents: bytes) -> list[int]:
    """The base offsets of the segments that are looked at."""
    folder = path / "orders-0"
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number:020d}.log").write_bytes(content)
    return [file.base_offset for file in list_segments([str(path)]) if file.base_offset is not None]


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        ([b""], []),
        ([batch(0), b""], [0]),
        ([batch(0), b"", batch(2)], [0, 1, 2]),
        ([batch(0), b"", b""], [0, 1]),
        ([b"", batch(1)], [0, 1]),
    ],
    ids=["never written to", "just rolled", "emptied", "two", "the first"],
)
def test_the_last_one_alone_may_be_empty(tmp_path: Path, contents: list[bytes], found: list[int]) -> None:
    assert segments(tmp_path, *contents) == found
