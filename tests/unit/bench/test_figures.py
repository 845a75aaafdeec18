from __future__ import annotations

import pytest

from bench.figures import quantile_ms, repeats
from bench.report import at_least, at_most, at_most_times, figure, informing, median, not_below


def test_quantile_is_the_nearest_rank_in_milliseconds() -> None:
    seconds = [number / 1000 for number in range(100, 0, -1)]
    assert quantile_ms(seconds, 0.5) == pytest.approx(51)
    assert quantile_ms(seconds, 0.99) == pytest.approx(100)
    assert quantile_ms([0.002], 0.99) == pytest.approx(2)
    with pytest.raises(ValueError, match="no duration"):
        quantile_ms([], 0.5)


def test_repeats_counts_every_further_appearance() -> None:
    assert repeats([5, 3, 4]) == 0
    assert repeats([5, 3, 5, 5, 3]) == 3
    assert repeats([]) == 0


def test_rates_want_half_of_the_floor_or_more() -> None:
    assert at_least(0.5, "s", "n", "u", [40.0, 50.0, 60.0], [100.0], "").met is True
    missed = at_least(0.5, "s", "n", "u", [49.0], [90.0, 100.0, 110.0], "")
    assert (missed.met, missed.measured, missed.floor, missed.ratio) == (False, 49.0, 100.0, 0.49)


def test_latencies_want_twice_the_floor_or_less() -> None:
    assert at_most_times(2.0, "s", "n", "u", [0.8], [0.4]).met is True
    missed = at_most_times(2.0, "s", "n", "u", [1.0], [0.4])
    assert (missed.met, missed.ratio) == (False, 0.4)


def test_fixed_bars_look_at_the_median() -> None:
    assert at_most("s", "n", "u", [1.0, 2.0, 900.0], 2.0).met is True
    assert at_most("s", "n", "u", [1.0, 3.0, 3.0], 2.0).met is False
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5


@pytest.mark.parametrize(("number", "text"), [(None, ""), (12345.6, "12,346"), (12.34, "12.3"), (0.1234, "0.123")])
def test_figures_are_short(number: float | None, text: str) -> None:
    assert figure(number) == text


def test_a_figure_without_a_bar_is_neither_met_nor_missed() -> None:
    row = informing("s", "n", "ms", [3.0, 1.0, 2.0], "r")
    assert (row.measured, row.bar, row.met, row.remark) == (2.0, None, None, "r")


def test_a_bar_to_reach_is_met_from_there_on() -> None:
    assert not_below("s", "n", "share", [0.9], 0.9).met
    missed = not_below("s", "n", "share", [0.89], 0.9)
    assert (missed.met, missed.bar) == (False, ">= 0.9")
