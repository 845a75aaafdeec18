"""The verdict in figures, on small files of a quorum that worked as it should and of a broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from pidkeeper.pipeline import summary
from pidkeeper.pipeline.audit import AuditOptions, Outcome, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum import conclusions
from pidkeeper.pipeline.segments import conclude as segments
from pidkeeper.protocol.messages import AllocatedBlock
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles
from tests.support.segment_builder import batch
from tests.support.sound_quorum import ARCHIVED, END, FIRST_BLOCK, IDS, LOG_FROM, block, snapshot, write_quorum


def audit(tmp_path: Path) -> Outcome:
    kafka = [str(tmp_path / "kafka")] if (tmp_path / "kafka").exists() else []
    data = [str(tmp_path / "data")] if (tmp_path / "data").exists() else []
    return look(LocalEngine(), AuditOptions(AuditPaths(data, kafka), locate(tmp_path / "out")))


def write_segment(tmp_path: Path, topic: str, *batches: bytes) -> Path:
    path = tmp_path / "kafka" / f"{topic}-0" / f"{0:020d}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(batches))
    return path


def lose_all_but_logs(members: list[MemberFiles]) -> None:
    """Then nothing tells the offsets of what logs have: they do not begin with the first record."""
    for member in members:
        for folder in ("archive", "snapshots"):
            shutil.rmtree(member.path / folder, ignore_errors=True)


def test_nothing_wrong_in_all_there_is_is_clean(tmp_path: Path) -> None:
    write_quorum(tmp_path / "data")
    verdict = audit(tmp_path).verdict
    assert (verdict.verdict, verdict.violations, verdict.warnings, verdict.coverage.unseen) == ("clean", 0, 0, [])
    assert (verdict.coverage.members, verdict.coverage.voters) == (["1", "2", "3"], 3)
    assert (verdict.coverage.from_offset, verdict.coverage.to_offset) == (0, END)
    assert (verdict.blocks, verdict.ids) == (END - FIRST_BLOCK, IDS * (END - FIRST_BLOCK))
    assert (verdict.brokers, verdict.highest_id, verdict.files_bad) == (2, block(END - 1).last, 0)
    assert (
        verdict.files_read
        == verdict.files_read_anew
        == len([path for path in (tmp_path / "data").rglob("*.*") if path.name != "meta.json"])
    )


def test_what_was_not_seen_makes_it_incomplete_and_a_violation_says_more(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data", (1, 3))
    verdict = audit(tmp_path).verdict
    assert (verdict.verdict, verdict.coverage.unseen) == ("incomplete", ["nothing was read of voter 2"])

    def give_twice(rows: list[AllocatedBlock]) -> None:
        rows[5] = msgspec.structs.replace(rows[5], first=rows[4].first)

    for member in members:
        edit_archive(member.found("archive")[0], give_twice)
    verdict = audit(tmp_path).verdict
    assert (verdict.verdict, verdict.violations) == ("violations", 1)
    assert verdict.checks["overlap"].violations == 1
    assert verdict.coverage.unseen[-1] == "nothing was read of voter 2"


def test_what_only_a_snapshot_tells_of_is_not_seen(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")
    for member in members:
        snapshot(member, END + 10)
    (told,) = audit(tmp_path).verdict.coverage.unseen
    assert told == f"log offsets {END} to {END + 9} are in no file"


def test_the_checks_that_ran_are_named_and_no_others(tmp_path: Path) -> None:
    write_quorum(tmp_path / "data")
    assert list(audit(tmp_path).verdict.checks) == [*conclusions.CHECKS, "files"]
    write_segment(tmp_path, "orders", batch(0))
    assert list(audit(tmp_path).verdict.checks) == [*conclusions.CHECKS, *segments.CHECKS, "files"]
    shutil.rmtree(tmp_path / "data")
    assert list(audit(tmp_path).verdict.checks) == [*segments.CHECKS, "files"]


def test_the_counts_of_checks_are_those_of_the_findings(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data", (1, 2))
    members[0].found("archive")[0].write_bytes(b"PIDARCH1")
    (members[1].path / "archive" / "notes.arc").write_bytes(b"")
    outcome = audit(tmp_path)
    rows = outcome.tables["findings"].to_pylist()
    counted = {
        (name, severity): getattr(count, f"{severity}s")
        for name, count in outcome.verdict.checks.items()
        for severity in ("violation", "warning", "note")
    }
    assert counted == {
        (name, severity): sum((row["check"], row["severity"]) == (name, severity) for row in rows)
        for name, severity in counted
    }
    assert sum(counted.values()) == len(rows)
    verdict = outcome.verdict
    assert (verdict.checks["files"].warnings, verdict.files_bad) == (2, 2)
    assert "2 files could not be read, or not wholly" in verdict.coverage.unseen


# Figures.


def test_blocks_of_two_versions_both_count_and_their_ids_reach_farther(tmp_path: Path) -> None:
    """The IDs are counted by what most members have; the highest is the highest of all."""
    members = write_quorum(tmp_path / "data")
    before = audit(tmp_path).verdict

    def leap(rows: list[AllocatedBlock]) -> None:
        rows[-1] = msgspec.structs.replace(rows[-1], first=70_000, last=70_099)

    edit_archive(members[2].found("archive")[0], leap)
    after = audit(tmp_path).verdict
    assert (after.blocks, after.ids, after.highest_id) == (before.blocks + 1, before.ids, 70_099)


def test_blocks_whose_offset_no_log_tells_count_as_any_other(tmp_path: Path) -> None:
    lose_all_but_logs(write_quorum(tmp_path / "data"))
    outcome = audit(tmp_path)
    verdict = outcome.verdict
    first = min(row["first_id"] for row in outcome.tables["blocks_adrift"].to_pylist())
    assert first <= block(LOG_FROM).first
    count = (block(END - 1).last + 1 - first) // IDS
    assert (verdict.blocks, verdict.ids) == (count, IDS * count)
    assert (verdict.brokers, verdict.highest_id) == (2, block(END - 1).last)
    assert (verdict.first_ms, verdict.last_ms) == (block(END - count).timestamp_ms, block(END - 1).timestamp_ms)
    assert verdict.verdict == "incomplete"
    (row,) = [row for row in outcome.tables["findings"].to_pylist() if row["check"] == "burn_down"]
    assert (row["first_id"], row["timestamp_ms"]) == (block(END - 1).last + 1, block(END - 1).timestamp_ms)
    assert row["detail"].startswith(
        f"{2**63 - 1 - block(END - 1).last - 1:,} IDs are left; 443,077 a day go on the last day"
    )


def test_ids_of_blocks_whose_offset_no_log_tells_were_allocated(tmp_path: Path) -> None:
    """A batch of a producer with such an ID is lawful, and one with an ID above all of them is not.

    Alone, and beside archives that end below them.
    """
    members = write_quorum(tmp_path / "data")
    highest = block(END - 1).last
    write_segment(tmp_path, "orders", batch(0, producer=(highest, 0, 0)), batch(1, producer=(highest + 1, 0, 0)))
    whole = audit(tmp_path).tables["findings"].to_pylist()
    for member in members:
        shutil.rmtree(member.path / "snapshots")
    archives_and_logs = audit(tmp_path)
    assert archives_and_logs.tables["blocks_adrift"].num_rows > 0
    lose_all_but_logs(members)
    logs_alone = audit(tmp_path).tables["findings"].to_pylist()
    for rows in (whole, archives_and_logs.tables["findings"].to_pylist(), logs_alone):
        named = {row["first_id"] for row in rows if row["check"] in segments.CHECKS and row["severity"] == "violation"}
        assert named == {highest + 1}


def test_the_times_are_those_of_blocks_and_batches_that_have_one(tmp_path: Path) -> None:
    write_quorum(tmp_path / "data")
    late = block(END - 1).timestamp_ms + 5
    write_segment(tmp_path, "orders", batch(0, base_timestamp=-1, max_timestamp=-1), batch(1, base_timestamp=late))
    verdict = audit(tmp_path).verdict
    assert (verdict.first_ms, verdict.last_ms) == (block(FIRST_BLOCK).timestamp_ms, late)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "kafka")
    write_segment(tmp_path, "orders", batch(0, base_timestamp=-1, max_timestamp=-1))
    verdict = audit(tmp_path).verdict
    assert (verdict.batches, verdict.first_ms, verdict.last_ms) == (1, None, None)
    assert (verdict.blocks, verdict.ids, verdict.highest_id) == (0, 0, None)


def test_how_far_it_saw_is_told_by_member_and_partition(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")
    shutil.rmtree(members[1].path / "wal")
    write_segment(tmp_path, "orders", batch(0), batch(1, [b"a", b"b"]))
    write_segment(tmp_path, "users", batch(0))
    watermark = audit(tmp_path).verdict.watermark
    assert watermark.log_offsets == {"1": END, "2": ARCHIVED[-1], "3": END}
    assert watermark.partition_offsets == {"orders-0": 2, "users-0": 0}
    assert watermark.partitions == 2


def test_of_many_bad_files_and_partitions_the_first_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "MAX_NAMED_BAD_FILES", 2)
    monkeypatch.setattr(summary, "MAX_NAMED_PARTITIONS", 3)
    paths = [write_segment(tmp_path, f"topic{number}", batch(0), b"damage") for number in range(5)]
    verdict = audit(tmp_path).verdict
    assert [bad.file for bad in verdict.bad_files] == [str(path) for path in paths[:2]]
    assert (verdict.files_bad, verdict.watermark.partitions) == (5, 5)
    assert list(verdict.watermark.partition_offsets) == ["topic0-0", "topic1-0", "topic2-0"]


def test_a_snapshot_cut_short_is_no_legal_end(tmp_path: Path) -> None:
    for member in write_quorum(tmp_path / "data"):
        (path,) = member.found("snapshots")
        path.write_bytes(path.read_bytes()[:50])
    verdict = audit(tmp_path).verdict
    assert (verdict.verdict, verdict.checks["files"].warnings) == ("incomplete", 3)
    assert {bad.kinds for bad in verdict.bad_files} == {"torn"}
