"""A rollback to ZooKeeper under way when a broker says that it holds what was not handed out here (0026)."""

from __future__ import annotations

import uuid

import pytest

from pidkeeper.controller.migration.zookeeper import Cause, Failure
from pidkeeper.controller.state.requests import BrokerHeartbeat, DismissEvidence
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.protocol.migration import MigrationPhase
from tests.support.memory_leader import MemoryQuorum, granted

HELD = 5_000
FOUNDING = uuid.UUID(int=1)


def rolling_back() -> MemoryQuorum:
    """0 to 9 are handed out, and the rollback is ordered; nothing was asked of ZooKeeper since."""
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.DUAL_WRITE)
    assert granted(quorum) == [0]
    quorum.order(MigrationPhase.ROLLING_BACK)
    return quorum


def hear(quorum: MemoryQuorum, highest: int = HELD) -> None:
    """Broker 1 lives, and says what it holds; what ZooKeeper was asked stays unanswered."""
    quorum.leader.ask(BrokerHeartbeat(1, 0, HeldIds(FOUNDING, highest)))
    quorum.leader.settle()
    assert quorum.leader.machine.foundings.of(1) is not None


def floor(quorum: MemoryQuorum, at_least: int) -> None:
    answer = quorum.leader.floor(at_least)
    quorum.leader.settle()
    assert answer.result().next_producer_id == at_least


def trouble(quorum: MemoryQuorum) -> str | None:
    return quorum.leader.migration.trouble()


def test_a_rollback_that_waits_for_zookeeper_waits_for_an_operator_too() -> None:
    quorum = rolling_back()
    quorum.leader.migration.tick()
    quorum.znode.fail(Failure(Cause.UNAVAILABLE, "no session"))
    hear(quorum)
    entries, version = len(quorum.log), quorum.znode.version
    quorum.run(ticks=5)
    assert quorum.leader.phase() is MigrationPhase.ROLLING_BACK
    assert str(trouble(quorum)).startswith(f"broker 1 holds IDs up to {HELD} of founding {FOUNDING}")
    assert quorum.znode.version == version, "ZooKeeper's brokers would hand out from there"
    assert len(quorum.log) == entries, "no entry a tick"
    floor(quorum, HELD + 1)
    quorum.run()
    assert quorum.leader.phase() is MigrationPhase.ROLLED_BACK
    assert trouble(quorum) is None
    assert quorum.znode.allocate(size=5) == range(HELD + 1, HELD + 6)


def test_evidence_that_an_operator_dismisses_lets_a_rollback_go_on() -> None:
    quorum = rolling_back()
    hear(quorum)
    quorum.run(ticks=2)
    assert quorum.leader.phase() is MigrationPhase.ROLLING_BACK
    quorum.leader.ask(DismissEvidence(1, HELD))
    quorum.run(ticks=2)
    assert quorum.leader.phase() is MigrationPhase.ROLLED_BACK
    assert quorum.znode.allocate(size=5) == range(10, 15)


@pytest.mark.parametrize("calls", [0, 1])
def test_evidence_that_comes_before_zookeeper_is_set_back(calls: int) -> None:
    """The step has begun: it waits for the read, or what was read is to be committed."""
    quorum = rolling_back()
    version = quorum.znode.version
    quorum.leader.migration.tick()
    for _ in range(calls):
        quorum.znode.answer()
    hear(quorum)
    quorum.run(ticks=2)
    assert quorum.leader.phase() is MigrationPhase.ROLLING_BACK
    assert quorum.znode.version == version
    floor(quorum, HELD + 1)
    quorum.run(ticks=2)
    assert quorum.leader.phase() is MigrationPhase.ROLLED_BACK
    assert quorum.znode.allocate(size=5) == range(HELD + 1, HELD + 6)


@pytest.mark.parametrize("raised", [False, True], ids=["a floor later", "a floor before the end is decided"])
def test_evidence_that_comes_when_zookeeper_was_just_set_back(raised: bool) -> None:
    quorum = rolling_back()
    leader, znode = quorum.leader, quorum.znode
    leader.migration.tick()
    znode.answer()
    leader.settle()
    znode.carry_out()
    hear(quorum)
    if raised:
        floor(quorum, HELD + 1)
    quorum.settle()
    assert leader.phase() is MigrationPhase.ROLLING_BACK
    if not raised:
        assert f"broker 1 holds IDs up to {HELD}" in str(trouble(quorum))
        floor(quorum, HELD + 1)
    quorum.run(ticks=2)
    assert leader.phase() is MigrationPhase.ROLLED_BACK
    assert trouble(quorum) is None
    assert znode.allocate(size=5) == range(HELD + 1, HELD + 6)


def test_a_seal_needs_no_operator() -> None:
    """Behind it nobody hands out but the quorum, and that has stopped."""
    quorum = MemoryQuorum()
    quorum.enter(MigrationPhase.FINALIZING)
    hear(quorum)
    quorum.run()
    assert quorum.leader.phase() is MigrationPhase.FINALIZED
