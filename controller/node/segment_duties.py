"""What the leader does so that logs stay small: which tails are to be rolled, what retention no longer keeps. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pidkeeper.controller.node.settings import SegmentSettings
from pidkeeper.controller.node.transaction_duties import Ask
from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import RetainLogs
from pidkeeper.protocol.metadata_version import SEGMENTS
from pidkeeper.protocol.segments import MAX_LOG_STARTS

LOGS_A_LOOK: Final = 1000
"""Logs that one look goes through: half a millisecond. All are seen within a second, at ten looks a second."""


class SegmentDuties:
    """The duties of one member while it leads.

    Retention by time goes by the wall clock, which may be wrong: two looks must find the same part of a log too old,
    and the time between them passes by ticks. `garbage_before`: how many objects had become garbage `garbage_ms` ago.
    """

    def __init__(
        self, machine: StateMachine, ask: Ask, *, ticks: Callable[[int], int], settings: SegmentSettings
    ) -> None:
        self._machine = machine
        self._ask = ask
        self.settings: Final = settings
        self._age_ticks = ticks(settings.age_ms)
        self._check_ticks = ticks(settings.retention_check_ms)
        self._garbage_ticks = ticks(settings.garbage_ms)
        self._begin(0)

    def lead(self, ticks: int) -> None:
        """This member leads from now on."""
        self._begin(ticks)

    def _begin(self, ticks: int) -> None:
        # The first offset of each tail, and when it was seen first.
        self._seen: dict[int, tuple[int, int]] = {}
        self._due: dict[int, int] = {}
        self._round: list[int] = []
        # What the last look found too old, and when the next one may be.
        self._old: dict[int, tuple[int, int]] = {}
        self._aging = self.garbage_before = 0
        self._next_garbage = ticks

    def due(self, limit: int) -> list[int]:
        """Logs that are to be rolled, those with the most rows first."""
        return sorted(self._due, key=lambda number: -self._due[number])[:limit]

    def tick(self, ticks: int, now_ms: int) -> None:
        """Time has passed; `now_ms` by the wall clock."""
        if self._machine.metadata_version < SEGMENTS:
            return
        if ticks >= self._next_garbage:
            self._next_garbage = ticks + self._garbage_ticks
            self.garbage_before, self._aging = self._aging, self._machine.logs.objects.became_garbage
        if not self._round:
            self._round = self._machine.logs.numbers()
            self._forget_removed()
        part, self._round = self._round[:LOGS_A_LOOK], self._round[LOGS_A_LOOK:]
        threshold = self._rows_due()
        starts = []
        for number in part:
            log = self._machine.logs.log(number)
            if log is not None:
                self._look(log, ticks, threshold)
                if (start := self._retained(log, ticks, now_ms)) > log.start:
                    starts.append((number, start))
        for first in range(0, len(starts), MAX_LOG_STARTS):
            self._ask(RetainLogs(tuple(starts[first : first + MAX_LOG_STARTS])), _nothing)

    def _rows_due(self) -> int:
        """Rows with which a tail is rolled: fewer once all tails together have half of what they may."""
        logs = self._machine.logs
        if logs.rows + logs.open <= limits.MAX_ROWS // 2:
            return self.settings.rows
        return max(min(self.settings.rows, limits.MAX_ROWS // (4 * max(logs.topics.partitions, 1))), 1)

    def _look(self, log: PartitionLog, ticks: int, rows_due: int) -> None:
        number, tail_start = log.number, log.tail_start
        if log.last_stable <= tail_start:
            self._due.pop(number, None)
            self._seen.pop(number, None)
            return
        known = self._seen.get(number)
        if known is None or known[0] != tail_start:
            known = self._seen[number] = tail_start, ticks
        aged = ticks - known[1] >= self._age_ticks
        if log.rows >= rows_due or log.tail_size >= self.settings.tail_bytes or aged:
            self._due[number] = log.rows
        else:
            self._due.pop(number, None)

    def _retained(self, log: PartitionLog, ticks: int, now_ms: int) -> int:
        """Where the log is to begin."""
        topic = log.topic
        if topic.retention_ms < 0 and topic.retention_bytes < 0:
            return log.start
        start, (known, due) = log.start, self._old.get(log.number, (log.start, ticks))
        if topic.retention_bytes >= 0 and log.size > topic.retention_bytes:
            start = _start_by_bytes(log, topic.retention_bytes)
        if topic.retention_ms >= 0 and ticks >= due:
            found = _start_by_time(log, now_ms - topic.retention_ms)
            self._old[log.number] = found, ticks + self._check_ticks
            start = max(start, min(found, known))
        return min(start, log.last_stable)

    def _forget_removed(self) -> None:
        there = set(self._round)
        for kept in (self._seen, self._due, self._old):
            for number in [number for number in kept if number not in there]:
                del kept[number]


def _start_by_time(log: PartitionLog, before_ms: int) -> int:
    """The first offset that is not in a segment or batch all of whose records are older."""
    return next((base for base, _, latest in log.parts() if not 0 <= latest < before_ms), log.end)


def _start_by_bytes(log: PartitionLog, most: int) -> int:
    """The first offset at which no more than so many bytes are left, or as few more as one segment or batch has."""
    left = log.size
    for base, size, _ in log.parts():
        if left - size < most:
            return base
        left -= size
    return log.end


def _nothing() -> None:
    """The next looks find them again."""
