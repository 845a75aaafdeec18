"""What is wrong with members' files, one fault after the other, and what the audit says of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.member_faults import CASES, Case, said_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_is_told(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    assert said_of(spark, tmp_path, case) == case.said
