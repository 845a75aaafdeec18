"""A sample of `faults/`, which `make audit-faults` goes through: an audit takes seconds, whatever it audits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.member_faults import CASES, Case, said_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = ("IDs given twice in one file", "rows swapped")


@pytest.mark.parametrize("case", [case for case in CASES if case.name in SAMPLE], ids=lambda case: case.name)
def test_a_fault_is_told(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    assert said_of(spark, tmp_path, case) == case.said
