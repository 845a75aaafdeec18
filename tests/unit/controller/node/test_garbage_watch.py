"""How long garbage waits, as a leader sees it."""

from __future__ import annotations

from pidkeeper.controller.node.garbage_watch import GarbageWatch
from pidkeeper.controller.state.logs.objects import Objects
from pidkeeper.protocol.logs import ObjectId
from tests.support.log_leader import FOUNDING


def objects(count: int) -> Objects:
    """So many objects that no log needs."""
    made = Objects()
    made.release([made.add(FOUNDING, ObjectId(1, 5, number), 100, 1) for number in range(count)])
    return made


def test_garbage_is_as_old_as_its_oldest_object_which_begins_anew_when_that_is_deleted() -> None:
    watch, garbage = GarbageWatch(), objects(0)
    watch.tick(garbage, 10)
    assert watch.age_ticks(20) == 0
    garbage = objects(2)
    watch.tick(garbage, 100)
    watch.tick(garbage, 150)
    assert watch.age_ticks(160) == 60
    garbage.deleted([0], 1)
    watch.tick(garbage, 170)
    assert watch.age_ticks(180) == 10
    garbage.deleted([1], 2)
    watch.tick(garbage, 190)
    assert watch.age_ticks(200) == 0


def test_a_new_leader_has_seen_nothing_wait() -> None:
    watch, garbage = GarbageWatch(), objects(1)
    watch.tick(garbage, 10)
    watch.lead()
    assert watch.age_ticks(1000) == 0
    watch.tick(garbage, 1010)
    assert watch.age_ticks(1020) == 10
