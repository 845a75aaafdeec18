"""Registrations: epochs are offsets, replay asserts them, and former incarnations are remembered up to a bound."""

from __future__ import annotations

import pytest

from pidkeeper.controller.state.brokers import MAX_SUPERSEDED, BrokersState, check_epoch
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord, UnregisterBrokerRecord
from pidkeeper.snapshots.image import BrokerRegistration


def registered_at(*offsets: int, broker_id: int = 1) -> BrokersState:
    state = BrokersState()
    for offset in offsets:
        state.replay(RegisterBrokerRecord(broker_id, offset, f"run-{offset}"), offset)
    return state


def test_a_registration_has_its_offset_as_epoch() -> None:
    state = registered_at(4)
    assert state.get(1) == BrokerRegistration(1, 4, "run-4", False, ())
    assert len(state) == 1


def test_a_new_incarnation_supersedes_the_old_one() -> None:
    assert registered_at(4, 9).get(1) == BrokerRegistration(1, 9, "run-9", False, ("run-4",))


def test_only_the_newest_former_incarnations_are_kept() -> None:
    registration = registered_at(*range(20)).get(1)
    assert registration is not None
    assert registration.superseded == tuple(f"run-{offset}" for offset in range(19 - MAX_SUPERSEDED, 19))


def test_a_new_registration_is_not_fenced() -> None:
    state = registered_at(4)
    state.replay(BrokerRegistrationChangeRecord(1, 4, fenced=True), 5)
    fenced = state.get(1)
    assert fenced is not None
    assert fenced.fenced
    state.replay(BrokerRegistrationChangeRecord(1, 4, fenced=False), 6)
    assert state.get(1) == BrokerRegistration(1, 4, "run-4", False, ())
    state.replay(BrokerRegistrationChangeRecord(1, 4, fenced=True), 7)
    state.replay(RegisterBrokerRecord(1, 8, "next"), 8)
    assert state.get(1) == BrokerRegistration(1, 8, "next", False, ("run-4",))


def test_unregistering_removes_the_registration() -> None:
    state = registered_at(4)
    state.replay(UnregisterBrokerRecord(1, 4), 5)
    assert state.get(1) is None
    assert len(state) == 0


def test_all_is_sorted_by_broker_id() -> None:
    state = BrokersState()
    for offset, broker_id in enumerate([5, 1, 3]):
        state.replay(RegisterBrokerRecord(broker_id, offset, "x"), offset)
    assert [registration.broker_id for registration in state.all()] == [1, 3, 5]
    assert BrokersState(state.all()).all() == state.all()


def test_s4_an_epoch_that_is_not_the_offset() -> None:
    state = BrokersState()
    with pytest.raises(AssertionError, match="S4: the registration at offset 5 carries broker epoch 4"):
        state.replay(RegisterBrokerRecord(1, 4, "x"), 5)
    assert len(state) == 0


@pytest.mark.parametrize(
    "record", [UnregisterBrokerRecord(2, 4), BrokerRegistrationChangeRecord(2, 4, True)], ids=lambda r: type(r).__name__
)
def test_s5_a_record_about_a_broker_that_is_not_registered(
    record: UnregisterBrokerRecord | BrokerRegistrationChangeRecord,
) -> None:
    with pytest.raises(AssertionError, match="S5: offset 9 is about broker 2, which is not registered"):
        registered_at(4).replay(record, 9)


@pytest.mark.parametrize(
    "record", [UnregisterBrokerRecord(1, 4), BrokerRegistrationChangeRecord(1, 4, True)], ids=lambda r: type(r).__name__
)
def test_s5_a_record_of_a_stale_epoch(record: UnregisterBrokerRecord | BrokerRegistrationChangeRecord) -> None:
    state = registered_at(4, 6)
    before = state.all()
    with pytest.raises(AssertionError, match="S5: offset 9 names epoch 4 of broker 1, which has epoch 6"):
        state.replay(record, 9)
    assert state.all() == before


def test_the_current_epoch_is_good() -> None:
    registration = registered_at(4, 6).get(1)
    assert check_epoch(registration, 1, 6) is registration


@pytest.mark.parametrize("epoch", [0, 4, 7])
def test_any_other_epoch_is_stale(epoch: int) -> None:
    with pytest.raises(RequestError, match=f"has epoch 6, not {epoch}: register anew") as refused:
        check_epoch(registered_at(4, 6).get(1), 1, epoch)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_unknown_broker_is_told_to_register() -> None:
    with pytest.raises(RequestError, match="broker 3 is not registered: register it first") as refused:
        check_epoch(None, 3, 0)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
