"""Holes in the offsets of a partition, and what a restored topic lacks of a backup."""

from __future__ import annotations

import pytest

from tests.chaos.load.journal import Entry, Outcome
from tests.chaos.load.kinds import FINAL_READ, TRANSACTION
from tests.chaos.load.records_process import COMMITTED, PARTITIONS, UNCOMMITTED
from tests.cuts.offsets import holes
from tests.cuts.readings import Held, Reading, differs, reading_of


def transaction(number: int, *values: str) -> Entry:
    arguments = {"records": [(0, value) for value in values]}
    return Entry("t", number, TRANSACTION, arguments, 0, 1, Outcome.OK, {"committed": True}, "")


def final(isolation: str, *records: tuple[int, str], partition: int = 0) -> Entry:
    arguments = {"isolation": isolation, "partition": partition}
    return Entry("r", 0, FINAL_READ, arguments, 0, 1, Outcome.OK, {"records": list(records)}, "")


ONE, OTHER = transaction(1, "t.0", "t.1"), transaction(2, "t.2")


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(0, "w.0"), (1, "w.1")],
        [(0, "t.0"), (1, "w.0"), (2, "t.1"), (4, "w.1")],
        [(0, "t.0"), (1, "t.1"), (3, "t.2"), (5, "w.0")],
        [(0, "t.0"), (1, "w.0")],
    ],
)
def test_each_end_of_a_transaction_takes_one_offset(records: list[tuple[int, str]]) -> None:
    assert holes([ONE, OTHER, final(UNCOMMITTED, *records)]) == []


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([(1, "w.0")], "offsets from 0 to 0 are nobody's"),
        ([(0, "w.0"), (2, "w.1")], "offsets from 1 to 1 are nobody's"),
        ([(0, "t.0"), (3, "w.0")], "offsets from 1 to 2 are nobody's"),
        ([(0, "t.0"), (2, "w.0"), (4, "w.1")], "offsets from 3 to 3 are nobody's"),
        ([(0, "t.0"), (1, "t.2")], "t.2 at 1 is of another transaction"),
    ],
)
def test_all_other_holes_are_found(records: list[tuple[int, str]], text: str) -> None:
    (found,) = holes([ONE, OTHER, final(UNCOMMITTED, *records)])
    assert text in found


def reading(*records: tuple[int, str], committed: list[tuple[int, str]] | None = None) -> Reading:
    others = [final(level, partition=number) for level in (UNCOMMITTED, COMMITTED) for number in range(1, PARTITIONS)]
    seen = final(COMMITTED, *(records if committed is None else committed))
    return reading_of([final(UNCOMMITTED, *records), seen, *others])


BEFORE = reading((0, "w.0"), (1, "t.0"), (2, "t.1"), (4, "w.1"), (5, "w.2"))
TRANSACTIONS = [["t.0", "t.1"]]


def test_a_restored_topic_has_what_was_there_up_to_the_end_of_the_backup() -> None:
    whole = reading((0, "w.0"), (1, "t.0"), (2, "t.1"), (4, "w.1"))
    held = Held({0: 5}, frozenset({"w.0", "t.0"}))
    assert list(differs(BEFORE, whole, held, TRANSACTIONS)) == []
    # The copy was made amid a transaction, which is aborted therefore.
    amid = reading((0, "w.0"), (1, "t.0"), committed=[(0, "w.0")])
    assert list(differs(BEFORE, amid, Held({0: 2}, frozenset({"w.0"})), TRANSACTIONS)) == []


@pytest.mark.parametrize(
    ("after", "held", "text"),
    [
        (reading((0, "w.0")), Held({0: 2}, frozenset()), "partition 0, which the backup has up to 2, differs"),
        (reading((0, "w.0"), (1, "w.1")), Held({0: 2}, frozenset()), "differs at"),
        (reading((0, "w.0")), Held({}, frozenset({"w.1"})), "w.1 was acknowledged before the backup"),
        (
            reading((0, "w.0"), (1, "t.0"), (2, "t.1"), committed=[(0, "w.0"), (1, "t.0")]),
            Held({}, frozenset()),
            "1 of",
        ),
        (reading((0, "w.0"), committed=[]), Held({}, frozenset()), "w.0, which is of no transaction, is hidden"),
        (reading((0, "w.0"), committed=[(0, "w.0"), (3, "x")]), Held({}, frozenset()), "seen at"),
    ],
)
def test_what_a_restored_topic_lacks_is_found(after: Reading, held: Held, text: str) -> None:
    assert any(text in one for one in differs(BEFORE, after, held, TRANSACTIONS))
