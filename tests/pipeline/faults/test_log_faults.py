"""Every fault of partition logs and their store, by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.log_faults import FAULTS, check_fault


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told(tmp_path: Path, name: str) -> None:
    check_fault(tmp_path, name)
