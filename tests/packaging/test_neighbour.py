"""The installed command beside a distribution that has top-level packages called `cli` and `protocol`, and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

NEIGHBOUR = """
[build-system]
requires = ["setuptools>=80"]
build-backend = "setuptools.build_meta"

[project]
name = "neighbour"
version = "1"

[tool.setuptools]
packages = ["cli", "protocol"]
"""


class Environment:
    """A fresh environment. The libraries that pidkeeper needs are seen there, this checkout is not."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        self.command = folder / "bin" / "pidkeeper"
        (packages,) = folder.glob("lib/python*/site-packages")
        # Only the folder: what its own .pth files say, the editable install among it, does not hold here.
        (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self._elsewhere = folder

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command outside of the checkout."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return subprocess.run(
            command, cwd=self._elsewhere, env=clean, capture_output=True, text=True, check=False, timeout=100
        )

    def pip(self, *arguments: str | Path) -> None:
        """Run pip for it."""
        done = self.run(sys.executable, "-m", "pip", "--python", self.python, "--quiet", *arguments)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def environment(built: Path, tmp_path: Path) -> Environment:
    """With the wheel, and a distribution whose `cli.main` and `protocol` are of no use to us."""
    environment = Environment(tmp_path / "environment")
    source = tmp_path / "neighbour"
    for package in ("cli", "protocol"):
        (source / package).mkdir(parents=True)
        (source / package / "__init__.py").write_text("raise AssertionError('the package of the neighbour')\n")
    (source / "pyproject.toml").write_text(NEIGHBOUR)
    (wheel,) = built.glob("*.whl")
    environment.pip("install", "--no-deps", "--no-index", wheel)
    environment.pip("install", "--no-deps", "--no-index", "--no-build-isolation", source)
    return environment


def test_it_works_beside_the_neighbour_and_after_it_went(environment: Environment) -> None:
    where = environment.run(environment.python, "-c", "import pidkeeper; print(pidkeeper.__file__)")
    assert "site-packages/pidkeeper/__init__.py" in where.stdout
    assert "neighbour" in environment.run(environment.python, "-c", "import cli").stderr
    demo = (environment.command, "demo", "--claims", "1000", "--rate", "20000", "--kills", "0", "--json")
    beside = environment.run(*demo)
    assert beside.returncode == 0, beside.stderr
    environment.pip("uninstall", "--yes", "neighbour")
    assert "No module named 'cli'" in environment.run(environment.python, "-c", "import cli").stderr
    alone = environment.run(*demo)
    assert alone.returncode == 0, alone.stderr
    for run in (beside, alone):
        assert json.loads(run.stdout.splitlines()[-1])["duplicates"] == 0
