"""How long it takes this member to win an election; the core counts elections, and has no clock."""

from __future__ import annotations

from collections.abc import Callable

from pidkeeper.controller.raft.election_tally import ElectionOutcome, ElectionTally
from pidkeeper.service.histogram import durations


class ElectionClock:
    """Looks at the core's tally after every round of its work. `duration`: from the beginning to the win.

    `clock_ns`: a monotonic clock.
    """

    def __init__(self, tally: ElectionTally, clock_ns: Callable[[], int]) -> None:
        self._tally = tally
        self._clock_ns = clock_ns
        self._begun = tally.begun
        self._began_ns: int | None = None
        self.duration = durations()

    def look(self) -> None:
        """An election may have begun, or be over."""
        tally = self._tally
        if tally.begun != self._begun:
            self._begun, self._began_ns = tally.begun, self._clock_ns()
        if self._began_ns is not None and not tally.under_way:
            assert tally.last_election is not None, "an election that began and is over has an outcome"
            if tally.last_election[1] is ElectionOutcome.WON:
                self.duration.observe(self._clock_ns() - self._began_ns)
            self._began_ns = None
