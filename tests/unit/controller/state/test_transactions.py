"""The replicated state of transactional ids: every replay assertion by itself, and what is counted along."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.controller.state.transitions import MAX_EPOCH, NO_PAIR, TransactionStatus, join
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from pidkeeper.protocol.records import FeatureLevelRecord, ProducerIdFloorRecord, RegisterBrokerRecord
from pidkeeper.protocol.transactions import (
    AddPartitionsRecord,
    ForgetTransactionRecord,
    TopicPartitions,
    TransactionRecord,
)
from pidkeeper.snapshots.image import StateImage

S = TransactionStatus
BUSY = {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}
NEXT_ID = 1000
EMPTY = TransactionRecord("tx", 7, 0, *NO_PAIR, 60_000, S.EMPTY, 1)
ONGOING = replace(EMPTY, status=S.ONGOING, partitions=(TopicPartitions("topic", (0, 3)),), start_ms=5)
COMPLETE = replace(EMPTY, status=S.COMPLETE_COMMIT)
OTHER = replace(EMPTY, transactional_id="other", producer_id=8)


def replayed(*records: TransactionRecord | ForgetTransactionRecord) -> TransactionsState:
    state = TransactionsState()
    for offset, record in enumerate(records):
        state.replay(record, offset, NEXT_ID)
    return state


def check_counts(state: TransactionsState) -> None:
    """What the state counts along, counted anew."""
    records = state.all()
    assert len(state) == len(records)
    assert sorted(state.names()) == [record.transactional_id for record in records]
    busy = {record.transactional_id: record for record in records if record.status in BUSY}
    assert {record.transactional_id: record for record in state.under_way()} == busy
    assert state.partition_bytes == sum(record.kept_bytes for record in records)
    assert state.by_status == [sum(record.status == status for record in records) for status in S]
    users = {
        producer_id: record.transactional_id
        for record in records
        for producer_id in (record.producer_id, record.last_producer_id)
        if producer_id >= 0
    }
    assert {producer_id: state.user_of(producer_id) for producer_id in users} == users


def test_the_newest_record_counts() -> None:
    state = replayed(EMPTY, OTHER, ONGOING)
    assert state.get("tx") is ONGOING
    assert state.get("other") is OTHER
    assert state.get("nobody") is None
    assert state.all() == [OTHER, ONGOING]
    assert state.partition_bytes == ONGOING.kept_bytes == 160 + 5 + 2 * 8
    check_counts(state)


def test_a_forgotten_id_leaves_nothing() -> None:
    prepared = replace(ONGOING, status=S.PREPARE_COMMIT)
    complete = replace(EMPTY, status=S.COMPLETE_COMMIT)
    state = replayed(EMPTY, ONGOING, prepared, complete, ForgetTransactionRecord("tx"))
    assert (len(state), state.partition_bytes, state.by_status, state.user_of(7)) == (0, 0, [0] * len(S), None)
    state.replay(replace(EMPTY, producer_id=9), 5, NEXT_ID)
    assert state.user_of(9) == "tx"


def test_an_id_that_comes_back_has_its_place_again() -> None:
    state = replayed(EMPTY, OTHER)
    assert state.all() == [OTHER, EMPTY]
    state.replay(ForgetTransactionRecord("other"), 2, NEXT_ID)
    state.replay(replace(OTHER, producer_id=9), 3, NEXT_ID)
    assert state.all() == [replace(OTHER, producer_id=9), EMPTY]
    state.replay(ForgetTransactionRecord("tx"), 4, NEXT_ID)
    assert state.all() == [replace(OTHER, producer_id=9)]
    check_counts(state)


def test_a_copy_is_of_its_moment() -> None:
    state = replayed(EMPTY, OTHER)
    copied = state.copied()
    state.replay(ONGOING, 2, NEXT_ID)
    state.replay(ForgetTransactionRecord("other"), 3, NEXT_ID)
    state.replay(replace(OTHER, transactional_id="another", producer_id=9), 4, NEXT_ID)
    assert copied() == [OTHER, EMPTY]
    assert state.copied()() == state.all()


def test_the_id_before_the_newest_one_is_remembered_as_long_as_somebody_may_come_with_it() -> None:
    exhausted = replace(EMPTY, producer_epoch=MAX_EPOCH)
    rotated = replace(EMPTY, producer_id=9, last_producer_id=7, last_producer_epoch=MAX_EPOCH)
    state = TransactionsState([exhausted])
    state.replay(rotated, 1, NEXT_ID)
    assert (state.user_of(7), state.user_of(9)) == ("tx", "tx")
    state.replay(replace(rotated, producer_epoch=1, last_producer_id=9, last_producer_epoch=0), 2, NEXT_ID)
    assert (state.user_of(7), state.user_of(9)) == (None, "tx")


def test_partitions_that_join_are_added_to_those_that_did_before() -> None:
    """What was logged in two ways leads to the same state, also where it begins the next transaction."""
    more = AddPartitionsRecord("tx", 7, 0, (TopicPartitions("a", (9,)), TopicPartitions("t", (1, 7))), 8)
    for before in ([EMPTY], [EMPTY, ONGOING], [EMPTY, ONGOING, replace(ONGOING, status=S.PREPARE_COMMIT), COMPLETE]):
        delta, whole = replayed(*before), replayed(*before)
        delta.replay(more, 5, NEXT_ID)
        newest = whole.get("tx")
        assert newest is not None
        whole.replay(join(newest, more), 5, NEXT_ID)
        assert delta.all() == whole.all()
        assert (delta.partition_bytes, delta.by_status) == (whole.partition_bytes, whole.by_status)


FORBIDDEN: list[
    tuple[str, list[TransactionRecord], TransactionRecord | AddPartitionsRecord | ForgetTransactionRecord]
] = [
    ("T1", [], ForgetTransactionRecord("tx")),
    ("T1", [EMPTY, ONGOING], ForgetTransactionRecord("tx")),
    ("T1", [EMPTY, ONGOING, replace(ONGOING, status=S.PREPARE_ABORT)], ForgetTransactionRecord("tx")),
    ("T1", [], AddPartitionsRecord("tx", 7, 0, (), 1)),
    ("T1", [EMPTY, ONGOING, replace(ONGOING, status=S.PREPARE_ABORT)], AddPartitionsRecord("tx", 7, 0, (), 1)),
    ("T4", [EMPTY], AddPartitionsRecord("tx", 7, 1, (), 1)),
    ("T4", [EMPTY], AddPartitionsRecord("tx", 8, 0, (), 1)),
    ("T1", [], ONGOING),
    ("T1", [], replace(EMPTY, producer_epoch=1)),
    ("T1", [EMPTY], replace(ONGOING, status=S.PREPARE_COMMIT)),
    ("T1", [EMPTY], replace(EMPTY, status=S.COMPLETE_ABORT)),
    ("T4", [EMPTY, ONGOING], EMPTY),
    ("T4", [EMPTY, ONGOING], replace(EMPTY, producer_id=9)),
    ("T1", [EMPTY, ONGOING, replace(ONGOING, status=S.PREPARE_COMMIT)], replace(EMPTY, status=S.COMPLETE_ABORT)),
    ("T2", [], replace(EMPTY, producer_id=NEXT_ID)),
    ("T3", [OTHER], replace(EMPTY, producer_id=8)),
    ("T4", [EMPTY], replace(EMPTY, producer_epoch=2)),
    ("T4", [EMPTY, replace(EMPTY, producer_epoch=1)], EMPTY),
    ("T4", [EMPTY], replace(EMPTY, producer_id=9)),
]


@pytest.mark.parametrize(("invariant", "before", "record"), FORBIDDEN)
def test_a_record_that_no_decision_makes_stops_the_process(
    invariant: str,
    before: list[TransactionRecord],
    record: TransactionRecord | AddPartitionsRecord | ForgetTransactionRecord,
) -> None:
    state = replayed(*before)
    with pytest.raises(AssertionError, match=f"^{invariant}: "):
        state.replay(record, 9, NEXT_ID)


def test_an_image_in_which_two_ids_share_a_producer_id_stops_the_process() -> None:
    for other in (replace(OTHER, producer_id=7), replace(OTHER, last_producer_id=7, last_producer_epoch=3)):
        with pytest.raises(AssertionError, match=r"^T3: .* 7, as 'tx' has"):
            TransactionsState([EMPTY, other])


def test_ids_are_paged_in_order_whatever_order_they_came_in() -> None:
    names = ["m", "c", "x", "a", "p"]
    records = [replace(EMPTY, transactional_id=name, producer_id=number) for number, name in enumerate(names)]
    state = replayed(*records[:4])
    assert [record.transactional_id for record in state.after("")] == ["a", "c", "m", "x"]
    state.replay(records[4], 4, NEXT_ID)
    state.replay(replace(ONGOING, transactional_id="c", producer_id=1), 5, NEXT_ID)
    assert [record.transactional_id for record in state.after("c")] == ["m", "p", "x"]
    assert [record.transactional_id for record in state.after("d")] == ["m", "p", "x"]
    assert [record.status for record in state.after("")] == [S.EMPTY, S.ONGOING, S.EMPTY, S.EMPTY, S.EMPTY]
    state.replay(ForgetTransactionRecord("m"), 6, NEXT_ID)
    assert [record.transactional_id for record in state.after("c")] == ["p", "x"]
    assert list(state.after("x")) == []
    state.replay(replace(EMPTY, transactional_id="m", producer_id=20), 7, NEXT_ID)
    assert [record.transactional_id for record in state.after("b")] == ["c", "m", "p", "x"]
    assert sorted(state.names()) == ["a", "c", "m", "p", "x"]


STEPS: list[Callable[[TransactionRecord], TransactionRecord | ForgetTransactionRecord]] = [
    lambda record: replace(ONGOING, transactional_id=record.transactional_id, producer_id=record.producer_id),
    lambda record: replace(record, status=S.PREPARE_COMMIT),
    lambda record: replace(record, status=S.PREPARE_ABORT),
    lambda record: replace(record, status=S.COMPLETE_COMMIT, partitions=(), start_ms=-1),
    lambda record: replace(record, status=S.COMPLETE_ABORT, partitions=(), start_ms=-1),
    lambda record: ForgetTransactionRecord(record.transactional_id),
]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, len(STEPS) - 1)), max_size=60))
def test_what_is_counted_along_is_what_there_is_and_an_image_restores_it(steps: list[tuple[int, int]]) -> None:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(TRANSACTIONS), ProducerIdFloorRecord(NEXT_ID, 0)])
    state = machine.transactions
    for number, step in steps:
        before = state.get(f"tx-{number}")
        first = replace(EMPTY, transactional_id=f"tx-{number}", producer_id=number)
        record = first if step < 0 or before is None else STEPS[step](before)
        try:
            machine.replay([record])
        except AssertionError:
            continue
        check_counts(state)
    image = machine.image(3, 1)
    again = StateMachine("c")
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(image), type=StateImage))
    assert again.image(3, 1) == image
    check_counts(again.transactions)


def test_a_captured_state_is_of_its_moment() -> None:
    machine = StateMachine("c")
    machine.restore(StateImage(TRANSACTIONS, 3, 1, 5, NEXT_ID, None, [], None, [EMPTY]))
    before, captured = machine.image(3, 1), machine.capture(3, 1)
    machine.replay([RegisterBrokerRecord(1, 5, "one"), ONGOING, ProducerIdFloorRecord(2 * NEXT_ID, 0)])
    assert (captured.index, captured.term, captured.next_offset) == (3, 1, 5)
    assert captured.image() == before != machine.image(4, 1)


def test_an_image_keeps_every_record_as_it_is_and_so_does_its_restoring() -> None:
    """With the last pair, without which a retry is fenced after a restart (KAFKA-20310, KAFKA-20357)."""
    bumped = replace(ONGOING, producer_epoch=3, last_producer_id=7, last_producer_epoch=2)
    machine = StateMachine("c")
    machine.restore(StateImage(TRANSACTIONS, 3, 1, 5, NEXT_ID, None, [], None, [bumped]))
    assert machine.transactions.get("tx") == bumped
    assert machine.image(3, 1).transactions == [bumped]
