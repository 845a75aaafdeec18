"""The checks of the quorum's own data: a sound history, and every fault planted alone, found and named.

Each quorum is judged as one shard and as several: what is found is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pidkeeper.pipeline.engine.duck import LATEST_MS
from pidkeeper.pipeline.limits import Limits
from tests.support.quorum_evidence import run
from tests.support.quorum_tables import START_MS, STEP_MS, History, QuorumTables, Row, snapshot, three_members

Plant = Callable[[], QuorumTables]
PLANTED: list[Plant] = []
CUTS: tuple[tuple[int, ...], ...] = ((), (5, 9, 12, 17, 18, 20, 27, 70_001))


def planted(plant: Plant) -> Plant:
    """Let the quorum be one of those that are judged."""
    PLANTED.append(plant)
    return plant


@pytest.fixture(scope="module", params=CUTS, ids=["one shard", "nine shards"])
def cuts(request: pytest.FixtureRequest) -> tuple[int, ...]:
    found: tuple[int, ...] = request.param
    return found


@pytest.fixture(scope="module")
def judged(cuts: tuple[int, ...]) -> dict[Plant, list[Row]]:
    """All findings in each of PLANTED."""
    return {plant: run(plant(), cuts=cuts) for plant in PLANTED}


def sound() -> History:
    """Blocks of ten at offsets 3 to 10, 12 to 15, 17 to 22, 24 to 27; a floor at 11, broker 1 anew at 16."""
    history = History(1, 2)
    for number in range(8):
        history.allocate(1 + number % 2)
    history.jump(200)
    for number in range(4):
        history.allocate(1 + number % 2)
    history.register(1)
    for number in range(6):
        history.allocate(1 + number % 2)
    history.term += 1
    history.elect()
    for number in range(4):
        history.allocate(1 + number % 2)
    return history


def found(judged: dict[Plant, list[Row]], plant: Plant, *names: str) -> list[Row]:
    """Findings of these checks, or of all, above a note."""
    return [row for row in judged[plant] if row["severity"] != "note" and (not names or row["check"] in names)]


def of(rows: list[Row], *names: str) -> list[Row]:
    """The findings of these checks."""
    return [row for row in rows if row["check"] in names]


def facts(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.get(name) for name in names) for row in rows)


def test_a_sound_history_gives_notes_alone(cuts: tuple[int, ...]) -> None:
    rows = run(three_members(sound()), cuts=cuts)
    assert facts(rows, "check", "severity", "subject") == [
        ("burn_down", "note", f"{2**63 - 1 - 340:,} IDs left"),
        ("coverage", "note", "member 3, offset 27"),
        ("coverage", "note", "member 3, offsets 4 to 8"),
        ("gap", "note", "IDs 80 to 199"),
    ]
    (gap,) = [row for row in rows if row["check"] == "gap"]
    assert "explained: ProducerIdFloorRecord at offset 11 (member 1, 1/wal/0.wal, byte 4800)" in gap["detail"]


def with_own_blocks() -> History:
    """Blocks of brokers 1 and 2 in turn with the quorum's own, from offset 3 on."""
    history = History(1, 2)
    for _ in range(8):
        history.allocate(1)
        history.take_own()
        history.allocate(2)
    return history


@planted
def nothing_that_tells_of_zookeeper() -> QuorumTables:
    """The first of all, so that its gap begins at ID 0 in the tables too: only there ZooKeeper is asked for."""
    tables = three_members(from_zookeeper())
    tables.log = []
    return tables


@planted
def own_blocks() -> QuorumTables:
    return three_members(with_own_blocks())


def test_blocks_that_the_quorum_took_itself_are_blocks_like_any_other(judged: dict[Plant, list[Row]]) -> None:
    """They are no gap and nobody's epoch."""
    assert found(judged, own_blocks) == []
    assert {row["check"] for row in judged[own_blocks]} == {"burn_down", "coverage"}


def test_blocks_that_the_quorum_took_itself_are_of_no_broker_that_takes_too_many(cuts: tuple[int, ...]) -> None:
    strict = Limits(storm_least_blocks=8, storm_ratio=0.5, quota_per_second=1, quota_burst=1)
    rows = of(run(three_members(with_own_blocks()), strict, cuts), "storm", "quota")
    assert facts(rows, "check", "broker_id") == [("quota", 1), ("quota", 2), ("storm", 1), ("storm", 2)]


@planted
def shared_with_an_own_block() -> QuorumTables:
    tables = three_members(with_own_blocks())
    tables.change(20, first_id=165)
    return tables


def test_a_block_of_the_quorums_own_that_a_broker_has_too_is_an_overlap(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, shared_with_an_own_block)
    assert (row["check"], row["first_id"], row["last_id"]) == ("overlap", 165, 169)
    assert "of the quorum's own at offset" in row["detail"]


def test_no_files_give_no_findings(cuts: tuple[int, ...]) -> None:
    assert run(QuorumTables(), cuts=cuts) == []


def test_one_member_with_one_block(cuts: tuple[int, ...]) -> None:
    history = History(1)
    history.allocate(1)
    tables = QuorumTables()
    tables.add_member(history, "1", [(0, 3)])
    (row,) = run(tables, cuts=cuts)
    assert (row["check"], row["severity"], row["first_id"]) == ("burn_down", "note", 10)
    assert row["detail"].endswith("all blocks are of one moment, so there is no rate")


@planted
def one_shared_id() -> QuorumTables:
    tables = three_members(sound())
    tables.change(20, first_id=269)
    return tables


def test_one_shared_id_is_an_overlap_and_nothing_else(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, one_shared_id)
    assert row == {
        "check": "overlap",
        "severity": "violation",
        "subject": "ID 269",
        "first_id": 269,
        "last_id": 269,
        "broker_id": 2,
        "offset": 20,
        "timestamp_ms": START_MS + 20 * STEP_MS,
        "member": "1",
        "file": "1/wal/0.wal",
        "position": 4096 + 64 * 20,
        "detail": "ID 269 is in two blocks: "
        "IDs 260 to 269 of broker 1 at offset 19 (member 1, 1/wal/0.wal, byte 5312), and "
        "IDs 269 to 279 of broker 2 at offset 20 (member 1, 1/wal/0.wal, byte 5376); "
        "two producers may have the same ID",
    }


@planted
def long_block() -> QuorumTables:
    tables = three_members(sound())
    tables.change(17, last_id=262)
    return tables


def test_a_long_block_overlaps_all_that_it_covers(judged: dict[Plant, list[Row]]) -> None:
    rows = found(judged, long_block, "overlap", "regress", "gap")
    assert facts(rows, "check", "first_id", "last_id", "offset") == [
        ("overlap", 250, 259, 18),
        ("overlap", 260, 262, 19),
    ]


@planted
def block_that_starts_lower() -> QuorumTables:
    tables = three_members(sound())
    tables.change(20, first_id=200, last_id=209)
    return tables


def test_a_block_that_starts_lower_overlaps_in_the_order_of_the_log(judged: dict[Plant, list[Row]]) -> None:
    rows = found(judged, block_that_starts_lower, "overlap", "regress")
    # It lies below the block before it, and shares IDs with another one: one finding for each pair.
    assert facts(rows, "check", "first_id", "last_id", "offset") == [
        ("overlap", 200, 209, 20),
        ("regress", 200, 209, 20),
    ]


@planted
def block_in_a_gap() -> QuorumTables:
    history = sound()
    history.allocate(2, first_id=100, last_id=109)
    history.next_id -= 10
    history.allocate(1)
    return three_members(history)


def test_a_block_in_a_gap_is_a_regress_and_nothing_else(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, block_in_a_gap)
    assert facts([row], "check", "severity", "first_id", "last_id", "broker_id", "offset", "file") == [
        ("regress", "violation", 100, 109, 2, 28, "1/wal/0.wal")
    ]
    assert "came after IDs 330 to 339 of broker 2 at offset 27" in row["detail"]


@planted
def without_floor() -> QuorumTables:
    tables = three_members(sound())
    for row in tables.log:
        if row["offset"] == 11:
            row.update(record_type="LeaderChangeRecord", leader_id=1, next_producer_id=None)
    return tables


@planted
def with_other_floor() -> QuorumTables:
    tables = three_members(sound())
    for row in tables.log:
        if row["offset"] == 11:
            row.update(next_producer_id=199)
    return tables


@pytest.mark.parametrize("plant", [without_floor, with_other_floor])
def test_a_gap_without_its_record_is_a_warning(judged: dict[Plant, list[Row]], plant: Plant) -> None:
    (row,) = found(judged, plant)
    assert facts([row], "check", "severity", "first_id", "last_id", "offset") == [("gap", "warning", 80, 199, 12)]
    assert "no record between offsets 10 and 12 explains it" in row["detail"]


@planted
def log_that_begins_behind_the_gap() -> QuorumTables:
    tables = three_members(sound())
    tables.log = [row for row in tables.log if row["offset"] > 11]
    return tables


def test_a_gap_whose_log_is_gone_says_so(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, log_that_begins_behind_the_gap)
    assert (row["check"], row["severity"], row["first_id"]) == ("gap", "warning", 80)
    assert "the log that could explain it is gone" in row["detail"]


def from_zookeeper() -> History:
    """Nobody has IDs 0 to 4999, and the logs begin at the record that says why."""
    history = History(1, 2)
    history.jump(5000, zookeeper=True)
    for _ in range(6):
        history.allocate(1)
    return history


@planted
def block_of_zookeeper() -> QuorumTables:
    return three_members(from_zookeeper())


def test_what_zookeeper_handed_out_is_explained_by_its_record(judged: dict[Plant, list[Row]]) -> None:
    (row,) = [row for row in judged[block_of_zookeeper] if row["check"] == "gap"]
    assert (row["severity"], row["first_id"], row["last_id"]) == ("note", 0, 4999)
    assert "explained: ZooKeeperBlockRecord at offset 3" in row["detail"]


def test_what_zookeeper_handed_out_is_not_explained_by_nothing(judged: dict[Plant, list[Row]]) -> None:
    assert PLANTED[0] is nothing_that_tells_of_zookeeper
    rows = found(judged, nothing_that_tells_of_zookeeper, "gap")
    assert facts(rows, "severity", "first_id", "last_id") == [("warning", 0, 4999)]


def migration_in_the_log() -> QuorumTables:
    """The record of ZooKeeper's block is gone, that of the migration is not."""
    history = from_zookeeper()
    history.add("MigrationRecord", phase="IMPORT", claimed_by="q", znode_version=4)
    tables = three_members(history)
    tables.log = [row for row in tables.log if row["record_type"] != "ZooKeeperBlockRecord"]
    return tables


def migration_in_the_snapshots() -> QuorumTables:
    tables = nothing_that_tells_of_zookeeper()
    for row in tables.snapshots:
        row["phase"] = "FINALIZED"
    return tables


@pytest.mark.parametrize("plant", [migration_in_the_log, migration_in_the_snapshots])
def test_what_zookeeper_handed_out_is_explained_by_the_migration(cuts: tuple[int, ...], plant: Plant) -> None:
    (row,) = of(run(plant(), cuts=cuts), "gap")
    assert (row["severity"], row["first_id"], row["last_id"]) == ("note", 0, 4999)
    assert "explained: the quorum came from ZooKeeper" in row["detail"]


DISAGREE = "replicas_disagree"


@planted
def copy_of_another_owner() -> QuorumTables:
    tables = three_members(sound())
    tables.change(5, "2", broker_id=9)
    return tables


def test_a_copy_that_names_another_owner_disagrees(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, copy_of_another_owner)
    assert facts([row], "check", "severity", "offset", "member", "broker_id", "file") == [
        (DISAGREE, "violation", 5, "2", 9, "2/archive/0-18.arc")
    ]
    assert "but 1 copies of 1 members say: IDs 20 to 29 of broker 1 at offset 5" in row["detail"]


@planted
def archive_and_log_that_differ() -> QuorumTables:
    tables = three_members(sound())
    (row,) = [row for row in tables.blocks if (row["member"], row["offset"]) == ("2", 17)]
    row["last_id"] = 248
    return tables


def test_archive_and_log_of_one_member_disagree(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, archive_and_log_that_differ)
    assert facts([row], "check", "offset", "member", "last_id", "file") == [
        (DISAGREE, 17, "2", 248, "2/archive/0-18.arc")
    ]


@planted
def archive_without_a_block() -> QuorumTables:
    tables = three_members(sound())
    tables.blocks = [row for row in tables.blocks if (row["member"], row["offset"]) != ("2", 5)]
    return tables


def test_an_archive_without_a_block_of_its_offsets_disagrees(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, archive_without_a_block)
    assert facts([row], "check", "offset", "member", "first_id", "file") == [
        (DISAGREE, 5, "2", 20, "2/archive/0-18.arc")
    ]
    assert "member 2 has no block in the archive there" in row["detail"]


@planted
def other_record_in_a_log() -> QuorumTables:
    tables = three_members(sound())
    tables.change(20, "2", record_type="LeaderChangeRecord", first_id=None, last_id=None, broker_id=None)
    return tables


def test_a_log_with_another_record_at_the_offset_of_a_block_disagrees(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, other_record_in_a_log)
    assert facts([row], "check", "offset", "member", "first_id") == [(DISAGREE, 20, "2", 270)]
    assert "member 2 has LeaderChangeRecord there" in row["detail"]


def entry_of_member_3(**columns: Any) -> QuorumTables:
    tables = three_members(sound())
    (row,) = [row for row in tables.log if (row["member"], row["offset"]) == ("3", 23)]
    row.update(columns)
    return tables


@planted
def entry_of_another_term() -> QuorumTables:
    return entry_of_member_3(term=1)


@planted
def entry_of_another_leader() -> QuorumTables:
    return entry_of_member_3(leader_id=7)


@pytest.mark.parametrize("plant", [entry_of_another_term, entry_of_another_leader])
def test_entries_of_one_index_that_differ_disagree(judged: dict[Plant, list[Row]], plant: Plant) -> None:
    (row,) = found(judged, plant)
    assert facts([row], "check", "severity", "subject", "offset", "member", "position") == [
        (DISAGREE, "violation", "log index 24, member 3", 23, "3", 4096 + 64 * 23)
    ]


@planted
def other_entry_that_is_not_committed() -> QuorumTables:
    tables = three_members(sound())
    (row,) = [row for row in tables.log if (row["member"], row["offset"]) == ("3", 26)]
    row.update(committed=False, broker_id=7, first_id=0, last_id=900)
    return tables


def test_what_is_not_committed_may_differ(judged: dict[Plant, list[Row]]) -> None:
    assert found(judged, other_entry_that_is_not_committed) == []


@planted
def epoch_that_falls() -> QuorumTables:
    tables = three_members(sound())
    tables.log = [row for row in tables.log if row["offset"] != 16]
    tables.change(21, broker_epoch=1)
    return tables


def test_an_epoch_that_falls_is_found_without_registrations(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, epoch_that_falls)
    assert facts([row], "check", "severity", "subject", "broker_id", "offset") == [
        ("epoch_regress", "violation", "broker 1, epoch 1", 1, 21)
    ]


@planted
def block_of_an_ended_registration() -> QuorumTables:
    tables = three_members(sound())
    tables.change(17, broker_epoch=1)
    return tables


def test_a_block_of_an_ended_registration_is_stale(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, block_of_an_ended_registration)
    assert facts([row], "check", "severity", "broker_id", "offset") == [("stale_epoch", "violation", 1, 17)]
    assert row["detail"].endswith("for epoch 1, but the broker had registered anew with epoch 16")


@planted
def impossible_epoch_without_a_log() -> QuorumTables:
    tables = three_members(sound())
    tables.log = []
    tables.change(15, broker_epoch=15)
    return tables


def test_an_impossible_epoch_needs_no_registrations(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, impossible_epoch_without_a_log, "stale_epoch")
    assert facts([row], "subject", "offset") == [("broker 2, epoch 15", 15)]


@planted
def epoch_above_the_block() -> QuorumTables:
    tables = three_members(sound())
    tables.change(26, broker_epoch=26)
    return tables


def test_an_epoch_above_the_block_is_impossible(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, epoch_above_the_block)
    assert facts([row], "check", "subject", "offset") == [("stale_epoch", "broker 1, epoch 26", 26)]


@planted
def offset_that_nobody_holds() -> QuorumTables:
    tables = QuorumTables()
    for member in "123":
        tables.add_member(sound(), member, [(0, 9), (10, 18)], (17, 28))
    return tables


def test_offsets_that_nobody_holds_are_missing(judged: dict[Plant, list[Row]]) -> None:
    rows = found(judged, offset_that_nobody_holds, "coverage", "overlap", DISAGREE)
    assert facts(rows, "check", "severity", "subject", "offset") == [("coverage", "violation", "offset 9", 9)]
    assert rows[0]["detail"] == "missing: no one of 3 members holds offset 9"


def test_offsets_that_the_only_member_given_lacks_are_a_warning(cuts: tuple[int, ...]) -> None:
    alone = QuorumTables()
    alone.add_member(sound(), "1", [(0, 9), (10, 18)])
    rows = of(run(alone, cuts=cuts), "coverage")
    assert facts(rows, "severity", "subject") == [("warning", "offset 9")]


@planted
def offsets_that_one_member_holds() -> QuorumTables:
    tables = QuorumTables()
    tables.add_member(sound(), "1", [(0, 18)], (17, 28))
    for member in "23":
        tables.add_member(sound(), member, [(0, 9), (12, 18)], (17, 28))
    return tables


def test_what_only_one_member_holds_is_a_warning(judged: dict[Plant, list[Row]]) -> None:
    rows = found(judged, offsets_that_one_member_holds, "coverage")
    assert facts(rows, "severity", "member", "offset", "detail") == [
        ("warning", member, 9, f"member {member} lacks offsets 9 to 11; only member 1 holds them all")
        for member in "23"
    ]


@planted
def archive_files_that_overlap() -> QuorumTables:
    tables = three_members(sound())
    tables.add_archive(sound(), "1", 7, 12)
    tables.files.append(tables.files[0] | {"file": "1/archive/0-3.arc", "to_offset": 3, "rows": 0, "superseded": True})
    return tables


def test_archive_files_that_overlap_are_named_and_a_superseded_one_is_not(judged: dict[Plant, list[Row]]) -> None:
    rows = found(judged, archive_files_that_overlap, "coverage", DISAGREE)
    assert facts(rows, "file", "subject") == [
        ("1/archive/7-12.arc", "member 1, offsets 7 to 8"),
        ("1/archive/9-18.arc", "member 1, offsets 9 to 11"),
    ]


@planted
def damaged_archive_file() -> QuorumTables:
    tables = three_members(sound())
    tables.blocks = [row for row in tables.blocks if row["member"] != "2"]
    return tables


def test_a_damaged_archive_file_is_not_taken_for_an_empty_one(judged: dict[Plant, list[Row]]) -> None:
    rows = [row for row in judged[damaged_archive_file] if row["check"] in {DISAGREE, "coverage"}]
    assert facts(rows, "severity", "subject") == [
        ("note", "member 3, offset 27"),
        ("warning", "member 2, offsets 0 to 15"),
        ("warning", "member 3, offsets 4 to 8"),
    ]


BEHIND = "snapshot_behind"


@planted
def snapshot_below_a_block() -> QuorumTables:
    tables = three_members(sound())
    for row in tables.snapshots:
        row["next_producer_id"] = 249
    return tables


def test_a_snapshot_below_a_block_that_it_covers(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, snapshot_below_a_block)
    assert row["file"] == "1/snapshots/18.snap"
    assert facts([row], "check", "severity", "subject", "first_id", "last_id", "offset") == [
        (BEHIND, "violation", "snapshot at index 18", 249, 249, 18)
    ]


@planted
def blocks_of_one_entry() -> QuorumTables:
    tables = QuorumTables()
    tables.add_member(sound(), "1", [], (0, 28))
    for row in tables.log:
        row["position"] = min(row["position"], 4096 + 64 * 24)
    tables.change(26, first_id=319)
    for row in (snapshot(sound(), "1", 27), snapshot(sound(), "1", 28)):
        tables.snapshots.append(row | {"next_producer_id": 325})
    return tables


def test_blocks_of_one_log_entry_are_told_apart(judged: dict[Plant, list[Row]]) -> None:
    """A batch of requests is one entry, so all of its blocks stand at one byte of the log."""
    rows = found(judged, blocks_of_one_entry, "overlap", BEHIND)
    assert facts(rows, "check", "subject", "offset") == [
        ("overlap", "ID 319", 26),
        (BEHIND, "snapshot at index 27", 27),
        (BEHIND, "snapshot at index 28", 28),
    ]
    details = sorted(row["detail"] for row in rows)
    assert "IDs 310 to 319 of broker 2 at offset 25" in details[0]
    assert "IDs 319 to 329 of broker 1 at offset 26" in details[0]
    assert "before offset 27 came IDs 319 to 329" in details[1]
    assert "before offset 28 came IDs 330 to 339" in details[2]


@planted
def snapshot_far_behind() -> QuorumTables:
    """Offsets are cut into ranges of 2^16; the block lies two of them below the snapshot, and lower ones between."""
    tables = QuorumTables()
    place = {"member": "1", "cluster_id": "c", "file": "1/archive/all.arc", "position": 128}
    for offset, first_id in ((5, 900), (70_000, 100), (140_000, 200)):
        ids = {"first_id": first_id, "last_id": first_id + 9, "offset": offset}
        tables.blocks.append(place | ids | {"broker_id": 1, "broker_epoch": 0, "timestamp_ms": START_MS})
    state = {"member": "1", "file": "1/snapshots/9.snap", "index": 9, "next_offset": 140_001}
    tables.snapshots = [state | {"next_producer_id": next_id} for next_id in (909, 910)]
    tables.snapshots[1].update(index=10, file="1/snapshots/10.snap")
    return tables


def test_a_snapshot_far_behind_the_block_that_it_forgot(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, snapshot_far_behind, BEHIND)
    assert facts([row], "file", "first_id", "last_id") == [("1/snapshots/9.snap", 909, 909)]
    assert "before offset 140001 came IDs 900 to 909" in row["detail"]


@planted
def snapshot_below_a_block_after_it() -> QuorumTables:
    tables = three_members(sound())
    tables.change(18, first_id=250, last_id=259)
    for row in tables.snapshots:
        assert row["next_producer_id"] == 250
    return tables


def test_a_snapshot_counts_no_block_after_it(judged: dict[Plant, list[Row]]) -> None:
    assert found(judged, snapshot_below_a_block_after_it) == []


@planted
def snapshot_that_differs() -> QuorumTables:
    tables = three_members(sound())
    tables.snapshots[1]["brokers"] = 3
    return tables


def test_a_snapshot_of_one_member_that_differs(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, snapshot_that_differs)
    assert facts([row], "check", "severity", "subject", "member", "file") == [
        (BEHIND, "violation", "snapshot at index 18", "2", "2/snapshots/18.snap")
    ]
    assert '"brokers":3' in row["detail"]


@planted
def next_id_that_falls() -> QuorumTables:
    tables = three_members(sound())
    first = tables.snapshots[0]
    newer = {"file": "1/snapshots/20.snap", "index": 20, "next_offset": 20, "next_producer_id": 290}
    last = {"file": "1/snapshots/22.snap", "index": 22, "next_offset": 22, "next_producer_id": 289}
    tables.snapshots += [first | newer, first | last]
    tables.log = [row for row in tables.log if row["offset"] < 20]
    return tables


def test_a_next_id_that_falls_with_a_newer_snapshot(judged: dict[Plant, list[Row]]) -> None:
    (row,) = found(judged, next_id_that_falls, BEHIND)
    assert facts([row], "subject", "first_id", "last_id", "file") == [
        ("snapshot at index 22", 289, 289, "1/snapshots/22.snap")
    ]


def test_rates_are_compared_with_the_limits_given(cuts: tuple[int, ...]) -> None:
    history = History(1, 2, 3)
    for number in range(12):
        history.allocate(1, timestamp_ms=START_MS + number)
    history.allocate(2, timestamp_ms=START_MS + 50_000)
    history.allocate(3, timestamp_ms=START_MS + 86_400_000)
    tables = three_members(history)

    def rates(limits: Limits) -> list[Row]:
        return of(run(tables, limits, cuts), "storm", "burn_down", "quota")

    rows = rates(
        Limits(
            storm_blocks_per_minute=11, storm_least_blocks=50, quota_per_second=100, quota_burst=12, horizon_days=2**62
        )
    )
    assert facts(rows, "check", "severity", "broker_id") == [
        ("burn_down", "warning", None),
        ("quota", "warning", 1),
        ("storm", "warning", 1),
    ]
    by_check = {row["check"]: row["detail"] for row in rows}
    assert "took 12 blocks, 12 of them within one minute; the others took 1.0 on average" in by_check["storm"]
    assert "had used 11 of the burst of 12 blocks of its quota, 100 blocks a second" in by_check["quota"]
    assert "140 a day go on the last day and 140 over the whole span" in by_check["burn_down"]
    ratio = rates(Limits(storm_least_blocks=12, quota_per_second=100, quota_burst=13))
    assert facts(ratio, "check", "severity") == [("burn_down", "note"), ("storm", "warning")]
    calm = rates(Limits(storm_least_blocks=13, quota_per_second=1000, quota_burst=12))
    assert facts(calm, "check") == [("burn_down",)]


def test_a_minute_of_a_storm_is_sixty_seconds(cuts: tuple[int, ...]) -> None:
    history = History(1, 2)
    for number in range(3):
        history.allocate(1, timestamp_ms=START_MS + number * 59_999)
        history.allocate(2, timestamp_ms=START_MS + number * 60_000)
    (row,) = of(run(three_members(history), Limits(storm_blocks_per_minute=1), cuts), "storm")
    assert row["detail"].startswith("broker 1 took 3 blocks, 2 of them within one minute;")


def test_the_date_of_exhaustion_is_given_when_it_is_near(cuts: tuple[int, ...]) -> None:
    history = History(1)
    history.allocate(1, timestamp_ms=START_MS)
    history.next_id = 2**63 - 1 - 100
    history.allocate(1, timestamp_ms=START_MS + 86_400_000)
    (row,) = of(run(three_members(history), cuts=cuts), "burn_down")
    assert (row["severity"], row["subject"]) == ("warning", "90 IDs left")
    assert row["detail"].endswith("none is left on 2023-11-20")


def test_a_rate_of_half_of_all_ids_a_day_is_one(cuts: tuple[int, ...]) -> None:
    history = History(1)
    history.allocate(1, 2**62, timestamp_ms=START_MS)
    history.allocate(1, timestamp_ms=START_MS + 86_400_000)
    (row,) = of(run(three_members(history), cuts=cuts), "burn_down")
    assert row["detail"].endswith("4,611,686,018,427,387,904 over the whole span: none is left on 2023-11-16")


def test_times_that_no_clock_shows_make_no_rate(cuts: tuple[int, ...]) -> None:
    history = History(1)
    for _ in range(3):
        history.allocate(1, timestamp_ms=2**62)
    assert of(run(three_members(history), cuts=cuts), "burn_down") == []


def test_a_rate_of_next_to_nothing_is_one(cuts: tuple[int, ...]) -> None:
    history = History(1)
    history.allocate(1, 1, timestamp_ms=START_MS)
    history.allocate(1, 1, timestamp_ms=LATEST_MS)
    (row,) = of(run(three_members(history), cuts=cuts), "burn_down")
    assert row["detail"].endswith("in 25,252,216,391,115,060 years")
