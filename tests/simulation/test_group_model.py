"""The model of groups, and what it notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pidkeeper.protocol.groups import GroupMember, GroupRecord, OffsetsRecord, PartitionOffset, TopicOffsets
from tests.simulation.group_model import NO_OFFSET, NO_PRODUCER, UNSTABLE, GroupModel
from tests.simulation.world import Violation

PLACE = ("g", "t", 0)
PRODUCER = 7


class Log:
    """A model, and the records that it takes in: one at each moment."""

    def __init__(self) -> None:
        self.now = 0
        self.model = GroupModel(lambda: self.now)

    def take(self, record: GroupRecord | OffsetsRecord) -> None:
        self.now += 10
        self.model.take(record)
        self.model.at += 1

    def generation(self, number: int, *members: str, after: int = -1) -> None:
        described = tuple(GroupMember(one, None, "", "") for one in members)
        self.take(GroupRecord("g", after, number, "consumer", described, 1, 1, 0))

    def commit(self, offset: int, producer_id: int = NO_PRODUCER) -> None:
        topics = (TopicOffsets("t", (PartitionOffset(0, offset, -1, ""),)),)
        self.take(OffsetsRecord("g", producer_id, 0 if producer_id >= 0 else -1, topics, 0))


@pytest.mark.parametrize(
    ("pending_first", "committed", "offset"), [(False, True, 5), (True, True, 3), (False, False, 3), (True, False, 3)]
)
def test_a_transaction_settles_what_it_holds(pending_first: bool, committed: bool, offset: int) -> None:
    log = Log()
    for held in (True, False) if pending_first else (False, True):
        log.commit(5 if held else 3, PRODUCER if held else NO_PRODUCER)
    assert log.model.is_held(PLACE)
    log.model.settle(PRODUCER, committed=committed)
    assert (log.model.offset(PLACE), log.model.is_held(PLACE)) == (offset, False)
    assert log.model.overtaken == (pending_first and committed)


def test_the_model_drops_offsets_with_their_topic() -> None:
    log = Log()
    log.commit(3)
    log.commit(5, PRODUCER)
    log.model.drop_topic("t")
    assert (log.model.offset(PLACE), log.model.is_held(PLACE)) == (NO_OFFSET, False)
    assert log.model.image() == ({}, {}, {})


def two_generations() -> Log:
    """At 10, 20 and 30: m joins, 3 is committed, and n is alone. A transaction holds 5 from 40 on."""
    log = Log()
    log.generation(1, "m")
    log.commit(3)
    log.generation(2, "n", after=0)
    log.commit(5, PRODUCER)
    return log


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("group-forked", lambda log: log.generation(3, "m", after=0)),
        ("group-forked", lambda log: log.generation(1, "m", after=2)),
        ("joined-uncommitted", lambda log: log.model.joined("g", 2, "m")),
        ("joined-uncommitted", lambda log: log.model.joined("h", 1, "m")),
        ("offset-uncommitted", lambda log: log.model.committed(PLACE, 0, 4, NO_PRODUCER, 1, "m")),
        ("offset-uncommitted", lambda log: log.model.committed(PLACE, 25, 3, NO_PRODUCER, 2, "n")),
        ("stale-committed", lambda log: log.model.committed(PLACE, 35, 5, PRODUCER, 1, "m")),
        ("offset-fetched", lambda log: log.model.fetched(PLACE, 25, 0, NO_OFFSET, stable=False)),
        ("offset-fetched", lambda log: log.model.fetched(PLACE, 45, 0, 3, stable=True)),
        ("offset-fetched", lambda log: log.model.fetched(PLACE, 45, 0, 5, stable=False)),
        ("offset-fetched", lambda log: log.model.fetched(PLACE, 45, UNSTABLE, NO_OFFSET, stable=False)),
    ],
)
def test_what_cannot_be_so_is_noticed(rule: str, told: Callable[[Log], None]) -> None:
    with pytest.raises(Violation, match=rule):
        told(two_generations())


def test_what_was_so_since_somebody_asked_may_be_told() -> None:
    model = two_generations().model
    model.joined("g", 1, "m")
    model.joined("g", 2, "n")
    model.committed(PLACE, 15, 3, NO_PRODUCER, 1, "m")
    model.committed(PLACE, 25, 5, PRODUCER, 1, "m")
    model.fetched(PLACE, 15, 0, NO_OFFSET, stable=True)
    model.fetched(PLACE, 30, 0, 3, stable=True)
    model.fetched(PLACE, 45, 0, 3, stable=False)
    model.fetched(PLACE, 30, UNSTABLE, NO_OFFSET, stable=True)
