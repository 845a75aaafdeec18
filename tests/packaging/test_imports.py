"""Who may import whom, and names that would get in the way of others."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ["protocol", "disk", "snapshots", "service", "controller", "broker_agent", "pipeline", "cli"]
OTHER_SOURCES = ["bench", "tests", "deploy", "helm"]


def sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def lint_imports(config: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", str(config)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=cwd)


def test_the_import_contracts_hold() -> None:
    result = lint_imports(ROOT / "pyproject.toml", ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert len(contracts) >= 4
    assert f"Contracts: {len(contracts)} kept, 0 broken." in result.stdout


def test_a_contract_that_does_not_hold_is_found(tmp_path: Path) -> None:
    """The same tool on a rule that our code does break: it looks at our packages, not at nothing."""
    config = tmp_path / "broken.toml"
    config.write_text(
        '[tool.importlinter]\nroot_package = "pidkeeper"\n'
        "[[tool.importlinter.contracts]]\n"
        'name = "No state"\ntype = "forbidden"\n'
        'source_modules = ["pidkeeper.controller.node"]\nforbidden_modules = ["pidkeeper.controller.state"]\n'
    )
    result = lint_imports(config, ROOT)
    assert result.returncode == 1
    assert "Contracts: 0 kept, 1 broken." in result.stdout


@pytest.mark.parametrize(
    ("parent", "importer", "imported"),
    [
        ("pipeline", "pipeline.findings", "pipeline.report.render"),
        ("pipeline.quorum", "pipeline.quorum.evidence", "pipeline.quorum.blocks"),
    ],
)
def test_a_circle_is_found_between_packages_and_deep_below(
    tmp_path: Path, parent: str, importer: str, imported: str
) -> None:
    """Our own contract on a copy of our packages in which one import closes a circle that no other contract sees."""
    shutil.copytree(ROOT / "pidkeeper", tmp_path / "pidkeeper", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "pidkeeper" / importer.replace(".", "/")).with_suffix(".py").open("a") as file:
        file.write(f"\nimport pidkeeper.{imported}\n")
    result = lint_imports(ROOT / "pyproject.toml", tmp_path)
    assert result.returncode == 1
    assert f"No cycles are allowed in pidkeeper.{parent}." in result.stdout
    assert result.stdout.count("No cycles are allowed in") == 1
    assert " kept, 1 broken." in result.stdout


@pytest.mark.parametrize("folder", [*PACKAGES, *OTHER_SOURCES])
def test_no_module_is_named_like_one_of_the_standard_library(folder: str) -> None:
    assert folder not in sys.stdlib_module_names
    taken = [path for path in sources(folder) if path.stem in sys.stdlib_module_names]
    taken += [path.parent for path in sources(folder) if path.parent.name in sys.stdlib_module_names]
    assert taken == []


@pytest.mark.parametrize("folder", ["deploy", "helm"])
def test_folders_that_are_no_packages_do_not_look_like_one(folder: str) -> None:
    assert (ROOT / folder).is_dir()
    assert list((ROOT / folder).rglob("__init__.py")) == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_folder_of_a_package_is_one(folder: str) -> None:
    assert {path.parent for path in sources(folder)} == {path.parent for path in (ROOT / folder).rglob("__init__.py")}


@pytest.mark.parametrize("folder", [*PACKAGES, "bench", "tests"])
def test_imports_are_absolute(folder: str) -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(folder)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.lstrip().startswith(("from .", "from . "))
    ]
    assert relative == []
