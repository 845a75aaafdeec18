"""From metadata version 9 on a transaction is complete with the record that decides it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.transitions import TransactionStatus
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.metadata_version import ENDS_AT_ONCE, SUCCESSION
from pidkeeper.protocol.records import FeatureLevelRecord
from pidkeeper.protocol.transactions import TransactionRecord
from tests.unit.controller.state.test_transaction_decisions import (
    ABORT,
    ADD,
    COMMIT,
    COMPLETE,
    INIT,
    batch,
    make,
    one,
    state,
)

S = TransactionStatus
GRANTED = TransactionResponse(0)
OWN_INIT = replace(INIT, may_take_block=True)


@pytest.fixture
def machine() -> StateMachine:
    """A transaction is under way under `tx`, by producer ID 1000 and epoch 0."""
    machine = make(ENDS_AT_ONCE)
    assert batch(machine, OWN_INIT, own(ADD)) == [InitProducerIdResponse(0, 1000, 0), GRANTED]
    return machine


def own(request: requests.AddPartitionsToTxn | requests.EndTxn) -> requests.AddPartitionsToTxn | requests.EndTxn:
    """The same for the ID that the quorum gives itself."""
    return replace(request, producer_id=1000)


def newest(machine: StateMachine) -> TransactionRecord:
    record = machine.transactions.get("tx")
    assert record is not None
    return record


@pytest.mark.parametrize("committed", [True, False])
def test_an_outcome_is_one_record_and_the_next_transaction_may_begin(machine: StateMachine, committed: bool) -> None:
    end, offset = replace(own(COMMIT), committed=committed), machine.next_offset
    assert batch(machine, end, end) == [GRANTED, GRANTED], "a repetition is granted"
    assert machine.next_offset == offset + 1
    assert state(machine) == ("COMPLETE_COMMIT" if committed else "COMPLETE_ABORT", 1000, 0)
    assert (newest(machine).partitions, newest(machine).start_ms) == ((), -1)
    assert one(machine, replace(end, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    assert machine.transactions.under_way() == []
    assert one(machine, own(ADD)) == GRANTED
    assert state(machine)[0] == "ONGOING"


def test_the_next_instance_is_told_its_pair_at_once(machine: StateMachine) -> None:
    offset = machine.next_offset
    assert one(machine, OWN_INIT) == InitProducerIdResponse(0, 1000, 1)
    assert machine.next_offset == offset + 1
    assert batch(machine, own(COMMIT), own(ADD)) == [ErrorCode.PRODUCER_FENCED] * 2
    assert one(machine, replace(own(ADD), producer_epoch=1)) == GRANTED


def test_a_producer_that_aborts_by_a_new_epoch_is_told_the_same_again(machine: StateMachine) -> None:
    bump = replace(OWN_INIT, producer_id=1000, producer_epoch=0)
    assert batch(machine, bump, bump) == [InitProducerIdResponse(0, 1000, 1)] * 2


@pytest.mark.parametrize("timed_out", [True, False])
def test_an_abort_over_the_producers_head_is_one_record(machine: StateMachine, timed_out: bool) -> None:
    assert one(machine, replace(ABORT, producer_id=1000, producer_epoch=0, timed_out=timed_out)) == GRANTED
    assert state(machine) == ("COMPLETE_ABORT", 1000, 1)
    back = replace(OWN_INIT, producer_id=1000, producer_epoch=0)
    assert one(machine, back) == (InitProducerIdResponse(0, 1000, 1) if timed_out else ErrorCode.PRODUCER_FENCED)


def test_what_an_earlier_version_left_decided_is_completed(machine: StateMachine) -> None:
    machine = make(SUCCESSION)
    batch(machine, OWN_INIT, own(ADD), own(COMMIT))
    assert state(machine)[0] == "PREPARE_COMMIT"
    assert batch(machine, requests.RaiseMetadataVersion(ENDS_AT_ONCE), own(COMMIT), OWN_INIT) == [
        ENDS_AT_ONCE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ]
    assert one(machine, replace(COMPLETE, producer_id=1000)) == GRANTED
    assert state(machine)[0] == "COMPLETE_COMMIT"


def test_the_batch_that_raises_the_version_ends_at_once() -> None:
    machine = make(SUCCESSION)
    batch(machine, OWN_INIT, own(ADD), requests.RaiseMetadataVersion(ENDS_AT_ONCE), own(COMMIT))
    assert state(machine)[0] == "COMPLETE_COMMIT"


@pytest.mark.parametrize("status", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_no_earlier_log_ends_a_transaction_at_once(status: TransactionStatus) -> None:
    machine = make(SUCCESSION)
    batch(machine, OWN_INIT, own(ADD))
    ended = replace(newest(machine), status=status, producer_epoch=1, partitions=(), start_ms=-1)
    with pytest.raises(AssertionError, match="S7: "):
        machine.replay([ended])
    machine.replay([FeatureLevelRecord(ENDS_AT_ONCE), ended])
    assert newest(machine) is ended
