"""What is wrong with the segments of a real broker, one fault after the other, and what the audit says of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.engine.engine import Engine
from tests.pipeline.kafka_faults import CASES, Case, said_of, verdicts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_told(engine: Engine, kafka_logs: Path, tmp_path: Path, case: Case) -> None:
    said, expected = said_of(engine, kafka_logs, tmp_path, case)
    assert said == expected


def test_every_case_is_expected() -> None:
    assert [case.name for case in CASES] == list(verdicts())
    assert len(CASES) >= 80
