"""The leader forgets producers that two looks found silent, whatever one of them was told by a clock."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final

import pytest

from pidkeeper.controller.node.log_duties import FORGET_MS, LOOK_MS, LogDuties
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import AllocateProducerIds, CommitObject, DeleteTopic, ExpireProducers, Request
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.log_messages import OfferedBatch
from pidkeeper.protocol.logs import MAX_EXPIRED, BrokerStoreRecord, ObjectId, TopicRecord
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import FeatureLevelRecord, RegisterBrokerRecord, decode_batch, encode_batch

FOUNDING, STORE = uuid.UUID(int=1), uuid.UUID(int=2)
DAY_MS: Final = 24 * 3_600_000
HOUR: Final = LOOK_MS
NOW: Final = 1_700_000_000_000


class Led:
    """A state machine with one log, and the duties of its leader. A tick is a millisecond."""

    def __init__(self) -> None:
        self.machine = StateMachine("c", 5000)
        self.machine.replay(
            [
                FeatureLevelRecord(LATEST),
                FoundingRecord(FOUNDING, 5000, bridge=False, timestamp_ms=0),
                RegisterBrokerRecord(1, 2, "a"),
                BrokerStoreRecord(1, 2, STORE),
                TopicRecord(uuid.UUID(int=3), "t", 1, 0, -1, -1, 0),
            ]
        )
        self.asked: list[Request] = []
        self.duties = LogDuties(self.machine, self._ask, ticks=lambda ms: ms, expiration_ms=DAY_MS)
        self.duties.lead(0)
        self.objects = 0
        self.decide(AllocateProducerIds(1, 2), NOW)

    def _ask(self, request: Request, _: Callable[[], None], /) -> None:
        self.asked.append(request)
        self.decide(request, NOW)

    def decide(self, request: Request, now_ms: int) -> None:
        draft = Draft(self.machine, now_ms)
        decide(draft, request)
        if draft.records:
            self.machine.replay(decode_batch(encode_batch(draft.records)))

    def write(self, now_ms: int, sequence: int, *producer_ids: int) -> None:
        batches = tuple(
            OfferedBatch(0, 1, 100 * place, 100, one, 0, sequence, 0, transactional=False)
            for place, one in enumerate(producer_ids)
        )
        request = CommitObject(ObjectId(1, 2, self.objects), FOUNDING, 100 * len(batches), batches)
        self.objects += 1
        self.decide(request, now_ms)

    def known(self) -> set[int]:
        return {place[1] for place, _ in self.machine.logs.silent_longest(10_000)}


@pytest.fixture
def led() -> Led:
    return Led()


def test_who_was_silent_for_a_day_is_forgotten_at_the_second_look(led: Led) -> None:
    led.write(NOW - 2 * DAY_MS, 0, 1, 2)
    led.write(NOW - DAY_MS // 2, 0, 3)
    led.duties.tick(0, NOW)
    assert led.asked == []
    led.duties.tick(HOUR - 1, NOW)
    assert led.known() == {1, 2, 3}
    led.duties.tick(HOUR, NOW + HOUR)
    assert led.known() == {3}
    assert led.duties.expired == 2


def test_a_clock_that_jumps_ahead_forgets_nobody_who_writes(led: Led) -> None:
    """Else a batch that is sent again would be appended twice."""
    led.write(NOW, 0, 1, 2)
    led.duties.tick(0, NOW + 10 * DAY_MS)
    led.write(NOW + 1, 1, 1)
    led.duties.tick(HOUR, NOW + 10 * DAY_MS)
    assert led.known() == {1}
    led.duties.tick(2 * HOUR, NOW + 10 * DAY_MS)
    assert led.known() == set()


def test_what_was_found_before_another_member_led_counts_for_nothing(led: Led) -> None:
    led.write(NOW - 2 * DAY_MS, 0, 1)
    led.duties.tick(0, NOW)
    led.duties.lead(HOUR)
    led.duties.tick(HOUR, NOW)
    assert led.asked == []


def test_many_are_forgotten_a_record_at_a_time(led: Led) -> None:
    led.write(NOW - 2 * DAY_MS, 0, *range(1000))
    led.write(NOW - 2 * DAY_MS, 0, *range(1000, 2000))
    led.duties.tick(0, NOW)
    for after in range(0, 3 * FORGET_MS, FORGET_MS // 10):
        led.duties.tick(HOUR + after, NOW)
    assert [len(request.producers) for request in led.asked] == [MAX_EXPIRED, 2000 - MAX_EXPIRED]  # type: ignore[union-attr]
    assert led.known() == set()


def test_a_request_that_comes_late_forgets_nobody_who_wrote_meanwhile_or_went_with_the_topic(led: Led) -> None:
    led.write(NOW - 2 * DAY_MS, 0, 1, 2)
    led.duties.tick(0, NOW)
    stale: list[Request] = []
    led.duties._ask = lambda request, _: stale.append(request)
    led.duties.tick(HOUR, NOW)
    led.write(NOW, 1, 1)
    led.decide(stale[0], NOW)
    assert led.known() == {1}
    draft = Draft(led.machine, NOW)
    decide(draft, DeleteTopic("t", None, None))
    decide(draft, ExpireProducers(((0, 1, NOW),)))
    led.machine.replay(draft.records)
    assert led.known() == set()
