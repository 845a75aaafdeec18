"""Planted bugs: one small patch each to the real code, after bugs that real systems had.

A patch is a list of exact replacements. Each old text must stand in its file exactly once; one that does not is an
error, never a patch that silently does nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
PARTS: Final = ("pidkeeper", "protocol", "snapshots", "service", "controller", "broker_agent", "tests")
"""What the simulator and the directed tests need of the tree."""


SIMULATOR: Final = Path("tests/simulation")


class PatchError(Exception):
    """A patch does not fit the code any more: write it anew for what the code says now."""


class Edit(msgspec.Struct, frozen=True):
    """Replace `old`, which stands in the file `path` exactly once, by `new`."""

    path: str
    old: str
    new: str


class Planted(msgspec.Struct, frozen=True):
    """One bug. `breaks`: the promise or rule; `source`: who had it; `directed`: tests that fail because of it.

    `unseen`: why the simulator cannot see it, if it cannot; then it is not asked. `needs`: the fault without which it
    does not show, so that a simulator that does not throw it is not asked either. `directed` tests are asked only
    where the simulator finds nothing.
    """

    name: str
    breaks: str
    source: str
    edits: tuple[Edit, ...]
    directed: tuple[str, ...] = ()
    unseen: str = ""
    needs: str = ""


def patched(bug: Planted, root: Path) -> dict[str, str]:
    """The files that `bug` changes, by path, as they read with it. Raises PatchError."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        if edit.path not in texts:
            texts[edit.path] = (root / edit.path).read_text(encoding="utf-8")
        count = texts[edit.path].count(edit.old)
        if count != 1:
            raise PatchError(f"{bug.name}: {edit.old!r} stands in {edit.path} {count} times, not once")
        texts[edit.path] = texts[edit.path].replace(edit.old, edit.new)
    for path, text in texts.items():
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            raise PatchError(f"{bug.name}: {path} does not compile any more: {error}") from error
    return texts


def why_unseen(bug: Planted, root: Path) -> str:
    """Why the simulator in `root` cannot show `bug`; empty if it may."""
    if bug.unseen or not bug.needs:
        return bug.unseen
    fault = f"def _throw_{bug.needs}("
    thrown = any(fault in path.read_text(encoding="utf-8") for path in sorted((root / SIMULATOR).glob("*.py")))
    return "" if thrown else f"its nemesis throws no {bug.needs}"


def copy_tree(source: Path, target: Path) -> None:
    """A copy of the code under test and of the tests, out of the checkout or another copy."""
    for part in PARTS:
        shutil.copytree(source / part, target / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "pyproject.toml", target)


def plant(bug: Planted, tree: Path) -> None:
    """Apply `bug` to the copy `tree`. Raises PatchError, with nothing written."""
    for path, text in patched(bug, tree).items():
        (tree / path).write_text(text, encoding="utf-8")


def one(path: str, old: str, new: str) -> tuple[Edit, ...]:
    """A patch of one place."""
    return (Edit(path, old, new),)


def catalogue() -> Sequence[Planted]:
    """All planted bugs."""
    from tests.mutants.planted_agent import AGENT
    from tests.mutants.planted_consensus import CONSENSUS
    from tests.mutants.planted_membership import MEMBERS
    from tests.mutants.planted_migration import MIGRATION
    from tests.mutants.planted_state import STATE
    from tests.mutants.planted_storage import STORAGE
    from tests.mutants.planted_transactions import TRANSACTIONS

    return (*CONSENSUS, *MEMBERS, *STORAGE, *STATE, *TRANSACTIONS, *MIGRATION, *AGENT)
