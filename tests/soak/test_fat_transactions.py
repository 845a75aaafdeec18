"""A minute of the soak, with a log small enough that its bounds are met many times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.fat_transactions import soak
from tests.soak.members import MIB


@pytest.mark.timeout(420)
def test_memory_and_log_of_a_member_are_bounded(tmp_path: Path) -> None:
    lines: list[str] = []
    report = soak(tmp_path, 60, lines.append, snapshot_bytes=MIB, segment_bytes=MIB)
    assert report.broken() == [], "\n".join(lines)
    assert report.transactions > 0, "\n".join(lines)
