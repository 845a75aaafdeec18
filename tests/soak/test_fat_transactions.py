"""Half a minute of the soak, with a log small enough that its bounds are met many times."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.soak.fat_transactions import MAX_RESTART_SECONDS, Report, soak
from tests.soak.members import MIB

SECONDS: Final = 20
BESIDE_OTHERS: Final = 5
"""Times as long as by itself a restart may take in a parallel run, in which others want both cores."""


@pytest.mark.timeout(420)
def test_memory_and_log_of_a_member_are_bounded(tmp_path: Path) -> None:
    lines: list[str] = []
    report = soak(
        tmp_path,
        SECONDS,
        lines.append,
        snapshot_bytes=MIB,
        segment_bytes=MIB,
        may_restart_seconds=BESIDE_OTHERS * MAX_RESTART_SECONDS,
    )
    assert report.broken() == [], "\n".join(lines)
    assert report.transactions > 0, "\n".join(lines)
    assert report.restart_seconds > 0


def test_a_bound_that_is_passed_is_told() -> None:
    kept = Report(0.1, MIB, MAX_RESTART_SECONDS, log_bytes=MIB, snapshots=1, restart_seconds=MAX_RESTART_SECONDS)
    assert kept.broken() == []
    passed = Report(0.1, MIB, MAX_RESTART_SECONDS, memory_bytes=129 * MIB, log_bytes=2 * MIB, restart_seconds=2.6)
    assert passed.broken() == [
        "memory of a member took 129 MiB, 128 may be",
        "log of a member took 2 MiB, 1 may be",
        "a restart took 2.6 s, 2.0 may be",
        "no snapshot was taken, so no bound was put to the test",
    ]
