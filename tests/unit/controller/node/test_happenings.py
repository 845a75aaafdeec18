"""What a member notes for those who watch it."""

from __future__ import annotations

from pidkeeper.controller.node.happenings import MAX_BLOCKS, Happenings
from pidkeeper.protocol.events import AllocationsEvent, BrokerEvent, LeaderEvent, MemberEvent
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def block(number: int) -> AllocateProducerIdsRecord:
    return AllocateProducerIdsRecord(
        broker_id=7,
        broker_epoch=3,
        producer_id_start=number * 1000,
        producer_id_end=number * 1000 + 999,
        length=1000,
        timestamp_ms=50 + number,
    )


def watched() -> Happenings:
    happenings = Happenings()
    happenings.watch(True)
    return happenings


def test_blocks_are_told_with_their_offsets_and_times() -> None:
    happenings = watched()
    happenings.applied([RegisterBrokerRecord(7, 10, "a"), block(0)], 10)
    broker, allocations = happenings.take(99, {})
    assert broker == BrokerEvent(7, "registered", 99)
    assert isinstance(allocations, AllocationsEvent)
    (given,) = allocations.blocks
    assert (given.first, given.last, given.broker_id, given.offset, given.timestamp_ms) == (0, 999, 7, 11, 50)
    assert happenings.take(100, {}) == []


def test_more_blocks_than_a_portion_holds_are_counted() -> None:
    happenings = watched()
    for number in range(MAX_BLOCKS + 5):
        happenings.applied([block(number)], number)
    (allocations,) = happenings.take(1, {})
    assert isinstance(allocations, AllocationsEvent)
    assert [one.offset for one in allocations.blocks] == list(range(MAX_BLOCKS))
    assert allocations.left_out == 5


def test_leaders_and_registrations_are_told_in_their_order() -> None:
    happenings = watched()
    happenings.led_by(None, 4, "silent")
    happenings.led_by(2, 5, "silent")
    happenings.applied([BrokerRegistrationChangeRecord(7, 3, True), BrokerRegistrationChangeRecord(7, 3, False)], 1)
    happenings.applied([UnregisterBrokerRecord(7, 3)], 3)
    assert happenings.take(9, {}) == [
        LeaderEvent(None, 4, "silent", 9),
        LeaderEvent(2, 5, "silent", 9),
        BrokerEvent(7, "fenced", 9),
        BrokerEvent(7, "unfenced", 9),
        BrokerEvent(7, "unregistered", 9),
    ]


def test_a_member_is_told_of_once_it_can_be_reached_otherwise_than_before() -> None:
    happenings = watched()
    assert happenings.take(1, {2: "replicate", 3: "unreachable"}) == []
    assert happenings.take(2, {2: "probe", 3: "unreachable"}) == []
    assert happenings.take(3, {2: "unreachable", 3: "recovering"}) == [
        MemberEvent(2, "unreachable", 3),
        MemberEvent(3, "recovering", 3),
    ]
    # Another member leads for a while: what it saw is not known here.
    assert happenings.take(4, {}) == []
    assert happenings.take(5, {2: "replicate", 3: "replicate"}) == []


def test_what_was_noted_is_thrown_away_once_nobody_watches() -> None:
    happenings = watched()
    happenings.applied([block(0)], 0)
    happenings.watch(False)
    happenings.watch(True)
    assert happenings.take(1, {}) == []
