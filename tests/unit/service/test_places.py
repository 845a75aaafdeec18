"""Who gives way when a listener is full, whose bytes are too many, and who took too long."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.service.patience import CUTS_AT_ONCE, PAUSE_SECONDS, Patience, cut_overdue
from pidkeeper.service.places import Places
from pidkeeper.service.shared_bytes import SharedBytes


def asked(places: Places[str], *names: str) -> None:
    for name in names:
        assert places.take(name) is None
        places.set_busy(name)
        places.set_idle(name)


def test_whoever_has_asked_keeps_its_place_in_a_flood_of_newcomers() -> None:
    places: Places[str] = Places(8)
    asked(places, "good", "other")
    assert [places.take(f"n{number}") for number in range(10)] == [None] * 6 + ["n0", "n1", "n2", "n3"]
    assert len(places) == 8


def test_newcomers_do_not_push_each_other_out_while_they_are_few() -> None:
    places: Places[str] = Places(8)
    asked(places, *"abcdefgh")
    assert [places.take(name) for name in ("n0", "n1", "n2")] == ["a", "b", "c"]
    assert places.take("n3") == "n0", "a quarter of the places is theirs, and no more"


def test_the_one_that_was_idle_for_longest_goes_first() -> None:
    places: Places[str] = Places(3)
    asked(places, *"abc")
    places.set_idle("a")
    assert places.take("n") == "b"


def test_who_asks_again_and_again_outstays_those_that_asked_once() -> None:
    places: Places[str] = Places(4)
    asked(places, "regular")
    places.next_period()
    places.set_busy("regular")
    places.set_idle("regular")
    asked(places, *"abc")
    for name in "abc":  # more than once, but at once
        places.set_busy(name)
        places.set_idle(name)
    assert places.take("n") == "a"
    places.set_busy("n")
    places.set_idle("n")
    assert [places.take(name) for name in ("o", "p")] == ["b", "c"]
    places.leave("o")
    places.set_busy("p")
    assert places.take("q") is None
    assert places.take("r") == "n"
    places.set_busy("q")
    places.set_busy("r")
    assert places.take("s") == "regular", "before somebody is refused"


def again(places: Places[str], name: str) -> None:
    places.next_period()
    places.set_busy(name)
    places.set_idle(name)


def test_who_shows_life_without_asking_becomes_no_regular_and_stays_one() -> None:
    places: Places[str] = Places(3)
    asked(places, "regular")
    again(places, "regular")
    asked(places, "once", "other")
    for name in ("regular", "once"):
        places.set_idle(name)
    assert [places.take("n"), places.take("o")] == ["other", "n"]
    places.leave("o")
    assert places.take("p") is None
    places.set_busy("p")
    assert [places.take("q"), places.take("r")] == ["once", "q"]


@pytest.mark.parametrize("leaves", [True, False])
def test_who_comes_back_is_as_new_as_on_the_first_day(leaves: bool) -> None:
    places: Places[str] = Places(1)
    asked(places, "back")
    if leaves:
        places.leave("back")
    else:
        assert places.take("other") == "back"
        places.leave("other")
    places.next_period()
    asked(places, "back")
    assert list(places._idle) == ["back"], "it asked in one period since it came"
    places.leave("back")
    assert not places._first_asked, "nothing is kept of those that are gone"


def test_the_busy_give_way_to_nobody_and_the_last_newcomer_does() -> None:
    places: Places[str] = Places(2)
    for name in "ab":
        assert places.take(name) is None
        places.set_busy(name)
    assert places.take("n") == "n"
    places.leave("a")
    assert places.take("n") is None
    assert places.take("m") == "n"


def test_who_has_no_place_gets_none_by_what_it_does() -> None:
    places: Places[str] = Places(1)
    places.set_busy("stranger")
    places.set_idle("stranger")
    places.leave("stranger")
    assert len(places) == 0


@given(st.lists(st.tuples(st.sampled_from(["take", "busy", "idle", "leave"]), st.integers(0, 9))), st.integers(1, 5))
def test_there_are_never_more_holders_than_places(steps: list[tuple[str, int]], limit: int) -> None:
    places: Places[int] = Places(limit)
    inside: set[int] = set()
    for step, who in steps:
        if step == "take" and who not in inside:
            gone = places.take(who)
            inside.add(who)
            inside.discard(-1 if gone is None else gone)
        elif step == "busy":
            places.set_busy(who)
        elif step == "idle":
            places.set_idle(who)
        elif step == "leave":
            places.leave(who)
            inside.discard(who)
        assert len(places) == len(inside) <= limit


def test_who_holds_little_is_never_cut_and_the_oldest_of_the_others_is() -> None:
    held: SharedBytes[str] = SharedBytes(free=10, shared=100)
    assert held.hold("old", 70) == []
    assert held.hold("new", 40) == []
    assert [held.hold(f"small {number}", 10) for number in range(20)] == [[]] * 20
    assert held.hold("new", 60) == ["old"]
    assert held.used == 50
    held.drop("new")
    assert held.used == 0


def test_nobody_is_cut_for_the_last_byte_that_all_may_hold() -> None:
    held: SharedBytes[str] = SharedBytes(free=10, shared=100)
    assert held.hold("old", 60) == []
    assert held.hold("new", 110) == ["old"]
    assert held.used == 100
    held.drop("one that held little")
    assert held.used == 100


def test_one_that_holds_more_than_all_may_is_cut_itself() -> None:
    held: SharedBytes[str] = SharedBytes(free=10, shared=100)
    assert held.hold("a", 111) == ["a"]
    assert held.hold("a", 0) == []
    assert held.used == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300))))
def test_the_sum_is_bounded_and_exact(steps: list[tuple[int, int]]) -> None:
    held: SharedBytes[int] = SharedBytes(free=10, shared=100)
    counts: OrderedDict[int, int] = OrderedDict()
    for who, count in steps:
        counts[who] = count
        for gone in held.hold(who, count):
            del counts[gone]
        assert held.used == sum(max(0, each - 10) for each in counts.values()) <= 100


def test_patience_is_measured_from_the_first_call_and_ends_with_the_wait() -> None:
    patience: Patience[str] = Patience(10.0)
    patience.wait("a", 0.0)
    patience.wait("b", 1.0)
    patience.wait("a", 9.0)
    assert list(patience.overdue(9.9)) == []
    assert list(patience.overdue(10.0)) == ["a"]
    patience.end("b")
    assert list(patience.overdue(99.0)) == []


async def test_a_crowd_that_is_overdue_is_cut_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: Patience[int] = Patience(10.0)
    answers: Patience[int] = Patience(5.0)
    for holder in range(20):
        heads.wait(holder, 0.0)
    answers.wait(20, 5.0)
    cut: list[tuple[str, int]] = []
    pauses: list[tuple[float, int]] = []

    async def sleep(seconds: float) -> None:
        pauses.append((seconds, len(cut)))

    monkeypatch.setattr("pidkeeper.service.patience.asyncio.sleep", sleep)
    await cut_overdue({"head": heads, "answer": answers}, lambda reason, holder: cut.append((reason, holder)), 10.0)
    assert cut == [*(("head", holder) for holder in range(20)), ("answer", 20)]
    assert pauses == [(PAUSE_SECONDS, CUTS_AT_ONCE), (PAUSE_SECONDS, 2 * CUTS_AT_ONCE)]
