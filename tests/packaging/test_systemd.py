"""The units of systemd: read by systemd itself, and their commands by the command line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pidkeeper.cli.main import cli
from pidkeeper.controller.server import STOP_SECONDS

UNITS = sorted((Path(__file__).resolve().parents[2] / "deploy" / "systemd").glob("*.service"))
EXPOSURE = 20
"""In tenths of what systemd-analyze calls the exposure level; it calls up to 2 OK."""


def setting(unit: Path, name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_of_a_unit_exists(unit: Path) -> None:
    _, *arguments = setting(unit, "ExecStart").split()
    asked = CliRunner().invoke(cli, [*arguments[:2], "--help"])
    assert asked.exit_code == 0, asked.output
    assert arguments[2] in asked.output
    assert float(setting(unit, "TimeoutStopSec")) > STOP_SECONDS


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_a_unit_and_finds_it_hardened(unit: Path, tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not on PATH")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/pidkeeper/bin/pidkeeper", sys.executable))
    read = subprocess.run([analyze, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    command = [analyze, "security", "--offline=true", f"--threshold={EXPOSURE}", str(copy)]
    judged = subprocess.run(command, capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout
