"""The ends of transactions in partition logs: which record leaves which marker where, and what is stable then."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.logs.partition_log import Aborted, LoggedMarker
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import MAX_EPOCH
from pidkeeper.protocol.errors import ErrorCode
from tests.support.log_state import (
    FIRST_OWN,
    NOW,
    batch,
    commit,
    data,
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

TX = (FIRST_OWN, 0)
OTHER = (FIRST_OWN + 1, 0)
LATER = NOW + 5


@pytest.fixture
def machine() -> StateMachine:
    """Topic `t` has the logs 0 to 2. TX has a transaction with all of them, and data in 0 and 1."""
    machine = make()
    batch(machine, topic("t", 3), init("tx"), init("other"), join("tx", TX, "t", 0, 1, 2))
    assert outcomes(machine, commit(1, _of(TX, 0, 0), data(0), _of(TX, 0, 1), _of(TX, 1, 0))) == [0, 1, 2, 0]
    return machine


def _of(producer: tuple[int, int], log: int, sequence: int) -> Any:
    return data(log, producer, sequence, transactional=True)


def markers(machine: StateMachine, log: int) -> list[LoggedMarker]:
    return log_of(machine, log).markers_from(0, 1000, 1000)


def aborted(machine: StateMachine, log: int) -> list[Aborted]:
    return log_of(machine, log).aborted_between(0, 1000)


def stable(machine: StateMachine, log: int) -> tuple[int, int]:
    """The last stable offset, and the end."""
    return log_of(machine, log).last_stable, log_of(machine, log).end


@pytest.mark.parametrize("committed", [True, False])
def test_the_record_that_ends_it_leaves_a_marker_wherever_there_is_data(machine: StateMachine, committed: bool) -> None:
    assert [stable(machine, log) for log in range(3)] == [(0, 3), (0, 1), (0, 0)]
    assert machine.logs.open == 2
    one(machine, end("tx", TX, committed=committed), now=LATER)
    assert markers(machine, 0) == [LoggedMarker(3, *TX, committed, LATER)]
    assert markers(machine, 1) == [LoggedMarker(1, *TX, committed, LATER)]
    assert markers(machine, 2) == [], "a partition without data of it gets none"
    assert [stable(machine, log) for log in range(3)] == [(4, 4), (2, 2), (0, 0)]
    assert aborted(machine, 0) == ([] if committed else [Aborted(3, TX[0], 0, 4)])
    assert (machine.logs.rows, machine.logs.open, machine.logs.aborted) == (6, 0, 0 if committed else 2)


def test_an_end_that_is_asked_for_again_leaves_one_marker(machine: StateMachine) -> None:
    batch(machine, end("tx", TX), end("tx", TX))
    one(machine, end("tx", TX))
    assert len(markers(machine, 0)) == 1


def test_the_next_transaction_goes_on_with_the_sequences(machine: StateMachine) -> None:
    batch(machine, end("tx", TX), join("tx", TX, "t", 0))
    assert outcomes(machine, commit(2, _of(TX, 0, 0), _of(TX, 0, 2))) == [0, 4]
    one(machine, end("tx", TX, committed=False))
    assert [found.offset for found in markers(machine, 0)] == [3, 5]
    assert aborted(machine, 0) == [Aborted(5, TX[0], 4, 6)]


def test_a_new_instance_aborts_at_the_next_epoch(machine: StateMachine) -> None:
    assert one(machine, init("tx")).producer_epoch == 1
    assert markers(machine, 0) == [LoggedMarker(3, TX[0], 1, False, NOW)]
    assert aborted(machine, 1) == [Aborted(1, TX[0], 0, 2)]
    newer = (TX[0], 1)
    one(machine, join("tx", newer, "t", 0))
    assert outcomes(machine, commit(2, _of(newer, 0, 2), _of(newer, 0, 0))) == [-45, 4], "it begins at 0"


@pytest.mark.parametrize("timed_out", [True, False])
def test_an_abort_over_the_producers_head(machine: StateMachine, timed_out: bool) -> None:
    one(machine, requests.AbortTransaction("tx", *TX, timed_out=timed_out))
    assert markers(machine, 0) == [LoggedMarker(3, TX[0], 1, False, NOW)]
    assert outcomes(machine, commit(2, _of(TX, 0, 2), data(0, TX, 2))) == [-47, -47]


def test_the_last_epoch_ends_with_the_fence_above_it_and_a_new_id(machine: StateMachine) -> None:
    image = machine.image(1, 1)
    old = [replace(found, producer_epoch=MAX_EPOCH) for found in image.transactions if found.transactional_id == "tx"]
    assert image.logs is not None
    entries = [replace(found, entry=replace(found.entry, producer_epoch=MAX_EPOCH)) for found in image.logs.producers]
    again = StateMachine("c")
    again.restore(replace(image, transactions=old, own_ids=(), logs=replace(image.logs, producers=entries)))
    answer = one(again, init("tx"))
    assert (answer.producer_id > OTHER[0], answer.producer_epoch) == (True, 0)
    assert markers(again, 0) == [LoggedMarker(3, TX[0], MAX_EPOCH + 1, False, NOW)]
    assert again.logs.open == 0


def test_what_is_stable_ends_at_the_first_open_transaction(machine: StateMachine) -> None:
    one(machine, join("other", OTHER, "t", 0))
    assert outcomes(machine, commit(2, _of(OTHER, 0, 0))) == [3]
    one(machine, end("other", OTHER, committed=False))
    assert stable(machine, 0) == (0, 5), "the older one is open still"
    one(machine, end("tx", TX, committed=False))
    assert stable(machine, 0) == (6, 6)
    assert aborted(machine, 0) == [Aborted(4, OTHER[0], 3, 0), Aborted(5, TX[0], 0, 6)]


def test_the_younger_one_keeps_what_is_behind_it(machine: StateMachine) -> None:
    one(machine, join("other", OTHER, "t", 0))
    outcomes(machine, commit(2, _of(OTHER, 0, 0)))
    one(machine, end("tx", TX))
    assert stable(machine, 0) == (3, 5)


def test_a_topic_that_was_deleted_meanwhile_gets_no_marker(machine: StateMachine) -> None:
    batch(machine, topic("u"), join("tx", TX, "u", 0))
    assert outcomes(machine, commit(2, _of(TX, 3, 0))) == [0]
    one(machine, drop("t"))
    assert machine.logs.open == 1
    one(machine, end("tx", TX))
    assert (machine.logs.open, machine.logs.rows, len(markers(machine, 3))) == (0, 2, 1)


def test_a_topic_of_the_same_name_has_nothing_of_the_transaction(machine: StateMachine) -> None:
    """By its name the partition belongs to the transaction still, as in Kafka."""
    batch(machine, drop("t"), topic("t", 2, number=9))
    assert outcomes(machine, commit(2, _of(TX, 3, 0), _of(TX, 4, 0), _of(TX, 2, 0))) == [0, 0, -3]
    one(machine, end("tx", TX, committed=False))
    assert [found.offset for found in markers(machine, 3)] == [1]


def test_a_smaller_topic_of_the_same_name(machine: StateMachine) -> None:
    batch(machine, drop("t"), topic("t", 1, number=9), end("tx", TX))
    assert stable(machine, 3) == (0, 0)


def test_a_topic_goes_in_the_batch_that_ends_a_transaction_in_it(machine: StateMachine) -> None:
    batch(machine, end("tx", TX, committed=False), drop("t"))
    assert (machine.logs.open, machine.logs.aborted, machine.logs.rows, machine.logs.producer_count) == (0, 0, 0, 0)
    again = make()
    batch(again, topic("t", 3), init("tx"), join("tx", TX, "t", 0))
    batch(again, commit(1, _of(TX, 0, 0)), drop("t"), end("tx", TX))
    assert (again.logs.open, again.logs.rows, again.logs.producer_count) == (0, 0, 0)
    assert again.logs.objects.collectable(9) == [0]


def test_one_batch_of_decisions_opens_and_ends_in_turn(machine: StateMachine) -> None:
    """Each sees the offsets that those before it gave."""
    one(machine, end("tx", TX))
    answers = batch(
        machine,
        join("tx", TX, "t", 0),
        commit(2, _of(TX, 0, 2)),
        end("tx", TX, committed=False),
        commit(3, data(0)),
        join("tx", TX, "t", 0),
        commit(4, _of(TX, 0, 3), broker=2),
        init("tx"),
        commit(5, data(0), _of(TX, 0, 4)),
    )
    assert [answers[number].outcomes for number in (1, 3, 5, 7)] == [[4], [6], [7], [9, -47]]
    assert [(found.offset, found.producer_epoch, found.committed) for found in markers(machine, 0)] == [
        (3, 0, True),
        (5, 0, False),
        (8, 1, False),
    ]


def test_an_id_that_is_forgotten_leaves_its_sequences(machine: StateMachine) -> None:
    batch(machine, end("tx", TX), requests.ForgetTransactionalId("tx", *TX))
    assert outcomes(machine, commit(2, _of(TX, 0, 2), data(0, TX, 5), data(0, TX, 2))) == [-49, -45, 4]


def test_without_partition_logs_ends_cost_nothing_of_them() -> None:
    machine = make()
    batch(machine, init("tx"), join("tx", TX, "nowhere", 0), end("tx", TX))
    assert one(machine, end("tx", TX, committed=False)) is ErrorCode.INVALID_TXN_STATE
    assert (machine.logs.rows, machine.logs.open) == (0, 0)
