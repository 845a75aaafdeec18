"""A quorum that takes the place of another: nothing that the other handed out is handed out again."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide, most_bytes, most_records
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord, Succession, SuccessionRecord
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.protocol.metadata_version import FOUNDING, LATEST
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import (
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    RegisterBrokerRecord,
    encode_batch,
)
from pidkeeper.snapshots.image import IdRange
from pidkeeper.snapshots.snapshot_format import decode_snapshot
from tests.support.snapshot_file import snapshot_file

NOW = 1_700_000_000_000
LOST, NEW, NEXT = uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=3)
FLOOR = 5000
PLACE = Succession(LOST, FLOOR)
ALLOCATE = requests.AllocateProducerIds(1, 1)
RECORD = requests.RecordFounding(NEW, 10, False, PLACE)


def batch(machine: StateMachine, *asked: requests.Request) -> list[Any]:
    """The answers to one batch, which is applied."""
    draft, answers = Draft(machine, NOW), []
    for request in asked:
        records, size = len(draft.records), most_bytes(draft, request)
        try:
            answers.append(decide(draft, request))
        except RequestError as refusal:
            answers.append(refusal.code)
        added = draft.records[records:]
        assert len(added) <= most_records(request)
        assert not added or len(encode_batch(added)) <= size
    machine.replay(draft.records)
    return answers


@pytest.fixture
def blank() -> StateMachine:
    """Of a quorum whose disks were blank, with broker 1, epoch 1."""
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(LATEST), RegisterBrokerRecord(1, 1, "a")])
    return machine


@pytest.fixture
def restored(blank: StateMachine) -> StateMachine:
    """From a copy of founding LOST, which has handed out a block and has one for transactional producers."""
    blank.replay([FoundingRecord(LOST, 10, False, NOW)])
    batch(blank, ALLOCATE, requests.FillOwnIds())
    return blank


def test_blank_members_begin_at_the_floor(blank: StateMachine) -> None:
    founded, given = batch(blank, RECORD, ALLOCATE)
    assert (founded, given.producer_id_start) == (NEW, FLOOR)
    assert blank.foundings.founding == FoundingRecord(NEW, 10, False, NOW)
    assert blank.foundings.succession == PLACE


def test_blank_members_record_it_once_though_nothing_was_handed_out_yet(blank: StateMachine) -> None:
    assert batch(blank, RECORD) == [NEW]
    offset = blank.next_offset
    assert batch(blank, RECORD) == [NEW]
    assert blank.next_offset == offset


def test_a_restored_quorum_goes_on_at_the_floor_with_the_settings_of_its_predecessor(restored: StateMachine) -> None:
    (founded,) = batch(restored, requests.RecordFounding(NEW, 20, True, PLACE))
    assert founded == NEW
    assert restored.foundings.founding == FoundingRecord(NEW, 10, False, NOW)
    given = batch(restored, ALLOCATE, requests.FillOwnIds(), ALLOCATE)
    assert [given[0].producer_id_start, given[2].producer_id_start] == [FLOOR, FLOOR + 20]


def test_the_copy_may_know_of_more_than_the_floor(restored: StateMachine) -> None:
    batch(restored, requests.RecordFounding(NEW, 10, False, Succession(LOST, 5)), ALLOCATE)
    assert restored.producer_ids.next_producer_id == 30


def test_what_was_left_for_transactional_producers_is_given_by_nobody(restored: StateMachine) -> None:
    """The predecessor went on to give it after the copy was made."""
    assert restored.own_ids.next_id == 10
    init = requests.InitProducerId(1, 1, "t", 60_000, -1, -1, -1, may_take_block=True)
    _, given = batch(restored, RECORD, init)
    assert given.producer_id == FLOOR
    assert restored.own_ids.ranges == (IdRange(FLOOR + 1, FLOOR + 9),)


def test_a_floor_is_one_for_transactional_producers_too(restored: StateMachine) -> None:
    """A quorum that was restored without a word of it is told by its operator alone how far the IDs had gone."""
    init = requests.InitProducerId(1, 1, "t", 60_000, -1, -1, -1, may_take_block=True)
    _, given = batch(restored, requests.RaiseFloor(FLOOR), init)
    assert given.producer_id == FLOOR
    assert batch(restored, requests.RaiseFloor(FLOOR), init)[1].producer_id == FLOOR, "it is passed already"


def test_a_floor_takes_nothing_from_the_own_blocks_while_not_all_members_know_that() -> None:
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(FOUNDING), RegisterBrokerRecord(1, 1, "a")])
    batch(machine, requests.FillOwnIds())
    batch(machine, requests.RaiseFloor(FLOOR))
    assert machine.own_ids.ranges == (IdRange(0, 9),)


def test_it_is_recorded_once_and_a_later_one_may_follow(restored: StateMachine) -> None:
    assert batch(restored, RECORD, RECORD) == [NEW, NEW]
    offset = restored.next_offset
    assert batch(restored, RECORD) == [NEW]
    assert restored.next_offset == offset
    later = Succession(NEW, 9000)
    assert batch(restored, requests.RecordFounding(NEXT, 10, False, later)) == [NEXT]
    assert restored.foundings.succession == later
    assert batch(restored, ALLOCATE)[0].producer_id_start == 9000


@pytest.mark.parametrize("place", [Succession(NEXT, FLOOR), Succession(NEW, FLOOR)])
def test_who_is_not_of_the_predecessor_takes_no_place(restored: StateMachine, place: Succession) -> None:
    founding = uuid.UUID(int=9)
    assert batch(restored, requests.RecordFounding(founding, 10, False, place)) == [LOST]
    assert restored.foundings.succession is None
    assert restored.producer_ids.next_producer_id == 20


def test_a_floor_that_would_leave_no_block_is_taken_from_nobody(restored: StateMachine) -> None:
    """Not even from a member whose founding.json says so."""
    last = MAX_PRODUCER_ID - 10
    assert batch(restored, requests.RecordFounding(NEW, 10, False, Succession(LOST, last + 1))) == [LOST]
    assert batch(restored, requests.RecordFounding(NEW, 10, False, Succession(LOST, last)), ALLOCATE)[0] == NEW
    assert restored.producer_ids.next_producer_id == MAX_PRODUCER_ID


def test_who_has_handed_out_already_takes_no_place_any_more(blank: StateMachine) -> None:
    """Below the floor lies what agents of the predecessor may go on with."""
    batch(blank, requests.RecordFounding(NEW, 10, False), ALLOCATE)
    assert batch(blank, RECORD) == [NEW]
    assert blank.foundings.succession is None
    with pytest.raises(AssertionError, match=r"F6: offset 4 has .* was handed out before"):
        blank.replay([SuccessionRecord(NEW, LOST, FLOOR, NOW)])


@pytest.mark.parametrize(
    "record", [SuccessionRecord(NEW, NEXT, FLOOR, NOW), SuccessionRecord(LOST, LOST, FLOOR, NOW)], ids=["other", "own"]
)
def test_a_succession_that_nobody_can_have_decided_stops_the_member(
    restored: StateMachine, record: SuccessionRecord
) -> None:
    with pytest.raises(AssertionError, match="F6: offset 5 has"):
        restored.replay([record])


def test_without_a_founding_there_is_nobody_to_follow(blank: StateMachine) -> None:
    with pytest.raises(AssertionError, match="F6: offset 2 has"):
        blank.replay([SuccessionRecord(NEW, LOST, FLOOR, NOW)])


def test_not_before_all_members_can_read_it() -> None:
    machine = StateMachine("c", 10)
    machine.replay([FeatureLevelRecord(FOUNDING)])
    assert batch(machine, RECORD) == [ErrorCode.UNSUPPORTED_VERSION]
    assert machine.foundings.founding is None


def test_the_floor_holds_where_zookeeper_counts_too(restored: StateMachine) -> None:
    """What was claimed there in the name of the lost quorum, it may have handed out."""
    restored.replay([MigrationRecord(MigrationPhase.IMPORT, "q", 1, NOW)])
    batch(restored, RECORD)
    assert restored.foundings.succession == PLACE
    assert (restored.producer_ids.next_producer_id, restored.own_ids.ranges) == (FLOOR, ())


def test_brokers_are_told_with_every_answer(restored: StateMachine) -> None:
    register, beat = requests.RegisterBroker(1, "a"), requests.BrokerHeartbeat(1, 1)
    assert [answer.succession for answer in batch(restored, register, beat)] == [None, None]
    _, *told = batch(restored, RECORD, register, beat)
    assert [(answer.founding_id, answer.succession) for answer in told] == [(NEW, PLACE)] * 2


def test_evidence_below_the_floor_is_passed(restored: StateMachine) -> None:
    batch(restored, requests.RegisterBroker(2, "b", None, HeldIds(LOST, FLOOR - 1)))
    assert batch(restored, ALLOCATE) == [ErrorCode.EVIDENCE_OPEN]
    assert batch(restored, RECORD, ALLOCATE)[1].producer_id_start == FLOOR


def test_evidence_above_the_floor_stays_open(restored: StateMachine) -> None:
    batch(restored, requests.RegisterBroker(2, "b", None, HeldIds(LOST, FLOOR)))
    assert batch(restored, RECORD, ALLOCATE) == [NEW, ErrorCode.EVIDENCE_OPEN]


def test_a_snapshot_holds_it(restored: StateMachine) -> None:
    batch(restored, RECORD)
    image = decode_snapshot(snapshot_file("c", restored.image(9, 1)), "s", "c")
    other = StateMachine("c", 10)
    other.restore(image)
    assert other.foundings == restored.foundings
    assert other.foundings.succession == PLACE


def test_a_floor_below_the_next_id_is_no_jump(restored: StateMachine) -> None:
    restored.replay([ProducerIdFloorRecord(9000, NOW)])
    batch(restored, RECORD)
    assert restored.producer_ids.next_producer_id == 9000
