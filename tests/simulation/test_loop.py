"""The event loop in virtual time: what a pause holds up."""

from __future__ import annotations

import pytest

from tests.simulation.loop import SimLoop, enter
from tests.simulation.world import MILLISECOND, SECOND, World


@pytest.mark.parametrize(("second", "end"), [(100, 1000), (2000, 2500)])
def test_all_of_a_process_goes_on_at_the_end_of_the_longest_of_its_pauses(second: int, end: int) -> None:
    """A timer that the first pause has put off, and an event that comes in the second one, half a second later."""
    world = World(1)
    loop = SimLoop(world)
    happened: list[tuple[str, int]] = []

    def happens(what: str) -> None:
        happened.append((what, world.now // MILLISECOND))

    loop.call_later(0.01, happens, "timer")
    loop.pause(SECOND)
    world.at(500 * MILLISECOND, loop.pause, second * MILLISECOND)
    world.at(550 * MILLISECOND, loop.run_event, happens, "event")
    world.at(700 * MILLISECOND, loop.run_event, happens, "later event")
    world.run(3 * SECOND)
    enter(None)
    loop.close()
    assert sorted(happened) == [("event", end), ("later event", end), ("timer", end)]
