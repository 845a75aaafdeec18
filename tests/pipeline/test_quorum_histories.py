"""Whatever a sound quorum does, no check finds more than a note; whatever is spoilt, the right check finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.many_quorums import judge
from tests.support.quorum_tables import History, QuorumTables, Row, run, three_members, tiny_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from pidkeeper.pipeline.checks.quorum import QUORUM_CHECKS

SOUND: Final = 24
FAULTY: Final = 8
"""Histories, and those with each kind of fault. All go into one audit, which costs what its queries cost."""

Steps = list[tuple[str, int, int]]
STEPS: Final = st.lists(
    st.tuples(st.sampled_from("aaaaaarjze"), st.integers(1, 3), st.integers(1, 5000)), min_size=12, max_size=60
)


class Case(NamedTuple):
    """`fault`: the check that is to find what was spoilt at `offset`, if anything was."""

    steps: Steps
    tables: QuorumTables
    fault: str | None = None
    offset: int = 0


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with tiny_tables(spark) as tiny:
        yield tiny


def history_of(steps: list[tuple[str, int, int]]) -> History:
    """Each step: what happens, which broker, how many IDs. Nothing is passed over before the logs begin."""
    history = History(1, 2, 3)
    for what, broker, ids in steps:
        if what == "a":
            history.allocate(broker, ids)
        elif what == "r":
            history.register(broker)
        elif what == "e":
            history.term += 1
            history.elect()
        else:
            # Two jumps in a row: the second one explains the gap.
            history.jump(history.next_id + ids, zookeeper=what == "z")
    history.allocate(1, 10)
    history.allocate(2, 10)
    return history


def everything(history: History) -> QuorumTables:
    """As `three_members`, with whole logs, which explain every gap."""
    tables = three_members(history)
    tables.log = []
    for member in "123":
        tables.add_member(history, member, [], (0, len(history.records)))
    return tables


def share_an_id(tables: QuorumTables, offset: int) -> None:
    """The last block but one ends with the first ID of the last."""
    last = tables.copies(offset)[0]["last_id"]
    tables.change(offset, last_id=last + 1)


def name_another_broker(tables: QuorumTables, offset: int) -> None:
    tables.change(offset, "2", broker_id=77)


def name_a_later_epoch(tables: QuorumTables, offset: int) -> None:
    tables.change(offset, broker_epoch=offset + 1)


def forget_an_id(tables: QuorumTables, offset: int) -> None:
    for row in tables.snapshots:
        row.update(next_producer_id=tables.copies(offset)[0]["first_id"], next_offset=offset + 1)


def lose_an_offset(tables: QuorumTables, offset: int) -> None:
    tables.files.clear()
    tables.blocks.clear()
    tables.log = [row for row in tables.log if row["offset"] != offset]


FAULTS: dict[str, Callable[[QuorumTables, int], None]] = {
    "overlap": share_an_id,
    "replicas_disagree": name_another_broker,
    "stale_epoch": name_a_later_epoch,
    "snapshot_behind": forget_an_id,
    "coverage": lose_an_offset,
}


def drawn(count: int) -> list[Steps]:
    """So many different examples, the same ones in every run."""
    examples: list[Steps] = []

    @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS)
    def draw(steps: Steps) -> None:
        examples.append(steps)

    draw()
    assert len(examples) == count
    return examples


def spoilt(steps: Steps, check: str) -> Case:
    history = history_of(steps)
    tables = everything(history)
    offset = len(history.records) - 2
    FAULTS[check](tables, offset)
    return Case(steps, tables, check, offset)


@pytest.fixture(scope="module")
def judged(session: SparkSession) -> list[tuple[Case, list[Row]]]:
    """Each case with what is found in it above a note."""
    sound, faulty = (examples := drawn(SOUND + FAULTY * len(FAULTS)))[:SOUND], examples[SOUND:]
    cases = [Case(steps, everything(history_of(steps))) for steps in sound]
    cases += [spoilt(steps, check) for steps, check in zip(faulty, sorted(FAULTS) * FAULTY, strict=True)]
    found = judge((case.tables for case in cases), lambda tables: run(QUORUM_CHECKS, tables.inputs(session)))
    return [(case, [row for row in rows if row["severity"] != "note"]) for case, rows in zip(cases, found, strict=True)]


def test_a_sound_history_has_no_finding_above_a_note(judged: list[tuple[Case, list[Row]]]) -> None:
    sound = [(case.steps, rows) for case, rows in judged if case.fault is None]
    assert len(sound) == SOUND
    assert [(steps, rows) for steps, rows in sound if rows] == []


@pytest.mark.parametrize("check", sorted(FAULTS))
def test_a_fault_anywhere_is_found_by_its_check(judged: list[tuple[Case, list[Row]]], check: str) -> None:
    mine = [(case, rows) for case, rows in judged if case.fault == check]
    assert len(mine) == FAULTY
    behind = 1 if check in {"overlap", "snapshot_behind"} else 0
    for case, rows in mine:
        violations = [(row["check"], row["offset"]) for row in rows if row["severity"] == "violation"]
        assert violations == [(check, case.offset + behind)], (case.steps, rows)
