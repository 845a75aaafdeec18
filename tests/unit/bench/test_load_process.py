from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.claim_load import ClaimResult, ClaimSpec
from bench.floor import Floor
from bench.load_process import run_load
from pidkeeper.cli.local_cluster import import_root

PRINT_A_MEGABYTE = """
from bench.load_process import serve

async def run(length: int) -> str:
    return "x" * length

serve(int, run)
"""


def test_a_large_result_arrives_whole_through_a_slow_pipe() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PRINT_A_MEGABYTE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=import_root(),
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    with child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"1000000")
        child.stdin.close()
        received = b""
        while piece := os.read(child.stdout.fileno(), 10_000):
            received += piece
    assert child.returncode == 0
    assert msgspec.json.decode(received) == "x" * 1_000_000


def test_a_load_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    with Floor(tmp_path) as floor:
        spec = ClaimSpec(f"127.0.0.1:{floor.claims_port}", 2, 4, 0.1, 0.0)
        result = run_load("bench.claim_load", spec, ClaimResult, 30.0)
    assert (result.first, result.last + 1, result.repeated) == (0, result.claims, 0)
    assert result.claims > 0
    assert result.failures == []


def test_a_load_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"bench\.claim_load ended with 1"):
        run_load("bench.claim_load", ClaimSpec("127.0.0.1:1", 1, 1, 0.1, 0.0), ClaimResult, 30.0)
    assert "ConnectionRefusedError" in capfd.readouterr().err
