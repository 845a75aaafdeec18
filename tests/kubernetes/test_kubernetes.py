"""A release on a real control plane: installed, tested, rolled under load, and kept from an upgrade that stops it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes.control_plane import why_no_programs
from tests.pods.namespaces import why_not

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS = 400.0


@pytest.mark.timeout(RUN_SECONDS)
def test_a_release_is_installed_tested_and_rolled(tmp_path: Path) -> None:
    if (reason := why_no_programs() or why_not()) is not None:
        pytest.skip(f"no Kubernetes: {reason}")
    command = [sys.executable, "-m", "tests.kubernetes.run", "--briefly", "--rolls", "1", "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    told = json.loads(done.stdout)
    assert told["good"]
    assert told["refused values"] == {}
    assert told["ids"] > 1000
