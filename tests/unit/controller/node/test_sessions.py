"""When a broker's silence counts."""

from __future__ import annotations

import pytest

from pidkeeper.controller.node.sessions import BrokerSessions
from pidkeeper.protocol.metadata_version import BASE, LATEST, UNTOLD
from pidkeeper.protocol.records import (
    BrokerRegistrationChangeRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)


def test_a_silent_broker_expires_once_at_its_timeout() -> None:
    sessions = BrokerSessions(timeout_ticks=10)
    sessions.heard(1, tick=5)
    assert sessions.expired(14) == []
    assert sessions.expired(15) == [1]
    assert sessions.expired(16) == []


def test_a_sign_of_life_starts_the_timeout_again() -> None:
    sessions = BrokerSessions(10)
    sessions.heard(1, 0)
    sessions.heard(1, 9)
    assert sessions.expired(10) == []
    assert sessions.expired(19) == [1]
    sessions.heard(1, 20)
    assert sessions.expired(30) == [1]


def test_expired_brokers_are_sorted() -> None:
    sessions = BrokerSessions(10)
    for broker_id in (3, 1, 2):
        sessions.heard(broker_id, 0)
    sessions.heard(4, 5)
    assert sessions.expired(10) == [1, 2, 3]


def test_what_a_broker_has_at_hand_is_known_while_its_process_has_a_session() -> None:
    sessions = BrokerSessions(10)
    sessions.has_at_hand(1, 500)
    assert sessions.reserve(1) is None, "it has no session"
    sessions.heard(1, 0)
    assert sessions.reserve(1) == 500
    sessions.has_at_hand(1, 0)
    assert sessions.reserve(1) == 0
    sessions.has_at_hand(1, None)
    assert sessions.reserve(1) is None, "an earlier build says nothing"
    for record in (RegisterBrokerRecord(1, 5, "another process"), UnregisterBrokerRecord(1, 5)):
        sessions.heard(1, 1)
        sessions.has_at_hand(1, 7)
        sessions.applied([record], 2)
        sessions.heard(1, 3)
        assert sessions.reserve(1) is None
    sessions.has_at_hand(1, 7)
    sessions.restart([1], 4)
    assert sessions.reserve(1) is None, "a new leader was told nothing"
    sessions.has_at_hand(1, 7)
    assert sessions.expired(14) == [1]
    assert sessions.reserve(1) is None


def test_an_unregistered_broker_is_forgotten() -> None:
    sessions = BrokerSessions(10)
    sessions.heard(1, 0)
    sessions.applied([UnregisterBrokerRecord(1, 0), UnregisterBrokerRecord(1, 0)], 1)
    assert sessions.expired(100) == []


@pytest.mark.parametrize("record", [RegisterBrokerRecord(1, 5, "a"), BrokerRegistrationChangeRecord(1, 5, False)])
def test_who_is_registered_and_not_fenced_has_a_session(record: Record) -> None:
    sessions = BrokerSessions(10)
    sessions.applied([ProducerIdFloorRecord(5, 0), record], 20)
    assert sessions.expired(29) == []
    assert sessions.expired(30) == [1]


def test_a_record_does_not_prolong_a_session() -> None:
    sessions = BrokerSessions(10)
    sessions.heard(1, 0)
    sessions.applied([RegisterBrokerRecord(1, 5, "a")], 9)
    assert sessions.expired(10) == [1]


def test_who_is_fenced_gets_no_session_by_that() -> None:
    sessions = BrokerSessions(10)
    sessions.applied([BrokerRegistrationChangeRecord(1, 5, True)], 0)
    assert sessions.expired(100) == []


def test_a_new_leader_gives_every_broker_a_full_timeout() -> None:
    sessions = BrokerSessions(10)
    sessions.heard(9, 0)
    sessions.restart([1, 2], tick=100)
    assert sessions.expired(109) == []
    assert sessions.expired(110) == [1, 2]


def test_how_long_a_broker_was_silent_is_known_of_those_that_this_leader_heard() -> None:
    sessions = BrokerSessions(10)
    sessions.restart([1, 2], 100)
    assert [sessions.silent(broker_id, 104) for broker_id in (1, 2, 3)] == [None] * 3
    sessions.heard(1, 105)
    assert [sessions.silent(broker_id, 108) for broker_id in (1, 2)] == [3, None]
    assert sessions.expired(115) == [1, 2]
    assert sessions.silent(1, 115) is None, "it is fenced, and when it was heard is forgotten"
    sessions.restart([1], 120)
    assert sessions.silent(1, 121) is None


def test_what_a_process_knows_is_what_its_own_registration_said() -> None:
    sessions = BrokerSessions(10)
    assert sessions.version(1, "a") == UNTOLD
    sessions.heard(1, 0)
    sessions.knows(1, "a", LATEST)
    assert (sessions.version(1, "a"), sessions.version(1, "b"), sessions.version(2, "a")) == (LATEST, UNTOLD, UNTOLD)
    sessions.knows(1, "a", BASE)
    assert sessions.version(1, "a") == UNTOLD, "a faulty agent takes nothing from what all builds know"
    sessions.knows(1, "a", LATEST)
    sessions.knows(1, "b", None)
    assert [sessions.version(1, one) for one in "ab"] == [UNTOLD, UNTOLD], "an earlier build took its place"


@pytest.mark.parametrize("end", ["unregistered", "silent", "another leader"])
def test_what_a_process_knows_is_forgotten_with_its_session(end: str) -> None:
    sessions = BrokerSessions(10)
    sessions.heard(1, 0)
    sessions.knows(1, "a", LATEST)
    if end == "unregistered":
        sessions.applied([UnregisterBrokerRecord(1, 5)], 1)
    elif end == "silent":
        assert sessions.expired(10) == [1]
    else:
        sessions.restart([1], 1)
    assert sessions.version(1, "a") == UNTOLD
