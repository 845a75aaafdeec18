"""EndTxn from version 5 on: each transaction has an epoch of its own (KIP-890). Docstrings name Kafka's test."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pidkeeper.controller.state import requests
from pidkeeper.controller.state.decide import decide
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine, owners
from pidkeeper.controller.state.transitions import MAX_EPOCH
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.protocol.messages import InitProducerIdResponse, TransactionResponse
from pidkeeper.protocol.metadata_version import GROUPS, TRANSACTION_EPOCHS
from tests.unit.controller.state.test_ends_at_once import OWN_INIT, newest, own
from tests.unit.controller.state.test_transaction_decisions import ABORT, ADD, EPOCH, NOW, batch, make, one, state

END = requests.EndTxn(1, EPOCH, "tx", 1000, 0, True, new_epoch=True)
"""Of producer ID 1000, the first of the quorum's own, with epoch 0."""


def granted(epoch: int, producer_id: int = 1000) -> TransactionResponse:
    return TransactionResponse(0, producer_id, epoch)


def at(epoch: int, request: requests.EndTxn = END) -> requests.EndTxn:
    return replace(request, producer_epoch=epoch)


@pytest.fixture
def machine() -> StateMachine:
    """A transaction is under way under `tx`, by producer ID 1000 and epoch 0."""
    machine = make(TRANSACTION_EPOCHS)
    batch(machine, OWN_INIT, own(ADD))
    return machine


@pytest.fixture
def exhausted(machine: StateMachine) -> StateMachine:
    """Likewise, but with the last epoch."""
    record = replace(newest(machine), producer_epoch=MAX_EPOCH)
    machine.restore(replace(machine.image(1, 1), transactions=[record]))
    return machine


@pytest.mark.parametrize("committed", [True, False])
def test_the_producer_goes_on_with_the_next_epoch(machine: StateMachine, committed: bool) -> None:
    """testEpochBumpOnEndTxn."""
    end, offset = replace(END, committed=committed), machine.next_offset
    assert batch(machine, end, end, end) == [granted(1)] * 3, "a repetition is answered alike"
    assert machine.next_offset == offset + 1
    assert state(machine) == ("COMPLETE_COMMIT" if committed else "COMPLETE_ABORT", 1000, 1)
    assert one(machine, replace(end, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    assert one(machine, own(ADD)) is ErrorCode.PRODUCER_FENCED
    assert one(machine, replace(own(ADD), producer_epoch=1)) == TransactionResponse(0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_end_does_not_end_the_next_transaction(machine: StateMachine, committed: bool) -> None:
    batch(machine, END, replace(own(ADD), producer_epoch=1))
    before = newest(machine)
    late = replace(END, committed=committed)
    assert batch(machine, late, replace(late, new_epoch=False)) == [ErrorCode.PRODUCER_FENCED] * 2
    assert newest(machine) is before


def test_without_a_transaction_there_is_nothing_to_commit(machine: StateMachine) -> None:
    batch(machine, END)
    assert one(machine, at(1)) is ErrorCode.INVALID_TXN_STATE


def test_an_abort_without_a_transaction_gives_the_next_epoch(machine: StateMachine) -> None:
    batch(machine, END)
    abort = at(1, replace(END, committed=False))
    assert batch(machine, abort, abort, at(2, abort)) == [granted(2), granted(2), granted(3)]
    assert state(machine) == ("EMPTY", 1000, 3)
    assert one(machine, at(2)) is ErrorCode.INVALID_TXN_STATE, "nothing was committed with that pair"


def test_an_unknown_pair_is_refused(machine: StateMachine) -> None:
    batch(machine, END)
    assert one(machine, at(2)) is ErrorCode.PRODUCER_FENCED
    assert one(machine, replace(END, producer_id=999)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert one(machine, replace(END, transactional_id="other")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert one(machine, at(-1, replace(END, producer_id=-1))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_new_instance_fences_the_end(machine: StateMachine) -> None:
    assert one(machine, OWN_INIT) == InitProducerIdResponse(0, 1000, 1)
    assert batch(machine, END, replace(END, committed=False)) == [ErrorCode.PRODUCER_FENCED] * 2


def test_initialising_with_the_pair_before_gives_the_pair_that_was_missed(machine: StateMachine) -> None:
    one(machine, END)
    assert one(machine, replace(OWN_INIT, producer_id=1000, producer_epoch=0)) == InitProducerIdResponse(0, 1000, 1)
    assert state(machine)[0] == "COMPLETE_COMMIT"


def test_whose_time_was_up_may_abort_and_go_on_but_not_commit(machine: StateMachine) -> None:
    one(machine, replace(ABORT, producer_id=1000, producer_epoch=0, timed_out=True))
    assert one(machine, END) is ErrorCode.INVALID_TXN_STATE
    assert one(machine, replace(END, committed=False)) == granted(1)


def test_whom_an_operator_fenced_goes_on_with_nothing(machine: StateMachine) -> None:
    one(machine, ABORT)
    assert batch(machine, END, replace(END, committed=False)) == [ErrorCode.PRODUCER_FENCED] * 2


@pytest.mark.parametrize("committed", [True, False])
def test_used_up_epochs_give_a_new_id(exhausted: StateMachine, committed: bool) -> None:
    """testEpochBumpOnEndTxnOverflow."""
    end, offset = at(MAX_EPOCH, replace(END, committed=committed)), exhausted.next_offset
    assert batch(exhausted, end, end) == [granted(0, 1001)] * 2
    assert exhausted.next_offset == offset + 2
    assert state(exhausted) == ("EMPTY", 1001, 0)
    assert one(exhausted, replace(end, committed=not committed)) is ErrorCode.INVALID_TXN_STATE
    assert one(exhausted, at(MAX_EPOCH + 1, end)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("committed", [True, False])
def test_initialising_with_the_last_pair_of_an_id_gives_the_pair_that_was_missed(
    exhausted: StateMachine, committed: bool
) -> None:
    one(exhausted, at(MAX_EPOCH, replace(END, committed=committed)))
    again, offset = replace(OWN_INIT, producer_id=1000, producer_epoch=MAX_EPOCH), exhausted.next_offset
    assert one(exhausted, again) == InitProducerIdResponse(0, 1001, 0)
    assert exhausted.next_offset == offset
    assert one(exhausted, replace(again, producer_epoch=MAX_EPOCH + 1)) is ErrorCode.PRODUCER_FENCED


def test_a_new_id_is_in_the_history(exhausted: StateMachine) -> None:
    draft = Draft(exhausted, NOW)
    decide(draft, at(MAX_EPOCH))
    assert [each.producer_id for each in owners(draft.records, 50, TRANSACTION_EPOCHS)] == [1001]


def test_without_an_id_at_hand_the_transaction_goes_on(exhausted: StateMachine) -> None:
    before = newest(exhausted)
    assert one(exhausted, replace(at(MAX_EPOCH), may_get_id=False)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert newest(exhausted) is before


def test_whose_time_was_up_with_the_last_epoch_gets_a_new_id(exhausted: StateMachine) -> None:
    """shouldHandleTimeoutAtEpochOverflowBoundaryCorrectlyTV2."""
    one(exhausted, replace(ABORT, producer_id=1000, producer_epoch=MAX_EPOCH, timed_out=True))
    abort = at(MAX_EPOCH, replace(END, committed=False))
    assert one(exhausted, at(MAX_EPOCH)) is ErrorCode.INVALID_TXN_STATE
    assert batch(exhausted, abort, abort) == [granted(0, 1001)] * 2
    assert one(exhausted, at(MAX_EPOCH)) is ErrorCode.INVALID_TXN_STATE, "it was aborted"


def test_the_fence_that_nobody_has_gets_no_id(exhausted: StateMachine) -> None:
    one(exhausted, replace(ABORT, producer_id=1000, producer_epoch=MAX_EPOCH, timed_out=True))
    guessed = replace(OWN_INIT, producer_id=1000, producer_epoch=MAX_EPOCH + 1)
    assert one(exhausted, guessed) is ErrorCode.PRODUCER_FENCED
    assert one(exhausted, at(MAX_EPOCH + 1)) is ErrorCode.PRODUCER_FENCED


def test_no_earlier_version_gives_epochs() -> None:
    machine = make(GROUPS)
    batch(machine, OWN_INIT, own(ADD))
    assert one(machine, END) is ErrorCode.UNSUPPORTED_VERSION
