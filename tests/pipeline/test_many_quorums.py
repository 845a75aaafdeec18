"""What many quorums in one audit are told: their own findings, as if each had been alone."""

from __future__ import annotations

from itertools import chain

import pytest

from tests.support.many_quorums import ManyQuorums
from tests.support.quorum_tables import History, QuorumTables, Row, three_members

TABLES = ("blocks", "log", "snapshots", "files")


def quorum(length: int) -> QuorumTables:
    history = History(1, 2)
    for _ in range(length):
        history.allocate(2)
    return three_members(history)


def rows(tables: QuorumTables) -> list[Row]:
    """Those that a finding could be of: each names an offset or an ID."""
    found = chain.from_iterable(getattr(tables, name) for name in TABLES)
    return [row for row in found if "offset" in row or row.get("first_id") is not None]


@pytest.mark.parametrize("lengths", [[12], [12, 15, 18], [9] * 100])
def test_each_is_told_of_its_own_with_its_own_numbers(lengths: list[int]) -> None:
    cases = [quorum(length) for length in lengths]
    many = ManyQuorums()
    for case in cases:
        many.add(case)
    told = many.told(row for row in rows(many.tables) if not row["file"].startswith("between/"))
    assert told == [rows(case) for case in cases]


def test_the_words_of_a_finding_name_its_own_numbers_too() -> None:
    many = ManyQuorums()
    for _ in range(3):
        many.add(quorum(12))
    (moved,) = [row for row in many.tables.blocks if row["file"].startswith("case2/1/") and row["offset"] % 2**32 == 5]
    numbers = f"IDs {moved['first_id']} of broker {moved['broker_id']} at offset {moved['offset']}"
    (_, _, (row,)) = many.told([moved | {"detail": f"{numbers} in {moved['file']}, 3 of 4"}])
    assert row["detail"] == f"IDs 20 of broker 2 at offset 5 in {row['file']}, 3 of 4"


def test_between_two_of_them_nothing_is_missing_and_nothing_given_twice() -> None:
    many = ManyQuorums()
    for length in (9, 14, 11):
        many.add(quorum(length))
    (first, *others) = sorted(
        {(row["first_id"], row["last_id"]) for row in [*many.tables.blocks, *many.tables.log] if row.get("last_id")}
    )
    assert first[0] == 0
    for block, before in zip(others, [first, *others], strict=False):
        assert block[0] == before[1] + 1


def test_a_finding_that_names_the_file_of_another_one_is_no_finding_of_it() -> None:
    many = ManyQuorums()
    for _ in range(2):
        many.add(quorum(9))
    (row, *_) = [row for row in many.tables.blocks if row["file"].startswith("case1/")]
    with pytest.raises(AssertionError, match="of another case"):
        many.told([row | {"file": "case0/1/archive/0-3.arc"}])
