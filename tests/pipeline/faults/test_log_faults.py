"""Every fault of partition logs, their store and their segments, by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.log_faults import FAULTS, check_fault
from tests.pipeline.rolled_faults import ROLLED, check_by_command, check_random


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told(tmp_path: Path, name: str) -> None:
    check_fault(tmp_path, FAULTS[name])


@pytest.mark.parametrize("name", ROLLED)
def test_a_fault_of_a_segment_is_told_by_the_command(tmp_path: Path, name: str) -> None:
    check_by_command(tmp_path, ROLLED[name])


@pytest.mark.parametrize("seed", range(100, 110))
def test_whatever_happens_to_sound_logs_is_clean(tmp_path: Path, seed: int) -> None:
    check_random(tmp_path, seed)
