"""Some of the faults of `make audit-faults`: in one Spark session, and by the command as its users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from pidkeeper.pipeline.engine.engine import Engine
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.member_faults import Case, Said, expected, findings_of, said_of, write_case

SAMPLE: Final = ("nothing wrong, one", "IDs given twice, all", "another cluster, one", "a byte of the log, one")
BY_COMMAND: Final = (
    "nothing wrong, one",
    "IDs given twice, all",
    "IDs given in part twice, all",
    "a block below all, all",
    "another owner, one",
    "a row dropped, one",
    "a file cut short, all",
    "another cluster, one",
    "a snapshot behind, all",
    "nothing there, all",
)
EXIT_CODES: Final = {"clean": 0, "violations": 5, "incomplete": 6}
COMMAND_SECONDS: Final = 120.0


def named(name: str) -> Case:
    fault, _, of = name.rpartition(", ")
    return Case(fault, of == "all")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_told(engine: Engine, tmp_path: Path, name: str) -> None:
    assert said_of(engine, tmp_path, named(name)) == expected()[name]


@pytest.mark.parametrize("name", BY_COMMAND)
def test_a_fault_is_told_by_the_command(tmp_path: Path, name: str) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_case(data, named(name))
    command = [sys.executable, "-m", "pidkeeper.cli", "audit", "run", str(data), "--out", str(out), "-o", "json"]
    ran = subprocess.run(
        [*command, "--engine", "local"],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        cwd=REPOSITORY,
    )
    verdict = json.loads(ran.stdout)
    findings = pq.read_table(next((out / "runs").iterdir()) / "findings.parquet").to_pylist()
    said = Said(verdict["verdict"], verdict["coverage"]["unseen"], findings_of(findings, data))
    assert said == expected()[name]
    assert ran.returncode == EXIT_CODES[said.verdict], ran.stderr
    assert "Traceback" not in ran.stderr
