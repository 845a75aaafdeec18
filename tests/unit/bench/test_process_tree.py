from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from bench.process_tree import cpu_seconds, run_measured

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


def test_what_a_process_has_used_so_far_rises_with_its_work() -> None:
    before, end = cpu_seconds(os.getpid()), time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert 0.15 <= cpu_seconds(os.getpid()) - before < 2.0


def test_what_is_no_process_has_used_nothing_that_could_be_told() -> None:
    with pytest.raises(ProcessLookupError):
        cpu_seconds(2**31 - 1)
