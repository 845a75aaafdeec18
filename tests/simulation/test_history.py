"""The checker itself: a good history passes, and each kind of broken one is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidkeeper.controller.state.requests import AllocateProducerIds, RaiseFloor, RegisterBroker
from pidkeeper.protocol.messages import AllocateProducerIdsResponse, RaiseFloorResponse, RegisterBrokerResponse
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from tests.simulation.history import AgentClaims, History
from tests.simulation.world import Violation, World


class Story:
    """A history told line by line; broker 1 has epoch 0."""

    def __init__(self) -> None:
        self.world = World(0)
        self.history = History(self.world)
        self.claims = AgentClaims("agent 1")
        self.commit(RegisterBrokerRecord(1, 0, "a"))
        operation = self.history.invoke(RegisterBroker(1, "a"))
        self.history.acknowledge(operation, RegisterBrokerResponse(0, "cluster"))

    def commit(self, record: Record) -> None:
        self.world.now += 1
        self.history.commit(len(self.history.commits), [record])

    def block(self, first: int, *, committed: bool = True, answered: bool = True) -> None:
        """A block of ten is asked for, committed, acknowledged."""
        self.world.now += 1
        operation = self.history.invoke(AllocateProducerIds(1, 0))
        if committed:
            self.commit(AllocateProducerIdsRecord(1, 0, first + 9, first, 10, 0))
        self.world.now += 1
        if answered:
            self.history.acknowledge(operation, AllocateProducerIdsResponse(0, first, 10))

    def floor(self, at_least: int) -> None:
        operation = self.history.invoke(RaiseFloor(at_least))
        self.commit(ProducerIdFloorRecord(at_least, 0))
        self.history.acknowledge(operation, RaiseFloorResponse(at_least, True))

    def check(self) -> int:
        return self.history.check([self.claims])


def good() -> Story:
    story = Story()
    story.block(0)
    story.block(10, answered=False)
    story.floor(100)
    story.block(100)
    story.claims.offered(0, 9, 0)
    story.claims.offered(100, 109, 0)
    for producer_id in (*range(10), *range(100, 105)):
        story.claims.claimed(producer_id)
    return story


def test_a_good_history_passes() -> None:
    assert good().check() == 2


def duplicate(story: Story) -> None:
    story.block(100, committed=False)


def not_committed(story: Story) -> None:
    story.block(110, committed=False)


def stale_order(story: Story) -> None:
    late = story.history.invoke(AllocateProducerIds(1, 0))
    story.block(110)
    story.world.now += 1
    early = story.history.invoke(AllocateProducerIds(1, 0))
    for first in (120, 130):
        story.commit(AllocateProducerIdsRecord(1, 0, first + 9, first, 10, 0))
    story.history.acknowledge(late, AllocateProducerIdsResponse(0, 130, 10))
    story.world.now += 1
    later = story.history.invoke(AllocateProducerIds(1, 0))
    story.commit(AllocateProducerIdsRecord(1, 0, 149, 140, 10, 0))
    story.history.acknowledge(early, AllocateProducerIdsResponse(0, 140, 10))
    story.history.acknowledge(later, AllocateProducerIdsResponse(0, 120, 10))


def nobody_asked(story: Story) -> None:
    story.commit(AllocateProducerIdsRecord(1, 0, 119, 110, 10, 0))


def gap_in_the_log(story: Story) -> None:
    story.block(120)


def floor_lowered(story: Story) -> None:
    story.floor(50)


def wrong_epoch(story: Story) -> None:
    operation = story.history.invoke(RegisterBroker(2, "b"))
    story.history.acknowledge(operation, RegisterBrokerResponse(1, "cluster"))


def stale_epoch(story: Story) -> None:
    story.commit(RegisterBrokerRecord(1, len(story.history.commits), "b"))
    story.block(110)


def epoch_of_one_who_left(story: Story) -> None:
    story.commit(UnregisterBrokerRecord(1, 0))
    story.block(110)


def offered_under_the_next_registration(story: Story) -> None:
    story.block(110)
    story.commit(RegisterBrokerRecord(1, epoch := len(story.history.commits), "a"))
    story.claims.offered(110, 119, epoch)


def foreign(story: Story) -> None:
    story.claims.claimed(110)


def repeated(story: Story) -> None:
    story.claims.claimed(100)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (duplicate, "duplicate"),
        (not_committed, "lost"),
        (stale_order, "real-time-order"),
        (nobody_asked, "unexplained-gap"),
        (gap_in_the_log, "id-gap"),
        (floor_lowered, "floor"),
        (wrong_epoch, "registration"),
        (stale_epoch, "stale-epoch"),
        (epoch_of_one_who_left, "stale-epoch"),
        (offered_under_the_next_registration, "offered-after-registration"),
        (foreign, "foreign-id"),
        (repeated, "repeated-id"),
    ],
)
def test_a_broken_history_is_found(change: Callable[[Story], None], rule: str) -> None:
    story = good()
    change(story)
    with pytest.raises(Violation) as caught:
        story.check()
    assert caught.value.rule == rule
