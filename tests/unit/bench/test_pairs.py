"""The comparison of two trees: which ratio, which interval, and what counts as worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import ClickException
from click.testing import CliRunner

from bench.pairs import Figure, added, compare, figures, in_turn, interval, measure, run
from bench.report import Report, at_least, at_most
from pidkeeper.cli.local_cluster import import_root


def times(*values: float, tail: bool = False) -> list[dict[str, Figure]]:
    return [{"time": Figure(value, "ms", rate=False, tail=tail)} for value in values]


def rates(*values: float) -> list[dict[str, Figure]]:
    return [{"rate": Figure(value, "blocks/s", rate=True, tail=False)} for value in values]


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (20, 6, 15)])
def test_the_interval_is_that_of_the_sign_test(count: int, low: int, high: int) -> None:
    """As the tables of the sign test have it, for example Conover's, at 5 %."""
    assert interval([float(rank) for rank in range(count, 0, -1)]) == (low, high)


def test_too_few_ratios_have_no_interval() -> None:
    with pytest.raises(ValueError, match="5 pairs are too few"):
        interval([1.0] * 5)


def test_a_ratio_above_one_is_better_for_rates_and_for_times() -> None:
    (rate,) = compare(rates(*[100.0] * 6), rates(*[110.0] * 6))
    (time,) = compare(times(*[1.1] * 6), times(*[1.0] * 6))
    assert rate.ratio == pytest.approx(1.1)
    assert time.ratio == pytest.approx(1.1)
    assert not rate.worse
    assert not time.worse


def test_worse_is_what_lies_below_the_limit_as_a_whole() -> None:
    (slower,) = compare(rates(*[100.0] * 6), rates(*[96.0] * 6))
    (one_good,) = compare(rates(*[100.0] * 6), rates(96.0, 96.0, 98.0, 96.0, 96.0, 96.0))
    (tail,) = compare(times(*[96.0] * 6, tail=True), times(*[100.0] * 6, tail=True))
    (bad_tail,) = compare(times(*[88.0] * 6, tail=True), times(*[100.0] * 6, tail=True))
    assert [slower.worse, one_good.worse, tail.worse, bad_tail.worse] == [True, False, False, True]


def test_each_pair_is_compared_by_itself() -> None:
    """A machine that becomes slower by half changes no ratio."""
    (found,) = compare(rates(100.0, 100.0, 100.0, 50.0, 50.0, 50.0), rates(99.0, 99.0, 99.0, 49.5, 49.5, 49.5))
    assert (found.low, found.ratio, found.high) == pytest.approx((0.99, 0.99, 0.99))


def test_what_cannot_be_compared_is_no_good_news() -> None:
    more = [one | {"gone": Figure(1.0, "ms", rate=False, tail=False)} for one in rates(*[1.0] * 6)]
    with pytest.raises(ValueError, match="gone"):
        compare(more, rates(*[1.0] * 6))
    with pytest.raises(ValueError, match="gone"):
        compare(rates(*[1.0] * 6), [*more[1:], *rates(1.0)])
    with pytest.raises(ValueError, match="there are none"):
        compare([{}] * 6, [{}] * 6)


def test_what_only_this_tree_measures_is_named_and_not_compared() -> None:
    more = [one | {"new": Figure(1.0, "ms", rate=False, tail=False)} for one in rates(*[1.0] * 6)]
    assert added(rates(*[1.0] * 6), more) == {"new"}
    assert [one.name for one in compare(rates(*[1.0] * 6), more)] == ["rate"]


def test_a_tree_is_not_compared_with_itself() -> None:
    refused = CliRunner().invoke(run, [str(import_root())])
    assert refused.exit_code == 2
    assert "give another checkout" in refused.output


def test_rows_give_their_figure_and_their_tail() -> None:
    rows = [
        at_least(0.5, "allocate", "allocations, 8 callers", "blocks/s", [6.0], [9.0], "p99 2.5 ms, client 9%"),
        at_most("failover", "kill -9: next block", "ms, median", [24.0], 300.0, "max 74 ms of 20 rounds"),
    ]
    report = Report(machine={}, settings={}, rows=rows, violations=[], notes=[])
    assert figures(report) == {
        "allocations, 8 callers": Figure(6.0, "blocks/s", rate=True, tail=False),
        "allocations, 8 callers: p99": Figure(2.5, "ms", rate=False, tail=True),
        "kill -9: next block": Figure(24.0, "ms, median", rate=False, tail=True),
    }


def test_the_sides_are_first_by_turns() -> None:
    one, other = Path("one"), Path("other")
    assert list(in_turn(one, other, 4)) == [(one, other), (other, one)] * 2


def test_a_tree_without_an_environment_is_told_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ClickException, match="run `make setup` there"):
        measure(tmp_path, ["claims"], quick=True)
