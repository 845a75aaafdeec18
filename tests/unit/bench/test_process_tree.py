from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.process_tree import run_measured

CHILD = """
import time
data = bytearray(100 << 20)
end = time.process_time() + 0.5
while time.process_time() < end: sum(data[:10000])
print("done")
time.sleep(0.5)
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}], check=True)"


def test_memory_is_that_of_one_process_and_processor_time_that_of_all(tmp_path: Path) -> None:
    alone = run_measured([sys.executable, "-c", CHILD], 60.0, cwd=tmp_path, env=os.environ)
    assert alone.own_mib > 100 and alone.cpu_seconds >= 0.4 and alone.output == "done\n"
    parent = run_measured([sys.executable, "-c", PARENT], 60.0, cwd=tmp_path, env=os.environ)
    assert parent.own_mib < 100 and parent.cpu_seconds >= 0.4 and parent.java_mib == parent.worker_mib == 0


def test_a_command_that_fails_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        run_measured([sys.executable, "-c", "raise SystemExit(3)"], 60.0, cwd=tmp_path, env=os.environ)
