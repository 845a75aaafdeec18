"""Offsets by time, asked for once all is calm: from segments and from tails, none leaves out a record (KIP-79)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from tests.simulation.log_model import ModelLog
from tests.simulation.world import SECOND, Violation

if TYPE_CHECKING:
    from tests.histories.history import LogHistory

PATIENCE: Final = 5 * SECOND
TIMES: Final = 3
"""Asked of each log."""


class Seeker:
    """Asks all logs of a history, each for the time of some of its records and for one behind them all."""

    def __init__(self, history: LogHistory) -> None:
        self._history = history
        self._rng: random.Random = history.world.stream("seeking")
        self._open = 0

    def seek(self) -> None:
        """Ask, and check what is told. Raises Violation."""
        world = self._history.world
        for log in self._history.plane.monitor.model.present():
            times = [row.latest for row in log.rows[log.first :] if row.covered]
            chosen = self._rng.sample(times, min(TIMES, len(times)))
            for timestamp in [*chosen, max(times, default=0) + 1]:
                self._ask(log, timestamp)
        world.run(world.now + PATIENCE, lambda: not self._open)
        if self._open:
            raise Violation("not-sought", f"{self._open} offsets were not told in {PATIENCE // SECOND} s")

    def _ask(self, log: ModelLog, timestamp: int) -> None:
        agent = self._history.plane.any_agent()
        assert agent is not None and agent.data is not None, "all agents run once all is calm"
        self._open += 1

        def done(code: int, offset: int, told: int) -> None:
            self._open -= 1
            self._check(log, timestamp, code, offset)

        agent.data.list_offsets(log.topic, log.partition, timestamp, IsolationLevel.READ_COMMITTED, done)

    def _check(self, log: ModelLog, timestamp: int, code: int, offset: int) -> None:
        later = [row for row in log.rows if row.covered and row.end > log.start and row.latest >= timestamp]
        first = max(later[0].offset, log.start) if later else log.ends.end
        if code or offset > first or (later and offset < 0) or 0 <= offset < log.start:
            facts = f"{log.topic}-{log.partition}, {log.ends}: from {timestamp} on it is {first}"
            raise Violation("sought-offset", f"{facts}, told was {offset} with code {code}")
