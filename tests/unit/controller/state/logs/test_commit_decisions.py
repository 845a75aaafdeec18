"""Decisions about objects: who may commit which one, and what becomes of each of its batches."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.ids import DEFAULT_BLOCK_SIZE
from pidkeeper.protocol.log_messages import CommitObjectResponse, OfferedBatch
from pidkeeper.protocol.logs import MAX_SEQUENCE
from tests.support.log_state import (
    FIRST_OWN,
    FOUNDING,
    NOW,
    STORE,
    batch,
    commit,
    data,
    decided,
    drop,
    end,
    init,
    join,
    log_of,
    make,
    one,
    outcomes,
    topic,
)

FULL = -ErrorCode.NOT_ENOUGH_REPLICAS.kafka_code
UNKNOWN = -ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.kafka_code
GAP, FENCED, NOT_IN_TRANSACTION, NOBODYS = -45, -47, -48, -49
P = (7, 0)
"""A producer with an ID out of a broker's block."""
TX = (FIRST_OWN, 0)
"""The first that has a transactional id."""


@pytest.fixture
def machine() -> StateMachine:
    """Topic `t` has the logs 0 to 2."""
    machine = make()
    one(machine, topic("t", 3))
    return machine


def begun(machine: StateMachine, *partitions: int) -> None:
    """A transaction of TX is under way with these partitions of `t`."""
    batch(machine, init("tx"), join("tx", TX, "t", *partitions))


# The object.


def test_batches_join_their_logs_one_behind_another(machine: StateMachine) -> None:
    request = commit(4, data(0, records=5), data(2, records=2), data(0, records=1, size=7))
    assert one(machine, request) == CommitObjectResponse([0, 0, 5], referenced=True)
    assert outcomes(machine, commit(9, data(0), data(2))) == [6, 2]
    assert [(found.base_offset, found.key, found.position, found.size) for found in _batches(machine, 0)] == [
        (0, 0, 0, 10),
        (5, 0, 20, 7),
        (6, 1, 0, 10),
    ]
    assert (log_of(machine, 0).end, log_of(machine, 1).end, log_of(machine, 2).end) == (7, 0, 3)
    assert (machine.logs.rows, len(machine.logs.objects), log_of(machine, 0).size) == (5, 2, 27)
    assert machine.logs.objects.path(1) == f"wal/{FOUNDING}/1/3/{9:020}"


def _batches(machine: StateMachine, log: int) -> list[Any]:
    return log_of(machine, log).batches_from(0, 1000, 1000)


def test_the_same_object_is_answered_alike_and_joins_once(machine: StateMachine) -> None:
    request = commit(4, data(0), data(0, P, 5), data(9))
    first = one(machine, request)
    assert first.outcomes == [0, 1, UNKNOWN]
    offset = machine.next_offset
    assert batch(machine, request, request) == [first, first]
    assert machine.next_offset == offset
    later, again = batch(machine, commit(5, data(0)), commit(5, data(0)))
    assert later == again == CommitObjectResponse([2], referenced=True)
    assert log_of(machine, 0).end == 3


def test_a_lower_number_and_another_content_are_refused(machine: StateMachine) -> None:
    batch(machine, commit(4, data(0)))
    assert one(machine, commit(3, data(0))) is ErrorCode.INVALID_REQUEST
    assert one(machine, commit(4, data(0), data(0))) is ErrorCode.INVALID_REQUEST
    assert batch(machine, commit(6, data(0)), commit(5, data(0)))[1] is ErrorCode.INVALID_REQUEST
    assert outcomes(machine, commit(1, data(0), broker=2)) == [2], "each broker counts for itself"


def test_an_object_of_which_nothing_joins_is_answered_alike_for_ever(machine: StateMachine) -> None:
    """Its agent deletes it with this answer: no attempt that comes later may be granted."""
    refused = CommitObjectResponse([UNKNOWN], referenced=False)
    assert one(machine, commit(4, data(9))) == refused
    batch(machine, *(topic(f"more-{number}") for number in range(9)))
    assert log_of(machine, 9).end == 0
    assert one(machine, commit(4, data(9))) == refused
    assert (len(machine.logs.objects), log_of(machine, 9).end) == (0, 0)
    assert outcomes(machine, commit(5, data(9))) == [0]


def test_a_new_incarnation_begins_its_numbers_anew(machine: StateMachine) -> None:
    batch(machine, commit(4, data(0)))
    epoch = one(machine, requests.RegisterBroker(1, "another", store_id=STORE)).broker_epoch
    assert one(machine, commit(5, data(0))) is ErrorCode.STALE_BROKER_EPOCH
    fresh = commit(0, data(0))
    assert outcomes(machine, replace(fresh, object=replace(fresh.object, broker_epoch=epoch))) == [1]


def test_the_answer_of_another_epoch_is_nobodys(machine: StateMachine) -> None:
    batch(machine, commit(4, data(0)))
    answers = batch(machine, requests.RegisterBroker(1, "another", store_id=STORE))
    again = commit(4, data(1))
    again = replace(again, object=replace(again.object, broker_epoch=answers[0].broker_epoch))
    assert outcomes(machine, again) == [0]
    assert log_of(machine, 1).end == 1


def test_who_may_commit(machine: StateMachine) -> None:
    request = commit(4, data(0))
    unknown = replace(request, object=replace(request.object, broker_id=9))
    assert one(machine, unknown) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert one(machine, replace(request, founding_id=uuid.UUID(int=9))) is ErrorCode.STALE_BROKER_EPOCH
    without = one(machine, requests.RegisterBroker(1, "another")).broker_epoch
    storeless = replace(request, object=replace(request.object, broker_epoch=without))
    assert one(machine, storeless) is ErrorCode.STORE_REFUSED
    assert one(machine, requests.UnregisterBroker(2, 5)) is not None
    assert one(machine, commit(1, data(0), broker=2)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_the_first_store_is_the_clusters(machine: StateMachine) -> None:
    other = requests.RegisterBroker(3, "three", store_id=uuid.UUID(int=9))
    assert one(machine, other) is ErrorCode.STORE_REFUSED
    assert machine.brokers.get(3) is None
    epoch = one(machine, replace(other, store_id=None)).broker_epoch
    assert one(machine, replace(other, store_id=STORE)).broker_epoch == epoch, "it tells its store later"
    registered = machine.brokers.get(3)
    assert registered is not None and registered.store_id == STORE
    offset = machine.next_offset
    one(machine, replace(other, store_id=STORE))
    assert machine.next_offset == offset


def test_two_stores_in_one_batch_are_told_apart() -> None:
    machine = make()
    fresh = StateMachine("c")
    fresh.restore(replace(machine.image(1, 1), logs=None, brokers=[]))
    one_store = requests.RegisterBroker(3, "three", store_id=STORE)
    other = requests.RegisterBroker(4, "four", store_id=uuid.UUID(int=9))
    assert batch(fresh, one_store, other)[1] is ErrorCode.STORE_REFUSED
    assert fresh.logs.store_id == STORE


@pytest.mark.parametrize(
    "batches",
    [
        (OfferedBatch(0, 1, 0, 10, -1, -1, -1, 0, False), OfferedBatch(0, 1, 9, 10, -1, -1, -1, 0, False)),
        (OfferedBatch(0, 1, 10, 11, -1, -1, -1, 0, False),),
        (OfferedBatch(0, 1, 0, 10, 7, -1, -1, 0, False),),
        (OfferedBatch(0, 1, 0, 10, 7, 0, -1, 0, False),),
        (OfferedBatch(0, 1, 0, 10, 7, -1, 0, 0, False),),
        (OfferedBatch(0, 1, 0, 10, -1, 0, -1, 0, False),),
        (OfferedBatch(0, 1, 0, 10, -1, -1, 0, 0, False),),
        (OfferedBatch(0, 1, 0, 10, -1, -1, -1, 0, True),),
    ],
)
def test_a_layout_that_no_agent_makes_is_refused(machine: StateMachine, batches: tuple[OfferedBatch, ...]) -> None:
    request = replace(commit(4, data(0)), size=20, batches=batches)
    assert one(machine, request) is ErrorCode.INVALID_REQUEST
    gap = (OfferedBatch(0, 1, 3, 5, -1, -1, -1, 0, False), OfferedBatch(0, 1, 9, 11, -1, -1, -1, 0, False))
    assert outcomes(machine, replace(request, batches=gap)) == [0, 1], "what is between belongs to nobody"


def test_a_decision_leaves_the_applied_state_as_it_is(machine: StateMachine) -> None:
    begun(machine, 0)
    batch(machine, commit(1, data(0, TX, 0, transactional=True)))
    before = machine.image(1, 1)
    draft = Draft(machine, NOW + 1)
    written = commit(2, data(0, TX, 1, transactional=True), data(1, P, 0))
    asked: list[requests.Request] = [written, end("tx", TX), topic("u"), drop("t")]
    assert len(decided(draft, asked)) == len(draft.records) == 4
    assert machine.image(1, 1) == before


# Producers.


def test_a_producers_sequences_follow_one_another(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, data(0, P, 0, records=3))) == [0]
    assert outcomes(machine, commit(2, data(0, P, 2), data(0, P, 4), data(0, P, 3), data(0, P, 4))) == [GAP, GAP, 3, 4]
    assert outcomes(machine, commit(3, data(1, P, 9))) == [0], "each log counts for itself"


def test_of_an_unknown_producer_any_sequence_will_do(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, data(0, P, 77), data(0, P, 78))) == [0, 1]
    assert outcomes(machine, commit(2, data(0, (8, 5), MAX_SEQUENCE, records=2), data(0, (8, 5), 1))) == [2, 4]


def test_what_was_there_already_has_the_same_offset(machine: StateMachine) -> None:
    for number in range(7):
        assert outcomes(machine, commit(number, data(0, P, number * 2, records=2))) == [number * 2]
    repeated = [outcomes(machine, commit(20 + number, data(0, P, number * 2, records=2)))[0] for number in range(7)]
    assert repeated == [GAP, GAP, 4, 6, 8, 10, 12], "the last five are known"
    assert outcomes(machine, commit(30, data(0, P, 12), data(0, P, 10, records=4))) == [GAP, GAP]
    assert log_of(machine, 0).end == 14


def test_a_repetition_through_another_broker_and_in_one_batch(machine: StateMachine) -> None:
    first, again = batch(machine, commit(1, data(0, P, 0)), commit(1, data(0, P, 0), broker=2))
    assert (first.outcomes, again.outcomes) == ([0], [0])
    assert again.referenced is False
    assert outcomes(machine, commit(2, data(0, P, 1), data(0, P, 1), data(0, P, 2))) == [1, 1, 2]


def test_epochs(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, data(0, (7, 3), 5))) == [0]
    assert outcomes(machine, commit(2, data(0, (7, 2), 6))) == [FENCED]
    assert outcomes(machine, commit(3, data(0, (7, 4), 6), data(0, (7, 4), 0))) == [GAP, 1], "a new one begins at 0"
    assert outcomes(machine, commit(4, data(0, (7, 3), 6), data(0, (7, 3), 5))) == [FENCED, FENCED]


def test_an_id_that_nobody_was_given(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, data(0, (FIRST_OWN, 0), 0), data(0, (2**62, 0), 0))) == [NOBODYS, NOBODYS]
    one(machine, init("tx"))
    assert machine.producer_ids.next_producer_id == FIRST_OWN + DEFAULT_BLOCK_SIZE
    assert outcomes(machine, commit(2, data(0, (FIRST_OWN + 1, 0), 0))) == [NOBODYS], "it is the quorum's own still"
    assert outcomes(machine, commit(3, data(0, (FIRST_OWN - 1, 0), 0))) == [0]


# Transactions.


def test_a_transactional_batch_belongs_to_a_transaction_under_way(machine: StateMachine) -> None:
    def asked(number: int, log: int, sequence: int, transactional: bool = True) -> int:
        return outcomes(machine, commit(number, data(log, TX, sequence, transactional=transactional)))[0]

    assert asked(1, 0, 0) == NOBODYS
    one(machine, init("tx"))
    assert asked(2, 0, 0) == NOT_IN_TRANSACTION
    one(machine, join("tx", TX, "t", 0, 2))
    assert [asked(3, 0, 0), asked(4, 1, 0), asked(5, 2, 0)] == [0, NOT_IN_TRANSACTION, 0]
    assert asked(6, 0, 1, transactional=False) == NOT_IN_TRANSACTION
    assert asked(7, 1, 0, transactional=False) == 0, "nothing of the transaction is in this log"
    one(machine, end("tx", TX))
    assert asked(8, 0, 1) == NOT_IN_TRANSACTION
    assert asked(9, 0, 1, transactional=False) == 2, "a marker is at offset 1"


def test_transactional_batches_of_an_id_without_a_transactional_id(machine: StateMachine) -> None:
    assert outcomes(machine, commit(1, data(0, P, 0, transactional=True))) == [NOBODYS]


def test_the_transaction_of_the_same_batch_of_decisions_counts(machine: StateMachine) -> None:
    early, written = (commit(number, data(0, TX, 0, transactional=True)) for number in (1, 2))
    answers = batch(machine, init("tx"), early, join("tx", TX, "t", 0), written, end("tx", TX), written)
    assert [answers[number].outcomes for number in (1, 3, 5)] == [[NOT_IN_TRANSACTION], [0], [0]]
    assert answers[5].referenced is True, "the object is the same"
    assert outcomes(machine, commit(3, data(0, TX, 1, transactional=True))) == [NOT_IN_TRANSACTION]
    assert log_of(machine, 0).end == 2


def test_a_fenced_producer_writes_nowhere_any_more(machine: StateMachine) -> None:
    begun(machine, 0)
    assert one(machine, init("tx")).producer_epoch == 1
    for log in range(3):
        assert outcomes(machine, commit(log, data(log, TX, 0), data(log, TX, 0, transactional=True))) == [FENCED] * 2
    newer = (FIRST_OWN, 1)
    assert outcomes(machine, commit(9, data(1, (FIRST_OWN, 2), 0), data(1, newer, 0))) == [FENCED, 0]
