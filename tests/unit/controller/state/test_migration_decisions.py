"""Decisions about the migration on a draft: what is refused changes nothing, and what is decided can be replayed."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from pidkeeper.controller.state.decide import decide, most_bytes, most_records, must_be_confirmed
from pidkeeper.controller.state.draft import Draft
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.migration import MigrationState
from pidkeeper.controller.state.requests import (
    AdvanceMigration,
    AllocateProducerIds,
    BrokerHeartbeat,
    Claimed,
    OrderMigration,
    RaiseFloor,
    RaiseMetadataVersion,
    RegisterBroker,
    Request,
    StartMigration,
)
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.ids import MAX_BROKER_ID, MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import MIGRATION, TRANSACTIONS
from pidkeeper.protocol.migration import (
    CLAIMING,
    CONTROLLER,
    PAUSED,
    MigrationPhase,
    MigrationRecord,
    ZooKeeperBlockRecord,
)
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
    encode_batch,
)

P = MigrationPhase
NOW = 99
SIZE = 10
ALLOCATE = AllocateProducerIds(1, 0)
START = StartMigration("new", MAX_PRODUCER_ID)


def machine_in(phase: MigrationPhase, *, next_id: int = 0, version: int = MIGRATION) -> StateMachine:
    machine = StateMachine("c", SIZE)
    machine.replay([RegisterBrokerRecord(1, 0, "a"), FeatureLevelRecord(version)])
    if next_id:
        machine.replay([ProducerIdFloorRecord(next_id, 0)])
    if phase is not P.NONE:
        machine.migration = MigrationState(MigrationRecord(phase, "q", 3, 5))
    return machine


def claim(first: int, end: int, znode_version: int, broker_id: int) -> Claimed:
    """A claim that `held` ties to a phase."""
    return Claimed(first, end, znode_version, broker_id, MigrationRecord(P.BRIDGE, "q", -1, 0))


def held(machine: StateMachine, request: Request) -> Request:
    """The request with its claim, if any, begun in the phase in force."""
    if not isinstance(request, AllocateProducerIds | RaiseFloor) or request.claimed is None:
        return request
    record = machine.migration.record or request.claimed.begun_in
    return replace(request, claimed=replace(request.claimed, begun_in=record))


def decided(machine: StateMachine, request: Request) -> tuple[object, list[Record]]:
    """The answer and the records, which the state takes as they are."""
    draft = Draft(machine, NOW)
    answer = decide(draft, held(machine, request))
    assert len(draft.records) <= most_records(request)
    machine.replay(draft.records)
    assert machine.producer_ids.next_producer_id == draft.next_producer_id
    assert machine.migration.record == draft.migration
    return answer, draft.records


def refused(machine: StateMachine, request: Request, code: ErrorCode = ErrorCode.MIGRATION_REFUSED) -> str:
    draft = Draft(machine, NOW)
    before = draft.next_producer_id, draft.migration
    with pytest.raises(RequestError) as refusal:
        decide(draft, held(machine, request))
    assert refusal.value.code is code
    assert draft.records == []
    assert (draft.next_producer_id, draft.migration) == before
    return refusal.value.detail


@pytest.mark.parametrize("phase", [P.NONE, P.BRIDGE, P.ROLLED_BACK])
def test_start(phase: MigrationPhase) -> None:
    name = "new" if phase is P.NONE else "q"
    assert decided(machine_in(phase), START) == (P.IMPORT, [MigrationRecord(P.IMPORT, name, -1, NOW)])


@pytest.mark.parametrize("phase", [P.IMPORT, P.DUAL_WRITE, P.FINALIZING, P.FINALIZED])
def test_start_again(phase: MigrationPhase) -> None:
    assert decided(machine_in(phase, next_id=7), StartMigration("new", 0)) == (phase, [])


def test_start_while_rolling_back() -> None:
    detail = refused(machine_in(P.ROLLING_BACK), START)
    assert detail == "start is possible in none or bridge or rolled_back only; the phase is rolling_back"


@pytest.mark.parametrize("phase", [P.NONE, P.BRIDGE, P.ROLLED_BACK])
def test_start_behind_the_quorum(phase: MigrationPhase) -> None:
    machine = machine_in(phase, next_id=1000)
    detail = refused(machine, StartMigration("new", 999))
    assert "its next producer ID is 1000, the znode's 999. " in detail
    assert "set its block_end to 999 or above" in detail
    assert decided(machine, StartMigration("new", 1000))[0] is P.IMPORT


@pytest.mark.parametrize("in_the_batch", [True, False])
def test_start_after_blocks_of_its_own(in_the_batch: bool) -> None:
    machine = machine_in(P.NONE)
    draft = Draft(machine, NOW)
    decide(draft, ALLOCATE)
    decide(draft, ALLOCATE)
    if not in_the_batch:
        machine.replay(draft.records)
        draft = Draft(machine, NOW)
    records = list(draft.records)
    for request in (START, AdvanceMigration(P.NONE, P.BRIDGE, claimed_by="new")):
        with pytest.raises(RequestError) as refusal:
            decide(draft, request)
        assert refusal.value.code is ErrorCode.MIGRATION_REFUSED
        assert refusal.value.detail.startswith("this quorum has handed out IDs by itself")
        if request is START:
            assert ", 10 to 19 at last" in refusal.value.detail
    assert draft.records == records


@pytest.mark.parametrize("phase", [P.BRIDGE, P.ROLLED_BACK])
def test_start_after_blocks_that_zookeeper_knows(phase: MigrationPhase) -> None:
    machine = machine_in(phase)
    decided(machine, msgspec.structs.replace(ALLOCATE, claimed=claim(0, 10, 1, CONTROLLER)))
    assert decided(machine, StartMigration("new", 10))[0] is P.IMPORT


@pytest.mark.parametrize("request_", [START, AdvanceMigration(P.NONE, P.BRIDGE, claimed_by="new")])
def test_its_records_wait_for_their_metadata_version(request_: Request) -> None:
    machine = machine_in(P.NONE, version=TRANSACTIONS)
    detail = refused(machine, request_, ErrorCode.UNSUPPORTED_VERSION)
    assert detail.startswith("this needs metadata version 4, the quorum has 3: ")
    draft = Draft(machine, NOW)
    decide(draft, RaiseMetadataVersion(MIGRATION))
    decide(draft, request_)
    machine.replay(draft.records)
    assert machine.migration.claimed_by == "new"


OBEYED = {
    (P.DUAL_WRITE, P.FINALIZING): P.FINALIZING,
    (P.FINALIZING, P.FINALIZING): P.FINALIZING,
    (P.FINALIZED, P.FINALIZING): P.FINALIZED,
    (P.IMPORT, P.ROLLING_BACK): P.ROLLING_BACK,
    (P.DUAL_WRITE, P.ROLLING_BACK): P.ROLLING_BACK,
    (P.FINALIZING, P.ROLLING_BACK): P.ROLLING_BACK,
    (P.ROLLING_BACK, P.ROLLING_BACK): P.ROLLING_BACK,
    (P.ROLLED_BACK, P.ROLLING_BACK): P.ROLLED_BACK,
}


@pytest.mark.parametrize("order", [P.FINALIZING, P.ROLLING_BACK], ids=lambda phase: phase.name)
@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.name)
def test_orders(phase: MigrationPhase, order: MigrationPhase) -> None:
    machine = machine_in(phase)
    if (phase, order) not in OBEYED:
        can = (
            "finalize is possible in dual_write"
            if order is P.FINALIZING
            else ("rollback is possible in import or dual_write or finalizing")
        )
        last = ", and there is no way back" if phase is P.FINALIZED else ""
        detail = f"{can} only; the phase is {phase.name.lower()}{last}"
        assert refused(machine, OrderMigration(order)) == detail
        return
    after = OBEYED[phase, order]
    entered = after is order and phase is not order
    records = [MigrationRecord(order, "q", -1, NOW)] if entered else []
    assert decided(machine, OrderMigration(order)) == (after, records)


@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.name)
def test_a_step_for_a_phase_that_is_over(phase: MigrationPhase) -> None:
    after = P.FINALIZING if phase is not P.FINALIZING else P.IMPORT
    detail = refused(machine_in(phase), AdvanceMigration(after, P.FINALIZED))
    assert detail == f"the migration is in the phase {phase.name}, no longer in {after.name}"


def test_a_step_that_leads_nowhere() -> None:
    detail = refused(machine_in(P.IMPORT), AdvanceMigration(P.IMPORT, P.FINALIZED))
    assert detail == "FINALIZED is possible in finalizing only; the phase is import"


def test_a_quorum_begins_in_zookeeper() -> None:
    request = AdvanceMigration(P.NONE, P.BRIDGE, claimed_by="new")
    # A floor is no block.
    assert decided(machine_in(P.NONE, next_id=50), request) == (P.BRIDGE, [MigrationRecord(P.BRIDGE, "new", -1, NOW)])


def test_a_step_takes_what_zookeeper_has() -> None:
    machine = machine_in(P.IMPORT)
    request = AdvanceMigration(P.IMPORT, P.DUAL_WRITE, 12, 1000, 7)
    assert decided(machine, request) == (
        P.DUAL_WRITE,
        [ZooKeeperBlockRecord(1000, 7, 12, NOW), MigrationRecord(P.DUAL_WRITE, "q", 12, NOW)],
    )


@pytest.mark.parametrize("zookeeper_next", [-1, 0, 1000])
def test_a_step_takes_nothing_that_the_quorum_has_passed(zookeeper_next: int) -> None:
    machine = machine_in(P.FINALIZING, next_id=1000)
    request = AdvanceMigration(P.FINALIZING, P.FINALIZED, 12, zookeeper_next, 7)
    assert decided(machine, request) == (P.FINALIZED, [MigrationRecord(P.FINALIZED, "q", 12, NOW)])


@pytest.mark.parametrize("phase", sorted(PAUSED), ids=lambda phase: phase.name)
def test_a_phase_that_pauses_may_be_entered_again(phase: MigrationPhase) -> None:
    request = AdvanceMigration(phase, phase, 12, 5, CONTROLLER)
    assert decided(machine_in(phase), request) == (
        phase,
        [ZooKeeperBlockRecord(5, CONTROLLER, 12, NOW), MigrationRecord(phase, "q", 12, NOW)],
    )


CLAIM = claim(20, 40, 6, 7)


@pytest.mark.parametrize("phase", sorted(CLAIMING), ids=lambda phase: phase.name)
def test_a_block_comes_out_of_its_claim(phase: MigrationPhase) -> None:
    machine = machine_in(phase, next_id=5)
    _, records = decided(machine, AllocateProducerIds(1, 0, CLAIM))
    assert records == [ZooKeeperBlockRecord(20, 7, 6, NOW), AllocateProducerIdsRecord(1, 0, 29, 20, 10, NOW)]
    _, records = decided(machine, AllocateProducerIds(1, 0, CLAIM))
    assert records == [AllocateProducerIdsRecord(1, 0, 39, 30, 10, NOW)]
    detail = refused(machine, AllocateProducerIds(1, 0, CLAIM), ErrorCode.MIGRATION_UNDER_WAY)
    assert detail == "the IDs were not claimed in ZooKeeper yet; ask again"


@pytest.mark.parametrize("phase", sorted(CLAIMING), ids=lambda phase: phase.name)
@pytest.mark.parametrize("claimed", [None, claim(5, 14, 6, 7), claim(0, 14, 6, 7), claim(20, 29, 6, 7)], ids=str)
def test_a_block_that_was_not_claimed(phase: MigrationPhase, claimed: Claimed | None) -> None:
    machine = machine_in(phase, next_id=5)
    refused(machine, AllocateProducerIds(1, 0, claimed), ErrorCode.MIGRATION_UNDER_WAY)
    refused(machine, AllocateProducerIds(1, 9, claimed), ErrorCode.STALE_BROKER_EPOCH)


@pytest.mark.parametrize("claimed", [claim(5, 15, 6, 7), claim(0, 15, 6, 7)])
def test_a_block_that_was_claimed_just_so(claimed: Claimed) -> None:
    _, records = decided(machine_in(P.BRIDGE, next_id=5), AllocateProducerIds(1, 0, claimed))
    assert records == [AllocateProducerIdsRecord(1, 0, 14, 5, 10, NOW)]


@pytest.mark.parametrize("phase", [P.NONE, P.FINALIZED])
@pytest.mark.parametrize("claimed", [None, CLAIM, claim(0, 0, 0, 0)])
def test_a_quorum_that_allocates_alone_looks_at_no_claim(phase: MigrationPhase, claimed: Claimed | None) -> None:
    _, records = decided(machine_in(phase, next_id=5), AllocateProducerIds(1, 0, claimed))
    assert records == [AllocateProducerIdsRecord(1, 0, 14, 5, 10, NOW)]


@pytest.mark.parametrize("phase", sorted(PAUSED), ids=lambda phase: phase.name)
@pytest.mark.parametrize("claimed", [None, CLAIM])
def test_nothing_is_handed_out_while_it_pauses(phase: MigrationPhase, claimed: Claimed | None) -> None:
    for request in (AllocateProducerIds(1, 0, claimed), RaiseFloor(30, claimed)):
        detail = refused(machine_in(phase), request, ErrorCode.MIGRATION_UNDER_WAY)
        assert detail == f"the migration from ZooKeeper is in the phase {phase.name}; ask again"
    answer, records = decided(machine_in(phase, next_id=30), RaiseFloor(30, claimed))
    assert records == []
    assert answer == decide(Draft(machine_in(P.NONE, next_id=30), NOW), RaiseFloor(30))


@pytest.mark.parametrize("phase", sorted(CLAIMING), ids=lambda phase: phase.name)
def test_a_floor_is_claimed_too(phase: MigrationPhase) -> None:
    machine = machine_in(phase, next_id=5)
    refused(machine, RaiseFloor(6), ErrorCode.MIGRATION_UNDER_WAY)
    refused(machine, RaiseFloor(41, CLAIM), ErrorCode.MIGRATION_UNDER_WAY)
    refused(machine, RaiseFloor(6, claim(20, 19, 6, 7)), ErrorCode.MIGRATION_UNDER_WAY)
    assert decided(machine, RaiseFloor(5))[1] == []
    answer, records = decided(machine, RaiseFloor(40, CLAIM))
    assert records == [ZooKeeperBlockRecord(20, 7, 6, NOW), ProducerIdFloorRecord(40, NOW)]
    assert (answer.next_producer_id, answer.raised) == (40, True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("at_least", [6, 19, 20])
def test_a_floor_that_zookeeper_has_passed(at_least: int) -> None:
    answer, records = decided(machine_in(P.BRIDGE, next_id=5), RaiseFloor(at_least, claim(20, 20, 6, 7)))
    assert records == [ZooKeeperBlockRecord(20, 7, 6, NOW)]
    assert (answer.next_producer_id, answer.raised) == (20, True)  # type: ignore[attr-defined]


def test_the_end_of_the_space_comes_before_the_claim() -> None:
    top = MAX_PRODUCER_ID - SIZE
    claimed = claim(top, MAX_PRODUCER_ID, 6, 7)
    machine = machine_in(P.BRIDGE, next_id=top + 1)
    refused(machine, AllocateProducerIds(1, 0, claimed), ErrorCode.PRODUCER_IDS_EXHAUSTED)
    _, records = decided(machine_in(P.BRIDGE, next_id=top), AllocateProducerIds(1, 0, claimed))
    assert len(records) == 1


def test_a_claim_holds_for_the_phase_in_which_it_was_begun_alone() -> None:
    machine = machine_in(P.DUAL_WRITE, next_id=5)
    request = held(machine, AllocateProducerIds(1, 0, CLAIM))
    record = machine.migration.record
    assert record is not None
    # The very same values come back with a second start after a rollback.
    for phase in (P.ROLLING_BACK, P.ROLLED_BACK, P.IMPORT, P.DUAL_WRITE):
        machine.replay([replace(record, phase=phase)])
    draft = Draft(machine, NOW)
    with pytest.raises(RequestError) as refusal:
        decide(draft, request)
    assert refusal.value.code is ErrorCode.MIGRATION_UNDER_WAY
    assert draft.records == []


REQUESTS: list[tuple[Request, int, bool]] = [
    (ALLOCATE, 1, False),
    (AllocateProducerIds(1, 0, CLAIM), 2, False),
    (RaiseFloor(5), 1, False),
    (RaiseFloor(5, CLAIM), 2, False),
    (RegisterBroker(2, "b"), 5, False),
    (BrokerHeartbeat(1, 0), 2, False),
    (START, 1, True),
    (OrderMigration(P.FINALIZING), 1, True),
    (AdvanceMigration(P.IMPORT, P.DUAL_WRITE), 2, True),
]


@pytest.mark.parametrize(("request_", "records", "confirmed"), REQUESTS, ids=lambda value: type(value).__name__)
def test_bounds_and_confirmation(request_: Request, records: int, confirmed: bool) -> None:
    assert most_records(request_) == records
    assert must_be_confirmed(request_) is confirmed


FULL = 2**63 - 1
BIGGEST = claim(FULL - 10, FULL, 2**31 - 1, MAX_BROKER_ID)


@pytest.mark.parametrize(
    ("phase", "request_"),
    [
        (P.BRIDGE, AllocateProducerIds(MAX_BROKER_ID, FULL, BIGGEST)),
        (P.BRIDGE, RaiseFloor(FULL - SIZE, claim(FULL - 2 * SIZE, FULL, 2**31 - 1, MAX_BROKER_ID), forced=True)),
        (P.NONE, StartMigration("\U0001f511" * 128, FULL)),
        (P.DUAL_WRITE, OrderMigration(P.ROLLING_BACK)),
        (P.IMPORT, AdvanceMigration(P.IMPORT, P.DUAL_WRITE, 2**31 - 1, FULL - 10, MAX_BROKER_ID)),
        (P.NONE, AdvanceMigration(P.NONE, P.BRIDGE, 2**31 - 1, FULL, MAX_BROKER_ID, "\U0001f511" * 128)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_largest_records_stay_within_the_bound(phase: MigrationPhase, request_: Request) -> None:
    machine = StateMachine("c", SIZE)
    machine.replay([RegisterBrokerRecord(MAX_BROKER_ID, 0, "a"), FeatureLevelRecord(MIGRATION)])
    machine.brokers.replay(RegisterBrokerRecord(MAX_BROKER_ID, FULL, "b"), FULL)
    if phase is not P.NONE:
        machine.migration = MigrationState(MigrationRecord(phase, "\U0001f511" * 128, 2**31 - 1, FULL))
    draft = Draft(machine, FULL)
    decide(draft, held(machine, request_))
    assert len(draft.records) >= most_records(request_) - (phase is P.NONE and isinstance(request_, StartMigration))
    # Without the head of the array, which belongs to the batch.
    size = len(encode_batch(draft.records)) - 1
    assert size <= most_bytes(Draft(machine, 0), request_)


def test_a_claim_needs_room_for_a_record_more() -> None:
    machine = machine_in(P.BRIDGE)
    assert most_bytes(Draft(machine, 0), START) == 600
    assert most_bytes(Draft(machine, 0), ALLOCATE) == 56
    assert most_bytes(Draft(machine, 0), AllocateProducerIds(1, 0, CLAIM)) == 112
