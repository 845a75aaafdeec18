"""A round trip: from the first sending of an entry to its acknowledgement. Nothing else is taken for one."""

from __future__ import annotations

import pytest

from pidkeeper.controller.node.round_trips import RoundTrips
from pidkeeper.controller.raft.messages import AppendEntries, AppendEntriesReply, Entry, Heartbeat, HeartbeatReply

PEER = 2


class Clock:
    """Nanoseconds, as the test says."""

    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trips(clock: Clock) -> RoundTrips:
    return RoundTrips(clock)


def append(last: int, *, term: int = 1, entry_term: int | None = None, peer: int = PEER) -> AppendEntries:
    """One that ends with entry `last`."""
    entry = Entry(term if entry_term is None else entry_term, last, b"")
    return AppendEntries(term, 1, peer, last - 1, term, 0, [entry])


def acknowledgement(index: int, *, term: int = 1, rejected: bool = False, peer: int = PEER) -> AppendEntriesReply:
    return AppendEntriesReply(term, peer, 1, rejected, index, 0, 0, 0, 0)


def measured(trips: RoundTrips, peer: int = PEER) -> tuple[int, float]:
    """How many, and their sum in nanoseconds."""
    histogram = trips.durations.get(peer)
    return (0, 0) if histogram is None else (histogram.count, histogram._sum)


def test_an_entry_and_its_acknowledgement_are_one_round_trip(trips: RoundTrips, clock: Clock) -> None:
    trips.sent([append(7), append(7, peer=3)])
    clock.now = 500
    trips.received([acknowledgement(7)])
    clock.now = 900
    trips.received([acknowledgement(8, peer=3)])
    assert measured(trips) == (1, 500)
    assert measured(trips, 3) == (1, 900)
    trips.received([acknowledgement(7), acknowledgement(8)])
    assert measured(trips) == (1, 500), "one acknowledgement counts once"


def test_while_one_is_under_way_no_other_is_measured(trips: RoundTrips, clock: Clock) -> None:
    trips.sent([append(7)])
    clock.now = 100
    trips.sent([append(8)])
    clock.now = 300
    trips.received([acknowledgement(8)])
    assert measured(trips) == (1, 300)
    trips.sent([append(9)])
    clock.now = 350
    trips.received([acknowledgement(9)])
    assert measured(trips) == (2, 350)


def test_what_acknowledges_less_is_waited_past(trips: RoundTrips, clock: Clock) -> None:
    trips.sent([append(7)])
    clock.now = 500
    trips.received([acknowledgement(6), acknowledgement(7, rejected=True), acknowledgement(7, term=2)])
    trips.received([HeartbeatReply(1, PEER, 1, 7)])
    assert measured(trips) == (0, 0)
    trips.received([acknowledgement(7)])
    assert measured(trips) == (1, 500)


def test_what_the_peer_may_hold_already_is_not_measured(trips: RoundTrips, clock: Clock) -> None:
    """Entries of earlier terms, entries that are sent again, and messages without any."""
    trips.sent([append(7, term=2, entry_term=1), Heartbeat(2, 1, PEER, 7, 0), AppendEntries(2, 1, PEER, 7, 1, 7, [])])
    trips.received([acknowledgement(7, term=2)])
    assert measured(trips) == (0, 0)
    trips.sent([append(8, term=2)])
    trips.interrupted(PEER)
    trips.sent([append(8, term=2)])
    trips.received([acknowledgement(8, term=2)])
    assert measured(trips) == (0, 0)


def test_what_was_lost_with_a_connection_is_forgotten(trips: RoundTrips, clock: Clock) -> None:
    trips.sent([append(7)])
    trips.interrupted(PEER)
    clock.now = 10_000
    trips.received([acknowledgement(7)])
    assert measured(trips) == (0, 0)


def test_what_an_earlier_leadership_sent_is_forgotten(trips: RoundTrips, clock: Clock) -> None:
    trips.sent([append(7)])
    clock.now = 10_000
    trips.sent([append(6, term=3)])
    clock.now = 10_400
    trips.received([acknowledgement(7, term=1), acknowledgement(6, term=3)])
    assert measured(trips) == (1, 400)
