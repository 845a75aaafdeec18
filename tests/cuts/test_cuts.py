"""Some placed kills of real processes. `make cuts` makes two hundred, and restores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.chaos.shim.build import why_no_shim
from tests.cuts.report import Report
from tests.support.cluster import REPOSITORY

KILLS = 6
SECONDS = 100.0


@pytest.mark.skipif(why_no_shim() is not None, reason=f"{why_no_shim()}")
def test_nothing_is_lost_or_doubled_by_some_kills(tmp_path: Path) -> None:
    # In a process of its own, which takes mounts of its own.
    out = tmp_path / "cuts.json"
    command = [
        sys.executable,
        "-m",
        "tests.cuts.run",
        "--quick",
        "--count",
        str(KILLS),
        "--seed",
        "1",
        "--out",
        str(out),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(out.read_bytes(), type=Report)
    assert (report.cuts, report.missed) == (KILLS, 0)
    assert report.records > 0
    assert report.negative_control_flagged
