"""An sdist and the wheel made from it, built once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "disk", "snapshots", "service", "controller", "broker_agent", "pipeline", "cli")
NEIGHBOURS = ("pidkeeper", "bench", "tests", "deploy", "helm", "docs", "tools")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both; made of a copy, so that neither leftovers of a build get in nor new ones stay."""
    source = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, *NEIGHBOURS):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    return target
