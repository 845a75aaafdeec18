"""When the leader raises the metadata version, and for whom it waits."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pidkeeper.controller.node.sessions import BrokerSessions
from pidkeeper.controller.node.version_duty import MAX_NAMED, VersionDuty
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.requests import RaiseMetadataVersion, Request
from pidkeeper.protocol.metadata_version import BASE, LATEST, TRANSACTIONS, UNTOLD
from pidkeeper.protocol.records import (
    BrokerEndpointRecord,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    Record,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

PATIENCE = 30


class Rig:
    """A leader at version UNTOLD, beside two members that read the newest."""

    def __init__(self, version: int = UNTOLD) -> None:
        self.machine = StateMachine("c", 10)
        self.offset = 0
        self.members = {1: LATEST, 2: LATEST, 3: LATEST}
        self.asked: list[Request] = []
        self.sessions = BrokerSessions(100)
        self.duty = VersionDuty(
            self.machine, self.sessions, self._ask, members=lambda: self.members, patience_ticks=PATIENCE
        )
        self.replay(FeatureLevelRecord(version))

    def _ask(self, request: Request, refused: Callable[[], None]) -> None:
        self.asked.append(request)

    def replay(self, *records: Record) -> None:
        self.machine.replay(list(records))

    def register(self, broker_id: int, knows: int | None = None, *, kafka: bool = True) -> int:
        """An agent, or a broker without an address for clients; its epoch."""
        epoch, incarnation = self.machine.next_offset, f"of-{broker_id}"
        self.replay(RegisterBrokerRecord(broker_id, epoch, incarnation))
        if kafka:
            self.replay(BrokerEndpointRecord(broker_id, epoch, f"host-{broker_id}:9092"))
        self.sessions.heard(broker_id, 0)
        self.sessions.knows(broker_id, incarnation, knows)
        return epoch

    def raised(self, ticks: int = 0) -> int | None:
        """The version that it asks for at its next look."""
        self.asked.clear()
        self.duty.tick(ticks)
        assert len(self.asked) <= 1
        return next((one.version for one in self.asked if isinstance(one, RaiseMetadataVersion)), None)


def test_it_rises_when_all_members_and_all_agents_know_the_next() -> None:
    rig = Rig()
    rig.register(7, LATEST)
    assert rig.raised() == LATEST
    rig.members[2] = UNTOLD
    assert rig.raised() is None
    rig.members[2] = BASE
    assert rig.raised() is None, "it is not connected"


def test_an_agent_of_an_earlier_build_is_waited_for() -> None:
    rig = Rig()
    rig.register(7, LATEST)
    rig.register(8)
    assert rig.raised() is None
    rig.register(8, LATEST)
    assert rig.raised() == LATEST


@pytest.mark.parametrize("gone", ["fenced", "unregistered"])
def test_an_agent_that_is_gone_is_not_waited_for(gone: str) -> None:
    rig = Rig()
    epoch = rig.register(8)
    assert rig.raised() is None
    left = (
        UnregisterBrokerRecord(8, epoch) if gone == "unregistered" else BrokerRegistrationChangeRecord(8, epoch, True)
    )
    rig.replay(left)
    assert rig.raised() == LATEST


def test_who_serves_no_clients_is_not_waited_for() -> None:
    """A broker of another system, that only takes blocks of IDs."""
    rig = Rig()
    rig.register(8, kafka=False)
    assert rig.raised() == LATEST
    assert rig.duty.waits() == []


@pytest.mark.parametrize("knows", [None, BASE])
def test_no_agent_keeps_the_quorum_from_what_agents_know_that_tell_nothing(knows: int | None) -> None:
    rig = Rig(TRANSACTIONS)
    rig.register(8, knows)
    assert rig.raised() == UNTOLD
    rig.replay(FeatureLevelRecord(UNTOLD))
    assert rig.raised() is None


def test_no_version_is_asked_for_that_the_leader_does_not_know() -> None:
    rig = Rig(LATEST)
    rig.members = {2: LATEST + 1}
    rig.register(8, LATEST + 1)
    assert rig.raised() is None


def test_an_agent_that_comes_later_than_the_version_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(LATEST)
    rig.register(8)
    assert [rig.raised(ticks) for ticks in (0, PATIENCE, 2 * PATIENCE)] == [None] * 3
    assert (rig.duty.waits(), rig.duty.known_to(8)) == ([], None)
    assert caplog.records == []


def test_the_log_says_once_for_whom_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig()
    rig.register(8)
    rig.raised(0)
    rig.raised(PATIENCE - 1)
    assert caplog.records == []
    for ticks in (PATIENCE, PATIENCE + 1, 3 * PATIENCE):
        rig.raised(ticks)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"metadata version {LATEST} waits for broker 8: ")
    rig.duty.lead()
    rig.raised(4 * PATIENCE)
    assert len(caplog.records) == 1, "a new leader has to hear its agents first"
    rig.raised(5 * PATIENCE)
    assert len(caplog.records) == 2


def test_time_counts_from_when_agents_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.register(8)
    rig.raised(0)
    rig.members[3] = UNTOLD
    rig.raised(PATIENCE)
    rig.members[3] = LATEST
    rig.raised(2 * PATIENCE)
    assert caplog.records == []


def test_who_is_waited_for_is_named() -> None:
    rig = Rig()
    assert rig.duty.waits() == []
    rig.members |= {2: UNTOLD, 3: BASE}
    rig.register(7, LATEST)
    rig.register(8)
    (text,) = rig.duty.waits()
    assert text.startswith(f"metadata version {LATEST} waits for member 2, member 3, broker 8: bring them to")
    assert [rig.duty.known_to(one) for one in (7, 8, 9)] == [LATEST, UNTOLD, None]


def test_of_many_that_are_waited_for_some_are_named() -> None:
    rig = Rig()
    for broker_id in range(MAX_NAMED + 3):
        rig.register(broker_id)
    (text,) = rig.duty.waits()
    assert f"broker {MAX_NAMED - 1} and 3 more: " in text
    assert f"broker {MAX_NAMED}" not in text
