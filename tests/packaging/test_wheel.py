"""The wheel: exactly our packages, typed, with the console script, and nothing of the tests."""

from __future__ import annotations

import configparser
import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = {"protocol", "snapshots", "controller", "broker_agent", "pipeline", "cli"}
NEIGHBOURS = ["bench", "tests", "deploy", "helm", "docs", "tools"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Built from a copy, so that neither leftovers of a build get in nor new ones stay."""
    source = tmp_path_factory.mktemp("source")
    for name in [*sorted(PACKAGES), *NEIGHBOURS]:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    for licence in ROOT.glob("LICENSE*"):
        shutil.copy(licence, source)
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(source)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = target.iterdir()
    with zipfile.ZipFile(built) as archive:
        yield archive


def content(wheel: zipfile.ZipFile, name: str) -> str:
    (member,) = [member for member in wheel.namelist() if member.endswith(f".dist-info/{name}")]
    return wheel.read(member).decode()


def test_the_wheel_is_pure_and_named_by_its_version(wheel: zipfile.ZipFile) -> None:
    assert Path(str(wheel.filename)).name == f"pidkeeper-{project()['version']}-py3-none-any.whl"


def test_it_holds_exactly_our_modules(wheel: zipfile.ZipFile) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    expected |= {f"{package}/py.typed" for package in PACKAGES}
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert len(expected) > 80


def test_every_sub_package_is_there(wheel: zipfile.ZipFile) -> None:
    folders = {name.rpartition("/")[0] for name in wheel.namelist() if name.endswith("__init__.py")}
    parts = ("raft", "state", "storage", "transport", "node", "api")
    assert PACKAGES | {f"controller/{part}" for part in parts} <= folders
    assert "broker_agent/wire" in folders


def test_the_top_level_names(wheel: zipfile.ZipFile) -> None:
    assert set(content(wheel, "top_level.txt").split()) == PACKAGES


def test_the_console_script(wheel: zipfile.ZipFile) -> None:
    entry_points = configparser.ConfigParser()
    entry_points.read_string(content(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {"pidkeeper": "cli.main:main"}
    assert "cli/main.py" in wheel.namelist()


def test_the_metadata(wheel: zipfile.ZipFile) -> None:
    metadata = email.message_from_string(content(wheel, "METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("pidkeeper", project()["version"])
    assert metadata["Requires-Python"] == ">=3.11"
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    needed = {one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})}
    assert needed == {Requirement(line).name for line in project()["dependencies"]}
    assert not needed & {"pytest", "hypothesis", "aiokafka", "confluent-kafka", "raftos"}


def project() -> dict[str, list[str]]:
    values: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return values
