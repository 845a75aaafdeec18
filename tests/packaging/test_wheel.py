"""The wheel and the sdist: one namespace, typed, with the console script and the licence, and nothing of the tests."""

from __future__ import annotations

import configparser
import email
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DATA = ("pidkeeper/pipeline/report/", "pidkeeper/controller/api/console/")
PACKAGES = {"protocol", "disk", "snapshots", "service", "controller", "broker_agent", "pipeline", "cli"}


@pytest.fixture(scope="module")
def wheel(built: Path) -> Iterator[zipfile.ZipFile]:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def modules() -> set[str]:
    """All modules of ours, and what the console and the report of an audit are made of, as paths of the namespace."""
    found = {"pidkeeper/__init__.py"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            found.add(f"pidkeeper/{path.relative_to(ROOT)}")
    console = (ROOT / "controller" / "api" / "console").iterdir()
    found |= {
        f"pidkeeper/{path.relative_to(ROOT)}" for path in console if path.suffix in {".html", ".css", ".js", ".svg"}
    }
    return found | {f"pidkeeper/pipeline/report/report.{end}" for end in ("html.j2", "css", "js")}


def content(wheel: zipfile.ZipFile, name: str) -> str:
    (member,) = [member for member in wheel.namelist() if member.endswith(f".dist-info/{name}")]
    return wheel.read(member).decode()


def test_the_wheel_is_pure_and_named_by_its_version(wheel: zipfile.ZipFile) -> None:
    assert Path(str(wheel.filename)).name == f"pidkeeper-{project()['version']}-py3-none-any.whl"


def test_its_top_level_is_the_namespace_and_its_metadata(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert tops == {"pidkeeper", f"pidkeeper-{project()['version']}.dist-info"}
    assert content(wheel, "top_level.txt").split() == ["pidkeeper"]


def test_it_holds_exactly_our_modules(wheel: zipfile.ZipFile) -> None:
    found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == modules() | {"pidkeeper/py.typed"}
    assert len(found) > 80


def test_every_sub_package_is_there(wheel: zipfile.ZipFile) -> None:
    folders = {name.rpartition("/")[0] for name in wheel.namelist() if name.endswith("__init__.py")}
    parts = ("raft", "state", "storage", "transport", "node", "api")
    assert {f"pidkeeper/{package}" for package in PACKAGES} <= folders
    assert {f"pidkeeper/controller/{part}" for part in parts} | {"pidkeeper/broker_agent/kafka/wire"} <= folders


def test_the_sdist_holds_the_same_modules_once(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    ours = {name for name in names if name.endswith(".py") or name.startswith(DATA)}
    assert ours == modules()
    assert {"LICENSE", "pyproject.toml", "pidkeeper/py.typed"} <= set(names)


def test_the_licence(wheel: zipfile.ZipFile) -> None:
    assert content(wheel, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert "Apache License" in content(wheel, "licenses/LICENSE")


def test_the_console_script(wheel: zipfile.ZipFile) -> None:
    entry_points = configparser.ConfigParser()
    entry_points.read_string(content(wheel, "entry_points.txt"))
    assert dict(entry_points["console_scripts"]) == {"pidkeeper": "pidkeeper.cli.main:main"}
    assert "pidkeeper/cli/main.py" in wheel.namelist()


def test_the_metadata(wheel: zipfile.ZipFile) -> None:
    metadata = email.message_from_string(content(wheel, "METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("pidkeeper", project()["version"])
    assert metadata["Requires-Python"] == ">=3.11"
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist") or []]
    needed = {one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})}
    assert needed == {Requirement(line).name for line in project()["dependencies"]}
    assert not needed & {"pytest", "hypothesis", "aiokafka", "confluent-kafka", "raftos"}


def project() -> dict[str, list[str]]:
    values: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return values
