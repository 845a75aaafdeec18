"""Every fault of consumer groups, by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.group_faults import GROUPS, check_group_fault
from tests.pipeline.rolled_faults import check_random
from tests.support.sound_groups import RandomGroups


@pytest.mark.parametrize("name", GROUPS)
def test_a_fault_is_told_by_the_command(tmp_path: Path, name: str) -> None:
    check_group_fault(tmp_path, GROUPS[name])


@pytest.mark.parametrize("seed", range(100, 110))
def test_whatever_happens_to_sound_groups_is_clean(tmp_path: Path, seed: int) -> None:
    check_random(tmp_path, seed, RandomGroups)
