"""Partition logs and their store: whole audits of what members and agents leave, and of what is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from pidkeeper.pipeline.audit import AuditOptions, Outcome, look
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.findings import NOTE
from pidkeeper.pipeline.paths import AuditPaths
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.log_faults import FAULTS, write_fault

BY_COMMAND: Final = ("nothing wrong", "an ID of nobody", "an object that is gone", "an object that nobody can read")
EXIT_CODES: Final = {"clean": 0, "violations": 5, "incomplete": 6}
COMMAND_SECONDS: Final = 120.0


def audited(engine: Engine, root: Path, *, store: bool = True) -> Outcome:
    paths = AuditPaths([str(root / "data")], store=str(root / "store") if store else None)
    return look(engine, AuditOptions(paths, locate(root / "out")))


def told(outcome: Outcome) -> list[dict[str, Any]]:
    return [row for row in outcome.tables["findings"].to_pylist() if row["severity"] != NOTE]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told(tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    write_fault(tmp_path, fault)
    outcome = audited(LocalEngine(), tmp_path)
    found = told(outcome)
    print(outcome.verdict.coverage.unseen, *found, sep="\n")
    assert outcome.verdict.verdict == fault.verdict
    if fault.check is None:
        assert all(fault.part in one for one in outcome.verdict.coverage.unseen)
        assert [row["check"] for row in found if row["severity"] == "violation"] == []
    else:
        assert any(row["check"] == fault.check and fault.part in row["detail"] for row in found)
