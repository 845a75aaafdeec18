"""A spike stays in sight for a while, and not for ever."""

from __future__ import annotations

from pidkeeper.service.recent_maximum import RecentMaximum


def test_the_largest_is_shown_however_often_it_is_looked_at() -> None:
    largest = RecentMaximum(window=3)
    assert largest.value == 0
    for number in (1, 9, 2):
        largest.take(number)
    assert (largest.value, largest.value) == (9, 9)


def test_a_spike_is_shown_for_one_window_at_least_and_for_two_at_most() -> None:
    for before in range(3):
        largest = RecentMaximum(window=3)
        for _ in range(before):
            largest.take(1)
        largest.take(9)
        shown = []
        for _ in range(7):
            shown.append(largest.value)
            largest.take(1)
        assert shown[:4] == [9] * 4, f"forgotten too soon behind {before} others: {shown}"
        assert largest.value == 1, f"not forgotten behind {before} others"
