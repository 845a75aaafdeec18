"""A pulse tells that its process stood still, however the beat and the request that asks come after one another."""

from __future__ import annotations

import pytest

from pidkeeper.service.pulse import STILL_SECONDS, WARY_SECONDS, Pulse

TICK = 0.1


class Beating:
    """A pulse by the test's own clock."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pulse = Pulse(lambda: self.now)

    def beat_after(self, seconds: float) -> float:
        self.now += seconds
        return self.pulse.beat()

    def stood_still_after(self, seconds: float) -> bool:
        self.now += seconds
        return self.pulse.stood_still


@pytest.fixture
def beating() -> Beating:
    beating = Beating()
    beating.pulse.beat()
    return beating


def test_what_never_beat_has_not_stood_still() -> None:
    beating = Beating()
    assert not beating.stood_still_after(1e9)
    assert beating.beat_after(1e9) == 0.0
    assert not beating.stood_still_after(0.0)


def test_a_pulse_that_beats_in_time_stands_still_at_no_time(beating: Beating) -> None:
    for late in (0.0, 0.3, STILL_SECONDS - TICK - 0.01, 0.0):
        assert beating.beat_after(TICK + late) == 0.0
        assert not beating.stood_still_after(0.0)


def test_whoever_asks_before_the_late_beat_learns_that_it_is_late(beating: Beating) -> None:
    assert not beating.stood_still_after(STILL_SECONDS - 0.01)
    assert beating.stood_still_after(0.02)


def test_whoever_asks_just_after_the_late_beat_learns_of_it_too(beating: Beating) -> None:
    assert beating.beat_after(7.0) == pytest.approx(7.0)
    assert beating.stood_still_after(0.0)
    assert beating.beat_after(TICK) == 0.0
    assert beating.stood_still_after(WARY_SECONDS - TICK - 0.01), "a beat in time does not end the doubt"
    assert not beating.stood_still_after(0.02)


def test_a_machine_that_is_always_late_refuses_not_for_ever(beating: Beating) -> None:
    for _ in range(10):
        assert beating.beat_after(STILL_SECONDS + 0.2) > 0
        assert beating.stood_still_after(0.0)
        assert not beating.stood_still_after(WARY_SECONDS + 0.01)
        beating.now -= WARY_SECONDS + 0.01
