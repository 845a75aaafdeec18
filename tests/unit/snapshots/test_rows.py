"""Rows that are made while they are read."""

from __future__ import annotations

from pidkeeper.snapshots.rows import Rows


def test_they_are_made_each_time_and_equal_a_list() -> None:
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [1, 2]

    rows = Rows(2, make)
    assert len(rows) == 2
    assert not made, "their count is known without them"
    assert rows == [1, 2] == list(rows)
    assert rows == Rows(2, lambda: iter((1, 2)))
    assert rows != [1, 2, 3]
    assert rows != (1, 2)
    assert 2 in rows
    assert 3 not in rows
