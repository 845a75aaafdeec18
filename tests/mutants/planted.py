"""Planted bugs: one small patch each to the real code, after bugs that real systems had.

A patch is a list of edits (`edits.py`). One that does not fit the code any more is an error, never a patch that
silently does nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.anchors import NoAnchorError, PatchError, elsewhere, sources_in
from tests.mutants.edits import Edit, edited

ROOT: Final = Path(__file__).resolve().parents[2]
CODE: Final = ("protocol", "disk", "snapshots", "service", "controller", "broker_agent", "cli")
PARTS: Final = ("pidkeeper", *CODE, "pipeline", "tests")
"""What the simulator and the directed tests need of the tree: no bug is planted in the audit, but `cli` imports it."""


SIMULATOR: Final = Path("tests/simulation")


class Planted(msgspec.Struct, frozen=True):
    """One bug. `breaks`: the promise or rule; `source`: who had it; `directed`: tests that fail because of it.

    `unseen`: why the simulator cannot see it, if it cannot; then it is not asked. `needs`: the fault without which it
    does not show, so that a simulator that does not throw it is not asked either. `directed` tests are asked only
    where the simulator finds nothing. `histories`: those of the data plane are asked in its place (`tests/histories`).
    """

    name: str
    breaks: str
    source: str
    edits: tuple[Edit, ...]
    directed: tuple[str, ...] = ()
    unseen: str = ""
    needs: str = ""
    histories: bool = False


def patched(bug: Planted, root: Path) -> dict[str, str]:
    """The files that `bug` changes, by path, as they read with it. Raises PatchError."""
    texts: dict[str, str] = {}
    for edit in bug.edits:
        try:
            sources = sources_in(root, edit.scope)
            path, text = edited(edit, sources | {path: text for path, text in texts.items() if path in sources})
        except PatchError as error:
            hint = elsewhere(root, CODE, edit.function) if isinstance(error, NoAnchorError) else ""
            raise PatchError(f"{bug.name}: in {edit.scope}, {edit.function}: {error}{hint}") from error
        texts[path] = text
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


def catalogue() -> Sequence[Planted]:
    """All planted bugs."""
    from tests.mutants.planted_agent import AGENT_BUGS
    from tests.mutants.planted_bounds import BOUND_BUGS
    from tests.mutants.planted_consensus import CONSENSUS_BUGS
    from tests.mutants.planted_data import DATA_BUGS
    from tests.mutants.planted_epochs import EPOCH_BUGS
    from tests.mutants.planted_founding import FOUNDING_BUGS
    from tests.mutants.planted_groups import GROUP_BUGS
    from tests.mutants.planted_histories import HISTORY_BUGS
    from tests.mutants.planted_listeners import LISTENER_BUGS
    from tests.mutants.planted_membership import MEMBERSHIP_BUGS
    from tests.mutants.planted_migration import MIGRATION_BUGS
    from tests.mutants.planted_node import NODE_BUGS
    from tests.mutants.planted_own_ids import OWN_ID_BUGS
    from tests.mutants.planted_processes import PROCESS_BUGS
    from tests.mutants.planted_quotas import QUOTA_BUGS
    from tests.mutants.planted_security import SECURITY_BUGS
    from tests.mutants.planted_slow_disks import SLOW_DISK_BUGS
    from tests.mutants.planted_state import STATE_BUGS
    from tests.mutants.planted_storage import STORAGE_BUGS
    from tests.mutants.planted_succession import SUCCESSION_BUGS
    from tests.mutants.planted_transactions import TRANSACTION_BUGS

    ids = (*STATE_BUGS, *TRANSACTION_BUGS, *OWN_ID_BUGS, *MIGRATION_BUGS)
    processes = (*NODE_BUGS, *FOUNDING_BUGS, *SUCCESSION_BUGS, *AGENT_BUGS, *LISTENER_BUGS, *PROCESS_BUGS, *BOUND_BUGS)
    return (
        *CONSENSUS_BUGS,
        *SLOW_DISK_BUGS,
        *MEMBERSHIP_BUGS,
        *STORAGE_BUGS,
        *ids,
        *processes,
        *SECURITY_BUGS,
        *DATA_BUGS,
        *GROUP_BUGS,
        *HISTORY_BUGS,
        *EPOCH_BUGS,
        *QUOTA_BUGS,
    )
