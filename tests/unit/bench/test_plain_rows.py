from __future__ import annotations

from bench.plain_rows import informing, not_below


def test_a_figure_without_a_bar_is_neither_met_nor_missed() -> None:
    row = informing("s", "n", "ms", [3.0, 1.0, 2.0], "r")
    assert (row.measured, row.bar, row.met, row.remark) == (2.0, None, None, "r")


def test_a_bar_to_reach_is_met_from_there_on() -> None:
    assert not_below("s", "n", "share", [0.9], 0.9).met
    missed = not_below("s", "n", "share", [0.89], 0.9)
    assert (missed.met, missed.bar) == (False, ">= 0.9")
