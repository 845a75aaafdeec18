"""Why an ID has no owner, by what a member knows of jumps."""

from __future__ import annotations

import uuid
from pathlib import PurePath

import pytest

from pidkeeper.controller.node import ledger as module
from pidkeeper.controller.node.ledger import Ledger
from pidkeeper.controller.node.ownerless import Gaps, why_ownerless
from pidkeeper.controller.state.machine import Jump, jumps
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.owner_archive import OwnerArchive
from pidkeeper.protocol.founding import SuccessionRecord
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord, ZooKeeperBlockRecord
from pidkeeper.protocol.records import AllocateProducerIdsRecord, ProducerIdFloorRecord, Record
from tests.support.memory_files import MemoryFiles

PREDECESSOR = uuid.UUID(int=7)
ZOOKEEPER = ZooKeeperBlockRecord(5000, 3, 12, 1000)
FLOOR = ProducerIdFloorRecord(9000, 2000)
SUCCESSION = SuccessionRecord(uuid.UUID(int=8), PREDECESSOR, 20_000, 3000)
MIGRATION = MigrationRecord(MigrationPhase.DUAL_WRITE, "pidkeeper/c", -1, 0)
JUMPS: list[tuple[int, Jump]] = [(10, ZOOKEEPER), (20, FLOOR), (30, SUCCESSION)]


@pytest.mark.parametrize(
    ("producer_id", "said"),
    [
        (0, "by ZooKeeper's controller, before this quorum took over from it at the next ID 5000"),
        (4999, "log offset 10, version 12 of the znode"),
        (5000, "it was skipped when the floor was raised to 9000 (at 1970-01-01T00:00:02.000Z, log offset 20)"),
        (8999, "it was skipped when the floor was raised to 9000"),
        (9000, f"below the floor 20000 from which on this quorum hands out .*the quorum of founding {PREDECESSOR}"),
        (29_999, "it was skipped when the floor was raised, to 30000 at most"),
        (30_000, "is not handed out yet: the next one is 30000"),
        (2**62, "is not handed out yet: the next one is 30000"),
    ],
)
def test_what_skipped_an_id_is_told(producer_id: int, said: str) -> None:
    reason = why_ownerless(producer_id, Gaps(30_000, SUCCESSION, None, JUMPS), None)
    assert reason.startswith(f"producer ID {producer_id} ")
    assert all(part in reason for part in said.split(".*"))


@pytest.mark.parametrize(
    ("gaps", "said"),
    [
        (Gaps(9000, jumps_from=9000), "it was skipped when the floor was raised, to 6000 at most"),
        (
            Gaps(9000, None, MIGRATION, jumps_from=9000),
            "given by ZooKeeper's controller .*, or was skipped by",
        ),
        (Gaps(9000, None, MIGRATION, jumps_from=9000), "this quorum goes on from 6000"),
        (Gaps(9000, SUCCESSION, MIGRATION, jumps_from=9000), "below the floor 20000"),
        (Gaps(9000, jumps_from=9000, complete_from=7000), "that history is incomplete below ID 7000"),
        # A jump that is known says nothing of an ID that one before it may have passed.
        (Gaps(9000, None, MIGRATION, [(20, FLOOR)], jumps_from=5500), "this quorum goes on from 6000"),
    ],
)
def test_what_was_forgotten_with_the_log_is_not_made_up(gaps: Gaps, said: str) -> None:
    reason = why_ownerless(5000, gaps, 6000)
    assert all(part in reason for part in said.split(".*")), reason


def ledger() -> Ledger:
    files, path = MemoryFiles(), PurePath("/archive")
    files.make_directory(path)
    return Ledger(AllocationArchive(files, path, "c"), OwnerArchive(files, path, "c"), 0, 100)


def test_the_ledger_keeps_the_jumps_of_the_batches_that_it_was_told() -> None:
    known = ledger()
    try:
        batch: list[Record] = [AllocateProducerIdsRecord(1, 0, 109, 100, 10, 0), ZOOKEEPER, FLOOR]
        known.record([], jumps=jumps(batch, 5))
        assert known.jumps() == ([(6, ZOOKEEPER), (7, FLOOR)], 100)
        known.restart(50, 9500)
        assert known.jumps() == ([], 9500)
    finally:
        known.close()


def test_the_ledger_forgets_the_oldest_jumps_and_knows_from_where_on_it_has_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_JUMPS", 2)
    known = ledger()
    try:
        known.record([], jumps=JUMPS)
        assert known.jumps() == (JUMPS[1:], 5000)
    finally:
        known.close()
