"""The leader tells which tails are to be rolled, and drops what two looks found too old, whatever a clock says once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest

from pidkeeper.controller.node.segment_duties import SegmentDuties
from pidkeeper.controller.node.segment_views import garbage
from pidkeeper.controller.node.settings import SegmentSettings
from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import CommitSegment, CreateTopic, DeleteTopic, Request, RetainLogs
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segments import SegmentName
from tests.support.log_state import EPOCHS, FOUNDING, NOW, commit, data, end, init, join, log_of, make, one

OTHER_FOUNDING: Final = uuid.UUID(int=99)

DAY: Final = 24 * 3_600_000
SETTINGS: Final = SegmentSettings(rows=4, tail_bytes=1000, age_ms=50_000, retention_check_ms=DAY // 24)


class Led:
    """A leader's state with a topic of one log, and its duties. A tick is a millisecond."""

    def __init__(self, retention_ms: int = -1, retention_bytes: int = -1) -> None:
        self.machine: StateMachine = make()
        self.asked: list[Request] = []
        self.duties = SegmentDuties(self.machine, self._ask, ticks=lambda ms: ms, settings=SETTINGS)
        self.duties.lead(0)
        self.number = 0
        self.ask(CreateTopic(uuid.UUID(int=3), "t", 1, retention_ms, retention_bytes, None, False))

    def _ask(self, request: Request, _: Callable[[], None], /) -> None:
        self.asked.append(request)
        self.ask(request)

    def ask(self, request: Request) -> Any:
        return one(self.machine, request)

    def write(self, *times: int, size: int = 10) -> None:
        """A batch of two records for each time."""
        self.number += 1
        self.ask(commit(self.number, *(data(0, records=2, time=time, size=size) for time in times)))

    def roll(self, base: int, end: int, replaces: int, time: int = NOW) -> object:
        self.number += 1
        name = ObjectId(1, EPOCHS[1], self.number)
        return self.ask(CommitSegment(name, FOUNDING, 0, SegmentName("t", 0, base), end, 20, 9, time, replaces))

    @property
    def start(self) -> int:
        return log_of(self.machine, 0).start


def test_a_tail_is_due_by_rows_bytes_or_age_and_not_below_that() -> None:
    led = Led()
    led.duties.tick(0, NOW)
    assert led.duties.due(10) == []
    led.write(NOW, NOW, NOW)
    led.duties.tick(1, NOW)
    led.duties.tick(50_000, NOW)
    assert led.duties.due(10) == []
    led.duties.tick(50_001, NOW)
    assert led.duties.due(10) == [0]
    assert led.roll(0, 6, 3)
    led.duties.tick(50_002, NOW)
    assert led.duties.due(10) == []
    led.write(NOW, NOW, NOW, NOW)
    led.duties.tick(50_003, NOW)
    assert led.duties.due(10) == [0]
    led.roll(6, 14, 4)
    led.write(NOW, size=1000)
    led.duties.tick(50_004, NOW)
    assert led.duties.due(10) == [0]
    led.ask(DeleteTopic("t", None, None))
    led.duties.tick(50_005, NOW)
    led.duties.tick(50_006, NOW)
    assert led.duties.due(10) == []


def test_what_an_open_transaction_holds_back_is_not_due() -> None:
    led = Led()
    pair = led.ask(init("x"))
    producer = pair.producer_id, pair.producer_epoch
    led.ask(join("x", producer, "t", 0))
    batches = [data(0, producer, sequence, transactional=True) for sequence in range(5)]
    led.number += 1
    led.ask(commit(led.number, *batches))
    led.duties.tick(0, NOW)
    assert led.duties.due(10) == []
    led.ask(end("x", producer))
    led.duties.tick(1, NOW)
    assert led.duties.due(10) == [0]


def test_short_tails_are_due_once_all_of_them_have_much(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led()
    led.write(NOW, NOW, NOW)
    led.duties.tick(0, NOW)
    assert led.duties.due(10) == []
    monkeypatch.setattr(limits, "MAX_ROWS", 5)
    led.duties.tick(1, NOW)
    assert led.duties.due(10) == [0]


def test_two_looks_must_find_records_too_old() -> None:
    led = Led(retention_ms=DAY)
    led.write(NOW - 3 * DAY, NOW - 2 * DAY, NOW, NOW - 2 * DAY)
    led.roll(0, 2, 1, NOW - 3 * DAY)
    led.duties.tick(0, NOW)
    led.duties.tick(SETTINGS.retention_check_ms - 1, NOW)
    assert (led.asked, led.start) == ([], 0)
    led.duties.tick(SETTINGS.retention_check_ms, NOW)
    # The last batch is as old, and lies behind one that is not.
    assert (led.asked, led.start) == ([RetainLogs(((0, 4),))], 4)
    assert len(led.machine.logs.objects.garbage) == 1


def test_a_clock_that_jumps_for_one_look_drops_nothing() -> None:
    led = Led(retention_ms=DAY)
    led.write(NOW, NOW)
    led.duties.tick(0, NOW + 100 * DAY)
    led.duties.tick(SETTINGS.retention_check_ms, NOW)
    led.duties.tick(2 * SETTINGS.retention_check_ms, NOW + 100 * DAY)
    assert (led.asked, led.start) == ([], 0)
    led.duties.lead(3 * SETTINGS.retention_check_ms)
    led.duties.tick(3 * SETTINGS.retention_check_ms, NOW + 100 * DAY)
    assert led.start == 0, "a new leader looks twice too"


def test_records_without_a_time_stay_and_a_rolled_one_has_that_of_its_segment() -> None:
    led = Led(retention_ms=DAY)
    led.write(-1, NOW - 3 * DAY)
    for look in range(3):
        led.duties.tick(look * SETTINGS.retention_check_ms, NOW)
    assert led.start == 0
    led.roll(0, 4, 2, -1)
    for look in range(3, 6):
        led.duties.tick(look * SETTINGS.retention_check_ms, NOW + 2 * DAY)
    assert led.start == 4


def test_bytes_above_the_retention_are_dropped_from_the_front() -> None:
    led = Led(retention_bytes=25)
    led.write(NOW, NOW, NOW, NOW)
    led.duties.tick(0, NOW)
    # 30 bytes are left: without one batch more there would be less than is to be kept (as Kafka counts).
    assert led.start == 2
    led.write(NOW)
    led.duties.tick(1, NOW)
    assert led.start == 4


def test_garbage_is_shown_once_it_was_garbage_for_a_while() -> None:
    led = Led()
    led.write(NOW)
    led.duties.tick(0, NOW)
    led.ask(DeleteTopic("t", None, None))

    def shown() -> list[int]:
        return [found.key for found in garbage(led.machine, 10, led.duties.garbage_before).objects]

    led.duties.tick(SETTINGS.garbage_ms - 1, NOW)
    assert shown() == []
    led.duties.tick(SETTINGS.garbage_ms, NOW)
    assert shown() == []
    led.duties.tick(2 * SETTINGS.garbage_ms, NOW)
    assert shown() == [0]


def test_garbage_of_a_founding_that_is_not_released_stays() -> None:
    """Also where there is so much of it that no other would be seen behind it."""
    led = Led()
    objects = led.machine.logs.objects
    for founding_id, number in ((OTHER_FOUNDING, 1), (OTHER_FOUNDING, 2), (FOUNDING, 3)):
        objects.add(founding_id, ObjectId(1, 5, number), 100, 0)

    def shown() -> list[int]:
        return [found.key for found in garbage(led.machine, 2, 3).objects]

    assert shown() == [2]
    led.machine.logs.collect((FOUNDING, OTHER_FOUNDING))
    assert shown() == [0, 1]
