"""Whose module is imported: no two installed distributions give the same top-level name."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ["protocol", "snapshots", "controller", "broker_agent", "pipeline", "cli"]


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
    return names - set(OURS) - set(sys.stdlib_module_names)


@pytest.mark.parametrize("package", OURS)
def test_our_packages_are_of_one_distribution_and_from_here(package: str) -> None:
    owners = importlib.metadata.packages_distributions().get(package, [])
    assert set(owners) <= {"pidkeeper"}
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin) == ROOT / package / "__init__.py"


def test_what_we_import_belongs_to_one_distribution_each() -> None:
    names = imported_names()
    assert {"aiohttp", "msgspec", "click", "google_crc32c"} <= names
    owners = importlib.metadata.packages_distributions()
    assert {name: owners.get(name, []) for name in names if len(set(owners.get(name, []))) != 1} == {}


def test_no_installed_distribution_brings_our_names() -> None:
    for distribution in importlib.metadata.distributions():
        if distribution.metadata["Name"] == "pidkeeper":
            continue
        tops = {file.parts[0] for file in distribution.files or [] if file.suffix == ".py" and len(file.parts) > 1}
        assert not tops & {*OURS, "bench", "tests"}, f"{distribution.metadata['Name']} brings {tops}"


def test_the_distribution_is_installed_with_its_command() -> None:
    (command,) = [
        entry for entry in importlib.metadata.entry_points(group="console_scripts") if entry.name == "pidkeeper"
    ]
    assert command.value == "cli.main:main"
    assert command.dist is not None
    assert command.dist.name == "pidkeeper"
