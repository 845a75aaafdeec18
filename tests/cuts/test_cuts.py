"""Some placed kills of real processes. `make cuts` makes two hundred, and restores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.chaos.shim.build import why_no_shim
from tests.cuts.report import Report
from tests.support.cluster import REPOSITORY

KILLS: Final = 4
SEED: Final = 57
"""With it die an agent, a leader, the store's machine and a leader's, in four windows."""
MISSED: Final = 1
"""At most, on a machine that has much else to do."""
SECONDS: Final = 200.0
"""When the test gives up; a quarter of a minute is enough where nothing else runs."""


@pytest.mark.skipif(why_no_shim() is not None, reason=f"{why_no_shim()}")
@pytest.mark.timeout(SECONDS + 20)
def test_nothing_is_lost_or_doubled_by_some_kills(tmp_path: Path) -> None:
    # In a process of its own, which takes mounts and a network of its own.
    out = tmp_path / "cuts.json"
    options = [f"--count={KILLS}", f"--seed={SEED}", f"--out={out}"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.cuts.run", "--quick", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(out.read_bytes(), type=Report)
    assert report.cuts >= KILLS - MISSED
    assert report.records > 0
    assert report.negative_control_flagged
