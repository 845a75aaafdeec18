"""What the leader does about partition logs by itself: forget producers that were silent for long (KIP-854). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidkeeper.controller.node.transaction_duties import Ask
from pidkeeper.controller.state.logs.state import Key
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import ExpireProducers
from pidkeeper.protocol.logs import MAX_EXPIRED
from pidkeeper.snapshots.logs_image import ProducerEntry

LOOK_MS: Final = 3_600_000
"""Between two looks, or less where producers expire sooner."""

FORGET_MS: Final = 1000
"""Between two requests to forget some."""

MAX_OLD: Final = 16 * MAX_EXPIRED
"""Producers that one look finds old: a millisecond's work, and the most that are kept are gone in six looks."""


class LogDuties:
    """The duties of one member while it leads. `expiration_ms`: Kafka's `producer.id.expiration.ms`, by the wall clock.

    That may be wrong, or may have been when the producer wrote, and of one that was forgotten a batch that comes again
    is taken for a new one. So two looks must find it old and silent since, and time passes between them by ticks.
    `expired`: producers that were to be forgotten while this member led.
    """

    def __init__(self, machine: StateMachine, ask: Ask, *, ticks: Callable[[int], int], expiration_ms: int) -> None:
        self._machine = machine
        self._ask = ask
        self._expiration_ms = expiration_ms
        self._look_ticks = ticks(min(LOOK_MS, expiration_ms))
        self._forget_ticks = ticks(FORGET_MS)
        self._next_look = self._next_forgetting = 0
        self._old: dict[Key, ProducerEntry] = {}
        self._silent: list[tuple[int, int, int]] = []
        self.expired = 0

    def lead(self, ticks: int) -> None:
        """This member leads from now on."""
        self._old, self._silent = {}, []
        self._next_look = ticks

    def tick(self, ticks: int, now_ms: int) -> None:
        """Time has passed; `now_ms` by the wall clock."""
        if ticks >= self._next_look:
            self._next_look = ticks + self._look_ticks
            self._look(now_ms - self._expiration_ms)
        if self._silent and ticks >= self._next_forgetting:
            self._next_forgetting = ticks + self._forget_ticks
            some, self._silent = self._silent[:MAX_EXPIRED], self._silent[MAX_EXPIRED:]
            self.expired += len(some)
            self._ask(ExpireProducers(tuple(some)), _nothing)

    def _look(self, before_ms: int) -> None:
        known = self._machine.logs.silent_longest(MAX_OLD)
        old = {place: entry for place, entry in known if entry.timestamp_ms <= before_ms}
        # The very same value: it was not written since.
        self._silent = [(*place, one.timestamp_ms) for place, one in old.items() if self._old.get(place) is one]
        self._old = old


def _nothing() -> None:
    """The next looks find them again."""
