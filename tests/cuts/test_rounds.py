"""The order in which windows come."""

from __future__ import annotations

from collections import Counter

from tests.cuts.rounds import draw
from tests.cuts.windows import Victim, by_name, windows

ALL = windows(power=True, quick=False)


def test_a_seed_gives_one_order_and_every_window_its_turn() -> None:
    drawn = draw(ALL, 3 * len(ALL), 1)
    assert drawn == draw(ALL, 3 * len(ALL), 1) != draw(ALL, 3 * len(ALL), 2)
    counts = Counter(one.full_name for one in drawn)
    assert counts.keys() == {one.full_name for one in ALL}
    needed = {by_name(Victim.AGENT, one.needs).full_name for one in ALL if one.needs is not None}
    assert all(2 <= count <= 3 for name, count in counts.items() if name not in needed)


def test_what_a_window_needs_comes_right_before_it() -> None:
    drawn = draw(ALL, 5 * len(ALL), 3)
    places = [place for place, one in enumerate(drawn) if one.needs is not None]
    assert places
    assert all(drawn[place - 1] == by_name(Victim.AGENT, drawn[place].needs or "") for place in places)


def test_no_power_is_cut_where_none_can_be() -> None:
    assert not any(one.victim.loses_power for one in windows(power=False, quick=False))
    assert {one.needs for one in windows(power=True, quick=True)} == {None}
