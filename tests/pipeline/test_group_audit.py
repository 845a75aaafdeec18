"""Consumer groups: whole audits of what members leave of them, and of what is wrong with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from pidkeeper.pipeline.audit import look
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.verdict import covered_text
from tests.pipeline.group_faults import GROUPS, check_group_fault
from tests.pipeline.log_faults import found_in, options, write_fault
from tests.pipeline.rolled_faults import check_random
from tests.support.sound_groups import RandomGroups

SAMPLE: Final = (
    "offsets and groups that are gone by right",
    "offsets that moved with an aborted transaction",
    "offsets that did not move with their transaction",
    "other offsets of one member",
    "two coordinators of a group",
)
"""Of `make audit-faults`, which has all."""
SEEDS: Final = (3, 7)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_told_by_the_command(tmp_path: Path, name: str) -> None:
    check_group_fault(tmp_path, GROUPS[name])


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_sound_groups_is_clean(tmp_path: Path, seed: int) -> None:
    check_random(tmp_path, seed, RandomGroups)


def test_spark_finds_the_same(engine: Engine, tmp_path: Path) -> None:
    write_fault(tmp_path, GROUPS["offsets that moved before the end"].fault)
    assert found_in(look(engine, options(tmp_path))) == found_in(look(LocalEngine(), options(tmp_path))) != []


@pytest.mark.parametrize("logs", [True, False])
def test_groups_are_counted(tmp_path: Path, logs: bool) -> None:
    """By the log, or by the newest snapshot."""
    write_fault(tmp_path, GROUPS["groups with nothing wrong"].fault)
    if not logs:
        without_logs(tmp_path)
    coverage = look(LocalEngine(), options(tmp_path)).verdict.coverage
    assert covered_text(coverage).endswith("; 2 groups with 4 offsets")


def without_logs(root: Path) -> None:
    for node in (1, 2, 3):
        shutil.rmtree(root / "data" / str(node) / "wal")


@pytest.mark.parametrize(
    ("name", "checks"),
    [("pending offsets of no transaction", {"group_offsets"}), ("offsets that moved before the end", set())],
)
def test_snapshots_alone_show_what_no_transaction_holds(tmp_path: Path, name: str, checks: set[str]) -> None:
    """As they are shipped; that offsets moved with a transaction is to be seen with its records alone."""
    write_fault(tmp_path, GROUPS[name].fault)
    without_logs(tmp_path)
    found = found_in(look(LocalEngine(), options(tmp_path)))
    assert {check for check, severity, *_ in found if severity == "violation"} == checks
