"""Memory that was freed, in a process of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
from pidkeeper.service.memory import give_back_what_is_freed

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))

if sys.argv[1] == "given back":
    give_back_what_is_freed()
before = resident()
largest = b"x" * 2**24
del largest
blocks = [b"x" * 2**20 for _ in range(64)]
kept = blocks[-1]
blocks.clear()
print(resident() - before)
"""


def kept_mib(how: str) -> int:
    """What a process keeps of 80 MiB of which it has freed all but one."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what was freed")
def test_what_was_freed_is_given_back_and_would_be_kept_otherwise() -> None:
    assert kept_mib("given back") <= 4
    assert kept_mib("kept") >= 32
