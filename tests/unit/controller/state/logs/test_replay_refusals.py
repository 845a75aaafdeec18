"""Every assertion of replay by itself: a record that no decision makes stops the process."""

from __future__ import annotations

import uuid

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state.logs import limits
from pidkeeper.controller.state.logs.objects import Objects
from pidkeeper.controller.state.logs.partition_log import PartitionLog
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.logs import (
    BatchCoordinates,
    BrokerStoreRecord,
    ObjectId,
    ObjectRecord,
    ObjectsDeletedRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import FeatureLevelRecord, Record, RegisterBrokerRecord
from tests.support.log_state import EPOCHS, FIRST_OWN, FOUNDING, NOW, STORE, batch, init, join, make

A, B = uuid.UUID(int=10), uuid.UUID(int=11)
TOPIC = TopicRecord(A, "t", 2, 0, -1, -1, NOW)
PLAIN = BatchCoordinates(0, 0, 1, 0, 10, -1, -1, -1, NOW, False)
OF_7 = replace(PLAIN, producer_id=7, producer_epoch=1, base_sequence=0)


def committed(*batches: BatchCoordinates, number: int = 1, epoch: int = EPOCHS[1], broker: int = 1) -> ObjectRecord:
    name = ObjectId(broker, epoch, number)
    return ObjectRecord(name, 100, tuple(one.base_offset for one in batches), batches, NOW)


FIRST = committed(PLAIN, replace(OF_7, base_offset=1))
FORBIDDEN: list[tuple[str, list[Record], Record]] = [
    ("L1", [TOPIC], committed(replace(PLAIN, base_offset=1))),
    ("L1", [TOPIC, FIRST], committed(replace(PLAIN, base_offset=1), number=2)),
    ("L2", [], committed(PLAIN)),
    ("L2", [TOPIC, RemoveTopicRecord(A, NOW)], committed(PLAIN)),
    ("L2", [TOPIC], replace(TOPIC, topic_id=B, name="u", first_log=1)),
    ("L2", [TOPIC], replace(TOPIC, topic_id=B, first_log=2)),
    ("L2", [TOPIC], replace(TOPIC, name="u", first_log=2)),
    ("L2", [TOPIC, RemoveTopicRecord(A, NOW)], TOPIC),
    ("L2", [TOPIC], RemoveTopicRecord(B, NOW)),
    ("L2", [TOPIC, RemoveTopicRecord(A, NOW)], RemoveTopicRecord(A, NOW)),
    ("L3", [], BrokerStoreRecord(1, EPOCHS[1], B)),
    ("L3", [TOPIC], committed(PLAIN, broker=9)),
    ("L3", [TOPIC], committed(PLAIN, epoch=4)),
    ("L3", [TOPIC, RegisterBrokerRecord(1, 8, "anew")], committed(PLAIN)),
    ("L3", [TOPIC, RegisterBrokerRecord(1, 8, "anew")], committed(PLAIN, epoch=8)),
    ("L3", [TOPIC, FIRST], committed(replace(PLAIN, base_offset=2))),
    ("L3", [TOPIC, FIRST], committed(replace(PLAIN, base_offset=2), number=0)),
    ("L4", [TOPIC, FIRST], committed(replace(OF_7, base_offset=2), number=2)),
    ("L4", [TOPIC, FIRST], committed(replace(OF_7, base_offset=2, base_sequence=2), number=2)),
    ("L4", [TOPIC, FIRST], committed(replace(OF_7, base_offset=2, base_sequence=1, producer_epoch=0), number=2)),
    ("L4", [TOPIC, FIRST], committed(replace(OF_7, base_offset=2, base_sequence=1, producer_epoch=2), number=2)),
    ("L5", [TOPIC, FIRST], ObjectsDeletedRecord((0,), NOW)),
    ("L5", [TOPIC], ObjectsDeletedRecord((0,), NOW)),
    ("L5", [TOPIC, FIRST, RemoveTopicRecord(A, NOW)], ObjectsDeletedRecord((0, 0), NOW)),
]


@pytest.mark.parametrize(("invariant", "before", "record"), FORBIDDEN)
def test_a_record_that_no_decision_makes_stops_the_process(
    invariant: str, before: list[Record], record: Record
) -> None:
    machine = make()
    machine.replay(before)
    with pytest.raises(AssertionError, match=f"^{invariant}: "):
        machine.replay([record])


def test_the_same_records_in_their_order_are_replayed() -> None:
    machine = make()
    machine.replay([TOPIC, FIRST, committed(replace(OF_7, base_offset=2, base_sequence=1), number=2)])
    machine.replay([RemoveTopicRecord(A, NOW), ObjectsDeletedRecord((1, 0), NOW), replace(TOPIC, first_log=2)])
    assert (machine.logs.rows, len(machine.logs.objects), machine.logs.topics.next_log) == (0, 0, 4)


def test_l3_no_object_without_a_founding_or_a_store() -> None:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(LATEST), RegisterBrokerRecord(1, 1, "a"), TOPIC])
    with pytest.raises(AssertionError, match=r"^L3: .* the cluster's store is None"):
        machine.replay([committed(PLAIN, epoch=1)])
    machine.replay([BrokerStoreRecord(1, 1, STORE)])
    with pytest.raises(AssertionError, match=r"^L3: .* no founding is known"):
        machine.replay([committed(PLAIN, epoch=1)])


def test_l4_a_marker_where_nothing_is_open() -> None:
    with pytest.raises(AssertionError, match=r"^L4: producer 7 has no transaction open in log 1"):
        PartitionLog(TOPIC, 1).append_marker(7, 0, committed=True, timestamp_ms=NOW)


def test_l5_more_batches_go_than_there_were() -> None:
    objects = Objects()
    objects.add(FOUNDING, ObjectId(1, 3, 1), 100, 1)
    objects.release([0])
    with pytest.raises(AssertionError, match=r"^L5: "):
        objects.release([0])


@pytest.mark.parametrize(
    ("bound", "most"), [("MAX_ROWS", 2), ("MAX_OBJECTS", 0), ("MAX_PRODUCERS", 1), ("MAX_ABORTED", 0)]
)
def test_l6_no_bound_is_passed(monkeypatch: pytest.MonkeyPatch, bound: str, most: int) -> None:
    """The object has two batches of two producers; one opens a transaction, whose marker counts as a row."""
    of_tx = replace(OF_7, base_offset=1, producer_id=FIRST_OWN, producer_epoch=0, transactional=True)
    whole = committed(OF_7, of_tx)
    for value in (most, most + 1):
        machine = make()
        machine.replay([TOPIC])
        batch(machine, init("tx"), join("tx", (FIRST_OWN, 0), "t", 0))
        monkeypatch.setattr(limits, bound, value)
        if value == most:
            with pytest.raises(AssertionError, match=r"^L6: "):
                machine.replay([whole])
        else:
            machine.replay([whole])


def test_l6_no_more_partitions_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PARTITIONS", 2)
    machine = make()
    machine.replay([TOPIC])
    with pytest.raises(AssertionError, match=r"^L6: offset \d+ makes 3 partitions"):
        machine.replay([TopicRecord(B, "u", 1, 2, -1, -1, NOW)])
