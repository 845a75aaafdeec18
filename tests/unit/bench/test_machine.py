from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import machine
from bench.machine import Bystanders, machine_facts


def test_time_of_own_children_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = 1000.0
    monkeypatch.setattr(machine, "_machine_seconds", lambda: busy + machine._own_seconds())
    bystanders = Bystanders()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert bystanders.cores() == pytest.approx(0, abs=0.01)
    busy += 50.0
    elapsed = time.monotonic() - bystanders._started
    assert bystanders.cores() == pytest.approx(50.0 / elapsed, rel=0.1)


def test_the_facts_name_machine_and_file_system(tmp_path: Path) -> None:
    facts = machine_facts(tmp_path)
    assert int(facts["cores"]) >= 1
    assert facts["kernel"].startswith("Linux ")
    assert " on " in facts["file system"]
    assert "unknown" not in facts["memory"]
    assert machine._machine_seconds() > 0
