"""The migration as the quorum replays it: the phases in their order, one name, and no ID while it pauses."""

from __future__ import annotations

import itertools
import re

import msgspec
import pytest

from pidkeeper.controller.state import migration
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.state.migration import TRANSITIONS, MigrationState
from pidkeeper.protocol.metadata_version import MIGRATION, TRANSACTIONS
from pidkeeper.protocol.migration import CLAIMING, PAUSED, MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import (
    AllocateProducerIdsRecord,
    FeatureLevelRecord,
    ProducerIdFloorRecord,
    Record,
    RegisterBrokerRecord,
)

P = MigrationPhase


def entered(phase: MigrationPhase, claimed_by: str = "q") -> MigrationRecord:
    return MigrationRecord(phase, claimed_by, -1, 5)


def machine_in(phase: MigrationPhase) -> StateMachine:
    machine = StateMachine("c", 10)
    machine.replay([RegisterBrokerRecord(1, 0, "a"), FeatureLevelRecord(MIGRATION)])
    if phase is not P.NONE:
        machine.migration = MigrationState(entered(phase))
    return machine


ARROWS = {
    (P.NONE, P.BRIDGE),
    (P.NONE, P.IMPORT),
    (P.BRIDGE, P.IMPORT),
    (P.IMPORT, P.DUAL_WRITE),
    (P.IMPORT, P.ROLLING_BACK),
    (P.DUAL_WRITE, P.FINALIZING),
    (P.DUAL_WRITE, P.ROLLING_BACK),
    (P.FINALIZING, P.FINALIZING),
    (P.FINALIZING, P.FINALIZED),
    (P.FINALIZING, P.ROLLING_BACK),
    (P.ROLLING_BACK, P.ROLLING_BACK),
    (P.ROLLING_BACK, P.ROLLED_BACK),
    (P.ROLLED_BACK, P.IMPORT),
}
"""The arrows of the diagram, and a pausing phase entered again."""


def test_the_table_is_the_diagram() -> None:
    assert {(before, after) for before, found in TRANSITIONS.items() for after in found} == ARROWS
    assert set(TRANSITIONS) == set(P)
    row = next(line for line in (migration.__doc__ or "").splitlines() if line.startswith("NONE"))
    names = re.findall("[A-Z_]+", row)
    assert all((MigrationPhase[one], MigrationPhase[other]) in ARROWS for one, other in itertools.pairwise(names))


@pytest.mark.parametrize("before", list(P), ids=lambda phase: phase.name)
@pytest.mark.parametrize("after", list(P), ids=lambda phase: phase.name)
def test_m1_no_phase_is_skipped(before: MigrationPhase, after: MigrationPhase) -> None:
    state = machine_in(before).migration
    assert state.phase is before
    if (before, after) in ARROWS:
        state.replay(entered(after), 7)
        assert state.phase is after
    else:
        message = f"M1: offset 7 takes the migration from {before.name} to {after.name}"
        with pytest.raises(AssertionError, match=f"^{message}"):
            state.replay(entered(after), 7)
        assert state.phase is before


def test_m2_the_name_stays() -> None:
    state = MigrationState()
    assert state.claimed_by is None
    state.replay(entered(P.BRIDGE), 1)
    assert str(state.claimed_by) == "q"
    with pytest.raises(AssertionError, match=r"^M2: offset 7 changes the name of the claims from q to r"):
        state.replay(entered(P.IMPORT, "r"), 7)
    assert state.record == entered(P.BRIDGE)
    state.replay(entered(P.IMPORT), 7)
    assert state.record == entered(P.IMPORT)


@pytest.mark.parametrize("phase", list(P), ids=lambda phase: phase.name)
def test_m3_no_allocation_while_it_pauses(phase: MigrationPhase) -> None:
    machine = machine_in(phase)
    allocation = AllocateProducerIdsRecord(1, 0, 9, 0, 10, 5)
    if phase in PAUSED:
        with pytest.raises(AssertionError, match=f"^M3: offset 2 hands out IDs in the phase {phase.name}"):
            machine.replay([allocation])
        assert machine.producer_ids.next_producer_id == 0
    else:
        machine.replay([allocation])
        assert machine.producer_ids.next_producer_id == 10


def test_zookeepers_block_moves_the_next_id_forward_only() -> None:
    machine = machine_in(P.BRIDGE)
    machine.replay([ZooKeeperBlockRecord(1000, 7, 3, 5)])
    assert machine.producer_ids.next_producer_id == 1000
    for next_id in (1000, 999):
        with pytest.raises(AssertionError, match=f"^S3: offset 3 lowers the next producer ID from 1000 to {next_id}"):
            machine.replay([ZooKeeperBlockRecord(next_id, 7, 3, 5)])
    assert machine.producer_ids.last_block is None


@pytest.mark.parametrize("record", [entered(P.BRIDGE), ZooKeeperBlockRecord(1000, 7, 3, 5)], ids=["phase", "block"])
def test_s7_its_records_need_their_metadata_version(record: Record) -> None:
    machine = StateMachine("c")
    machine.replay([FeatureLevelRecord(TRANSACTIONS)])
    with pytest.raises(AssertionError, match=r"^S7: offset 1 holds .* but the metadata version is 3"):
        machine.replay([record])
    machine.replay([FeatureLevelRecord(MIGRATION), record])
    assert machine.next_offset == 3


def test_a_snapshot_keeps_the_migration() -> None:
    machine = machine_in(P.NONE)
    assert machine.image(9, 2).migration is None
    machine.replay([entered(P.BRIDGE), ProducerIdFloorRecord(5, 0), MigrationRecord(P.IMPORT, "q", 8, 6)])
    image = machine.image(9, 2)
    assert image.migration == MigrationRecord(P.IMPORT, "q", 8, 6)
    other = StateMachine("c", 10)
    other.restore(image)
    assert other.image(9, 2) == image
    assert (other.migration.phase, other.migration.claimed_by) == (P.IMPORT, "q")
    with pytest.raises(AssertionError, match="M2"):
        other.replay([entered(P.DUAL_WRITE, "r")])
    with pytest.raises(ValueError, match="image of version 3 with migration"):
        msgspec.structs.replace(image, version=TRANSACTIONS)


def test_every_phase_hands_out_ids_in_one_way() -> None:
    assert not CLAIMING & PAUSED
    assert set(P) - CLAIMING - PAUSED == {P.NONE, P.FINALIZED}
