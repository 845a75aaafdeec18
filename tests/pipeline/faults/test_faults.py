"""What is wrong with members' files, one fault after the other, and what the audit says of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.engine.engine import Engine
from tests.pipeline.member_faults import CASES, Case, expected, said_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_told(engine: Engine, tmp_path: Path, case: Case) -> None:
    assert said_of(engine, tmp_path, case) == expected()[case.name]


def test_every_case_is_expected() -> None:
    assert [case.name for case in CASES] == list(expected())
    assert len(CASES) >= 40
