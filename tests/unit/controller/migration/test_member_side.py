"""What a member wires: where a request for IDs goes in each phase, how a quorum begins in ZooKeeper, its trouble."""

from __future__ import annotations

import pytest

from pidkeeper.controller.migration.zookeeper import Cause, Failure
from pidkeeper.controller.node import decider as decider_module
from pidkeeper.controller.state.requests import BrokerHeartbeat, RaiseFloor
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTIONS
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase, MigrationRecord
from pidkeeper.protocol.records import FeatureLevelRecord, decode_batch, encode_batch
from tests.support.memory_leader import ALLOCATE, NAME, MemoryQuorum, code_of, granted
from tests.support.memory_znode import LOST, MemoryZnode

P = MigrationPhase
PHASES = list(P)
NOT_BEGUN = "the quorum has not begun to allocate from ZooKeeper yet"


def in_phase(phase: MigrationPhase) -> MemoryQuorum:
    quorum = MemoryQuorum()
    quorum.enter(phase)
    return quorum


def test_the_phases_that_claim_and_those_that_pause() -> None:
    assert {P.BRIDGE, P.IMPORT, P.DUAL_WRITE, P.ROLLED_BACK} == CLAIMING
    assert {P.FINALIZING, P.ROLLING_BACK} == PAUSED


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_where_a_request_goes(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    migration, znode = quorum.leader.migration, quorum.znode
    assert migration.claim_for(BrokerHeartbeat(1, 0)) is None
    before = znode.reads, znode.writes, znode.version
    answer = quorum.leader.ask()
    quorum.settle()
    if phase in PAUSED:
        assert answer.refusal is not None
        assert answer.refusal.code is ErrorCode.MIGRATION_UNDER_WAY
        assert f"is in the phase {phase.name}; ask again" in str(answer.refusal)
    else:
        assert answer.result().producer_id_start == 0
    assert ((znode.reads, znode.writes, znode.version) != before) is (phase in CLAIMING)


@pytest.mark.parametrize("phase", sorted(CLAIMING), ids=lambda phase: phase.name)
def test_a_member_that_does_not_serve_claims_nothing(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    quorum.leader.core.serving = False
    for request in (ALLOCATE, RaiseFloor(5)):
        with pytest.raises(RequestError) as refusal:
            quorum.leader.ask(request)
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    assert len(quorum.leader.migration.claims) == 0
    assert quorum.leader.migration.claim_for(BrokerHeartbeat(1, 0)) is None


@pytest.mark.parametrize("phase", sorted(CLAIMING), ids=lambda phase: phase.name)
@pytest.mark.parametrize("floor", [RaiseFloor(2 * MAX_FLOOR_JUMP), RaiseFloor(MAX_PRODUCER_ID, forced=True)])
def test_a_floor_that_will_be_refused_claims_nothing(phase: MigrationPhase, floor: RaiseFloor) -> None:
    """What is claimed in ZooKeeper cannot be given back."""
    quorum = in_phase(phase)
    before = quorum.znode.writes
    with pytest.raises(RequestError) as refusal:
        quorum.leader.ask(floor)
    quorum.settle()
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    assert quorum.znode.writes == before
    answer = quorum.leader.ask(RaiseFloor(2 * MAX_FLOOR_JUMP, forced=True))
    quorum.settle()
    assert answer.result().next_producer_id == 2 * MAX_FLOOR_JUMP


def test_a_quorum_for_zookeeper_hands_out_nothing_before_it_has_begun() -> None:
    quorum = MemoryQuorum(bridge=True)
    migration = quorum.leader.migration
    with pytest.raises(RequestError, match=NOT_BEGUN) as refusal:
        migration.claim_for(ALLOCATE)
    assert refusal.value.code is ErrorCode.MIGRATION_UNDER_WAY
    assert migration.trouble() == NOT_BEGUN
    # A floor harms nobody.
    assert migration.claim_for(RaiseFloor(20)) is None
    quorum.leader.migration.tick()
    quorum.leader.migration.tick()
    quorum.settle()
    assert decode_batch(quorum.log[-1]) == [MigrationRecord(P.BRIDGE, NAME, -1, 1500)]
    assert quorum.leader.phase() is P.BRIDGE
    assert migration.trouble() is None
    assert not quorum.znode.calls
    quorum.run()
    answer = quorum.leader.ask()
    quorum.settle()
    assert answer.result().producer_id_start == 0


def test_a_quorum_of_an_old_metadata_version_says_why_it_cannot_begin() -> None:
    quorum = MemoryQuorum(bridge=True, version=TRANSACTIONS)
    entries = len(quorum.log)
    quorum.run(ticks=3)
    assert len(quorum.log) == entries, "every tick leaves an entry in the log"
    message = "cannot begin to allocate from ZooKeeper: this needs metadata version 4, the quorum has 3"
    with pytest.raises(RequestError, match=message):
        quorum.leader.ask()
    assert message in str(quorum.leader.migration.trouble())
    quorum.log.append(encode_batch([FeatureLevelRecord(4)]))
    quorum.succeed()
    quorum.run()
    assert quorum.leader.phase() is P.BRIDGE


def test_a_quorum_that_allocated_alone_does_not_begin_in_zookeeper() -> None:
    quorum = MemoryQuorum()
    quorum.leader.ask()
    quorum.settle()
    quorum.bridge = True
    quorum.succeed()
    entries = len(quorum.log)
    for _ in range(2):
        quorum.run()
        assert len(quorum.log) == entries, "every tick leaves an entry in the log"
        with pytest.raises(RequestError, match="this quorum has handed out IDs by itself") as refusal:
            quorum.leader.ask()
        assert refusal.value.code is ErrorCode.MIGRATION_UNDER_WAY
    assert quorum.leader.phase() is P.NONE


def test_a_busy_decider_is_named_until_it_takes_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = MemoryQuorum(bridge=True)
    with monkeypatch.context() as patch:
        patch.setattr(decider_module, "MAX_WAITING", 0)
        quorum.run()
    trouble = "the quorum cannot begin to allocate from ZooKeeper: 0 requests wait already"
    assert quorum.leader.migration.trouble() == trouble
    quorum.run()
    assert quorum.leader.migration.trouble() is None


def test_losing_the_lead_is_no_reason_not_to_begin() -> None:
    quorum = MemoryQuorum(bridge=True)
    quorum.leader.core.serving = False
    quorum.run()
    assert quorum.leader.migration.trouble() == NOT_BEGUN


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_trouble_is_told_only_where_zookeeper_is_needed(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    migration = quorum.leader.migration
    needed = phase in CLAIMING | PAUSED
    assert migration.trouble() is None
    migration.steps.trouble = "stuck"
    assert migration.trouble() == ("stuck" if needed else None)
    quorum.znode.trouble = "no session"
    assert migration.trouble() == ("no session" if needed else None)


def test_a_quorum_that_is_to_begin_needs_zookeeper() -> None:
    quorum = MemoryQuorum(bridge=True)
    quorum.znode.trouble = "no session"
    assert quorum.leader.migration.trouble() == "no session"


def test_deposed_concerns_claims_and_steps() -> None:
    quorum = in_phase(P.IMPORT)
    migration = quorum.leader.migration
    migration.tick()
    quorum.znode.fail(LOST)
    answer = quorum.leader.ask()
    assert migration.trouble() == LOST.detail
    migration.deposed()
    assert migration.trouble() is None
    assert answer.refusal is not None
    assert answer.refusal.code is ErrorCode.NOT_CONTROLLER


class ConnectedZnode(MemoryZnode):
    """As of a member with [zookeeper] in its configuration."""

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        """Nothing to end."""


def test_a_quorum_that_knows_zookeeper_hands_out_nothing_before_the_migration_began() -> None:
    quorum = MemoryQuorum()
    quorum.znode.__class__ = ConnectedZnode
    with pytest.raises(RequestError, match="has not begun") as refusal:
        quorum.leader.ask()
    assert refusal.value.code is ErrorCode.MIGRATION_UNDER_WAY
    assert "has not begun" in str(quorum.leader.migration.trouble())
    assert quorum.order("start") is P.IMPORT
    quorum.run()
    assert quorum.leader.migration.trouble() is None
    assert granted(quorum) == [0]


def test_a_quorum_that_has_handed_out_ids_goes_on_when_it_comes_to_know_zookeeper() -> None:
    quorum = MemoryQuorum()
    assert granted(quorum) == [0]
    quorum.znode.__class__ = ConnectedZnode
    assert quorum.leader.migration.trouble() is None
    assert granted(quorum) == [10]


@pytest.mark.parametrize("phase", sorted(CLAIMING), ids=lambda phase: phase.name)
def test_a_claim_that_failed_is_trouble_until_the_znode_can_be_read(phase: MigrationPhase) -> None:
    quorum = in_phase(phase)
    quorum.run()
    migration, znode = quorum.leader.migration, quorum.znode
    answer = quorum.leader.ask()
    quorum.leader.settle()
    znode.fail()
    quorum.leader.settle()
    assert code_of(answer) is ErrorCode.ZOOKEEPER_UNAVAILABLE
    assert migration.trouble() == LOST.detail
    migration.claims.look()
    migration.claims.look()
    assert len(znode.calls) == 1
    znode.fail(Failure(Cause.ABSENT, "gone"))
    assert migration.trouble() == "gone"
    znode.put(b"{")
    migration.claims.look()
    znode.answer()
    assert "bad JSON" in str(migration.trouble())
    znode.put(None)
    migration.claims.look()
    znode.answer()
    assert migration.trouble() is None
    migration.claims.look()
    assert not znode.calls


def test_a_claim_that_succeeds_ends_the_trouble() -> None:
    quorum = in_phase(P.DUAL_WRITE)
    migration = quorum.leader.migration
    migration.claims.trouble = "away"
    assert migration.trouble() == "away"
    assert granted(quorum) == [0]
    assert migration.trouble() is None


def test_a_look_of_an_earlier_leadership_says_nothing() -> None:
    quorum = in_phase(P.DUAL_WRITE)
    migration, znode = quorum.leader.migration, quorum.znode
    migration.claims.trouble = "away"
    migration.claims.look()
    migration.deposed()
    znode.fail()
    assert migration.claims.trouble is None
