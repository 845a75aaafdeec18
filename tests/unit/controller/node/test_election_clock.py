"""How long a member took to win is measured from the beginning of that election."""

from __future__ import annotations

from pidkeeper.controller.node.election_clock import ElectionClock
from pidkeeper.controller.raft.election_tally import ElectionOutcome, ElectionTally


def test_only_elections_that_were_won_are_measured() -> None:
    now = 0
    tally = ElectionTally()
    clock = ElectionClock(tally, lambda: now)
    clock.look()
    tally.begin()
    clock.look()
    now = 1_000
    tally.end(ElectionOutcome.LOST)
    clock.look()
    assert clock.duration.count == 0
    now = 5_000
    tally.begin()
    clock.look()
    now = 5_400
    clock.look()
    now = 5_700
    tally.end(ElectionOutcome.WON)
    clock.look()
    clock.look()
    assert (clock.duration.count, clock.duration._sum) == (1, 700)


def test_an_election_that_follows_another_at_once_is_measured_by_itself() -> None:
    now = 0
    tally = ElectionTally()
    clock = ElectionClock(tally, lambda: now)
    tally.begin()
    clock.look()
    now = 1_000
    tally.end(ElectionOutcome.TIMED_OUT)
    tally.begin()
    clock.look()
    now = 1_300
    tally.end(ElectionOutcome.WON)
    clock.look()
    assert (clock.duration.count, clock.duration._sum) == (1, 300)
