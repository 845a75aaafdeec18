"""Whatever a sound quorum does, no check finds more than a note; whatever is spoilt, the right check finds it.

Each history is cut into shards anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.quorum_evidence import run
from tests.support.quorum_tables import History, QuorumTables, Row, three_members

SOUND: Final = 20
FAULTY: Final = 5
"""Histories, and those with each kind of fault."""

Steps = list[tuple[str, int, int]]
Drawn = tuple[Steps, list[int]]
STEPS: Final = st.lists(
    st.tuples(st.sampled_from("aaaaaarjze"), st.integers(1, 3), st.integers(1, 5000)), min_size=12, max_size=60
)
CUTS: Final = st.lists(st.integers(1, 66), unique=True, max_size=6).map(sorted)
"""Within the offsets of a history, or just behind."""


class Case(NamedTuple):
    """`offset`: of the block that was spoilt. `found`: the findings above a note."""

    steps: Steps
    cuts: list[int]
    offset: int
    found: list[Row]


def history_of(steps: Steps) -> History:
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


def drawn(count: int) -> list[Drawn]:
    """So many different examples, the same ones in every run."""
    examples: list[Drawn] = []

    @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS, cuts=CUTS)
    def draw(steps: Steps, cuts: list[int]) -> None:
        examples.append((steps, cuts))

    draw()
    assert len(examples) == count
    return examples


DRAWN: Final = drawn(SOUND + FAULTY * len(FAULTS))


def judged(example: Drawn) -> Case:
    """A sound history."""
    steps, cuts = example
    history = history_of(steps)
    return found_in(steps, everything(history), cuts, len(history.records) - 2)


def spoilt(example: Drawn, check: str, seam: int) -> Case:
    """A history that is spoilt for one of the checks, and cut so far from the block that is."""
    steps, cuts = example
    history = history_of(steps)
    tables = everything(history)
    offset = len(history.records) - 2
    FAULTS[check](tables, offset)
    return found_in(steps, tables, sorted({*cuts, offset + seam}), offset)


def found_in(steps: Steps, tables: QuorumTables, cuts: list[int], offset: int) -> Case:
    return Case(steps, cuts, offset, [row for row in run(tables, cuts=cuts) if row["severity"] != "note"])


def test_a_sound_history_has_no_finding_above_a_note() -> None:
    cases = [judged(example) for example in DRAWN[:SOUND]]
    assert sum(bool(case.cuts) for case in cases) >= SOUND // 4, "hardly a history is cut"
    assert [case for case in cases if case.found] == []


@pytest.mark.parametrize("check", sorted(FAULTS))
def test_a_fault_anywhere_is_found_by_its_check(check: str) -> None:
    behind = 1 if check in {"overlap", "snapshot_behind"} else 0
    place = SOUND + FAULTY * sorted(FAULTS).index(check)
    for number, example in enumerate(DRAWN[place : place + FAULTY]):
        case = spoilt(example, check, number % 4 - 1)
        violations = [(row["check"], row["offset"]) for row in case.found if row["severity"] == "violation"]
        assert violations == [(check, case.offset + behind)], case
