"""Whose module is imported: no two installed distributions give the same top-level name, and no module has two."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import pidkeeper

ROOT = Path(__file__).parents[2]
NAMESPACES = {"opentelemetry"}
"""Names that a project spreads over distributions of its own, each with other modules below it."""
OURS = ["protocol", "disk", "snapshots", "service", "controller", "broker_agent", "pipeline", "cli"]


def imported_names() -> set[str]:
    """The top-level names that our packages import from elsewhere."""
    names: set[str] = set()
    for package in OURS:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    names.add(node.module.partition(".")[0])
    return names - {"pidkeeper"} - set(sys.stdlib_module_names)


def test_our_namespace_is_of_one_distribution_and_from_here() -> None:
    assert set(importlib.metadata.packages_distributions().get("pidkeeper", [])) <= {"pidkeeper"}
    assert Path(pidkeeper.__file__) == ROOT / "pidkeeper" / "__init__.py"


@pytest.mark.parametrize("package", OURS)
def test_a_top_level_folder_is_a_package_of_the_namespace(package: str) -> None:
    spec = importlib.util.find_spec(f"pidkeeper.{package}")
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).resolve() == ROOT / package / "__init__.py"


def test_the_namespace_holds_those_folders_and_nothing_else() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "pidkeeper").iterdir() if path.is_symlink()}
    assert links == {package: Path("..") / package for package in OURS}
    files = {path.name for path in (ROOT / "pidkeeper").iterdir() if path.is_file()}
    assert files == {"__init__.py", "py.typed"}


@pytest.mark.parametrize("package", OURS)
def test_a_bare_name_is_banned_by_lint(package: str) -> None:
    """`python -m pytest` in the checkout could import it, and every class in it would be there twice."""
    lint = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename", "bench/bare.py", "-"]
    bare = subprocess.run(
        lint, input=f"from {package} import x\n", capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
    )
    assert bare.returncode == 1, bare.stdout + bare.stderr
    assert f"import pidkeeper.{package}" in bare.stdout


def test_what_we_import_belongs_to_one_distribution_each() -> None:
    names = imported_names()
    assert {"aiohttp", "msgspec", "click", "google_crc32c"} <= names
    owners = importlib.metadata.packages_distributions()
    alone = names - NAMESPACES
    assert {name: owners.get(name, []) for name in alone if len(set(owners.get(name, []))) != 1} == {}
    for name in NAMESPACES:
        assert {owner.partition("-")[0] for owner in owners[name]} == {name}


def test_no_installed_distribution_brings_our_names() -> None:
    for distribution in importlib.metadata.distributions():
        if distribution.metadata["Name"] == "pidkeeper":
            continue
        tops = {file.parts[0] for file in distribution.files or [] if file.suffix == ".py" and len(file.parts) > 1}
        assert not tops & {"pidkeeper", "bench", "tests"}, f"{distribution.metadata['Name']} brings {tops}"


def test_the_distribution_is_installed_with_its_command() -> None:
    (command,) = [
        entry for entry in importlib.metadata.entry_points(group="console_scripts") if entry.name == "pidkeeper"
    ]
    assert command.value == "pidkeeper.cli.main:main"
    assert command.dist is not None
    assert command.dist.name == "pidkeeper"
