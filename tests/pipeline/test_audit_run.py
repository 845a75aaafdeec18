"""A whole audit on small files: what it leaves, what bad files do, and that a kept state only saves work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pidkeeper.controller.storage.archive import MAX_SMALL_FILES, AllocationArchive
from pidkeeper.pipeline.audit import AuditError, AuditOptions, draw_again, run_audit
from pidkeeper.pipeline.checks import Checks
from pidkeeper.pipeline.owner import OwnerError, find_owner
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.verdict import CheckCount, Verdict, read_verdict
from pidkeeper.protocol.messages import AllocatedBlock
from tests.pipeline.stand_ins import overlap, repeated
from tests.support.member_files import CLUSTER, MemberFiles, block
from tests.support.segment_builder import START_MS, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKS = Checks((("overlap", overlap),), (("repeated", repeated),))
PRODUCER = 7


def write_segment(path: Path, sequences: list[int], *, torn: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = b"".join(
        batch(at, producer=(PRODUCER, 0, sequence), base_timestamp=START_MS + at)
        for at, sequence in enumerate(sequences)
    )
    path.write_bytes(whole[: len(whole) - torn])


def give_again(path: Path) -> None:
    """A member whose archive has a block of IDs that two others have."""
    member = MemberFiles(path, 2)
    archive = AllocationArchive(member.files, path / "archive", CLUSTER)
    archive.append([AllocatedBlock(25, 34, 8, 3, 9, block(9).timestamp_ms)], 5, 10)


def outcome(spark: SparkSession, out: Path, verdict: Verdict) -> list[Any]:
    """All that two audits of the same files must have in common."""
    same = msgspec.structs.replace(verdict, wall_seconds=0, files_read_anew=0)
    rows = [sorted(map(repr, tables.read(spark, out, name).drop("day").collect())) for name in tables.TABLES]
    return [same, *rows]


def test_a_clean_quorum_leaves_tables_verdict_and_report(spark: SparkSession, tmp_path: Path) -> None:
    for node in (1, 2):
        member = MemberFiles(tmp_path / "data" / str(node), node)
        member.archive((1, 40))
        member.log(60, 50)
        member.snapshot(40, 40)
    out = tmp_path / "out"
    verdict = run_audit(spark, AuditOptions(AuditPaths([str(tmp_path / "data")]), out), CHECKS)
    assert (verdict.verdict, verdict.blocks, verdict.ids, verdict.brokers) == ("clean", 49, 490, 1)
    assert verdict.checks == dict.fromkeys(("identity", "overlap"), CheckCount())
    assert verdict.files_bad == 0
    assert verdict.watermark.log_offsets == {"1": 50, "2": 50}
    assert (verdict.first_ms, verdict.last_ms) == (block(1).timestamp_ms, block(49).timestamp_ms)
    assert read_verdict(out) == verdict
    found = tables.read(spark, out, "blocks").orderBy("first_id").collect()
    assert [(row.first_id, row.last_id, row["offset"], row.broker_id, row.members) for row in found] == [
        (one.first, one.last, one.offset, one.broker_id, 2) for one in (block(offset) for offset in range(1, 50))
    ]
    assert {row.day for row in found} == {"2023-11-14"}
    report = (out / "report.html").read_text()
    (out / "report.html").unlink()
    assert draw_again(spark, out) == verdict
    assert (out / "report.html").read_text() == report
    assert sorted(path.name for path in out.iterdir()) == [*sorted(tables.TABLES), "report.html", "verdict.json"]


def test_a_block_given_twice_is_a_violation_and_bad_files_are_named(spark: SparkSession, tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5))
    give_again(tmp_path / "2")
    write_segment(tmp_path / "kafka" / "<b>-0" / f"{0:020d}.log", [0, 1, 1], torn=3)
    paths = AuditPaths([str(tmp_path / "1"), str(tmp_path / "2")], [str(tmp_path / "kafka")])
    verdict = run_audit(spark, AuditOptions(paths, tmp_path / "out"), CHECKS)
    assert verdict.verdict == "violations"
    assert verdict.checks["overlap"].violations == 2
    assert verdict.checks["repeated"].violations == 0
    assert (verdict.batches, verdict.files_bad, [bad.kinds for bad in verdict.bad_files]) == (2, 1, ["torn"])
    assert verdict.watermark.partition_offsets == {"<b>-0": 1}
    report = (tmp_path / "out" / "report.html").read_text()
    assert "<b>-0" not in report
    assert "&lt;b&gt;-0" in report
    with pytest.raises(LoadingError, match=re.escape(f"{0:020d}.log, byte")):
        run_audit(spark, AuditOptions(paths, tmp_path / "again", fail=True), CHECKS)
    with pytest.raises(LoadingError, match="nothing at"):
        run_audit(spark, AuditOptions(AuditPaths([str(tmp_path / "none")]), tmp_path / "again"), CHECKS)


def test_a_run_that_ends_while_it_writes_does_not_look_finished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemberFiles(tmp_path / "1").archive((0, 5))
    out = tmp_path / "out"
    out.mkdir()
    (out / "verdict.json").write_text("of an earlier run")

    def cut(path: Path, *rest: Any) -> None:
        (path / "blocks").mkdir()
        raise AuditError("cut")

    monkeypatch.setattr(tables, "write", cut)
    with pytest.raises(AuditError, match="cut"):
        run_audit(spark, AuditOptions(AuditPaths([str(tmp_path / "1")]), out), Checks((), ()))
    assert [path.name for path in out.iterdir()] == ["blocks"]
    with pytest.raises(OwnerError, match="did not come to its end"):
        find_owner(out, 5)


def test_a_second_run_reads_what_is_new_and_says_what_a_full_run_says(spark: SparkSession, tmp_path: Path) -> None:
    data, kafka = tmp_path / "data", tmp_path / "kafka"
    grown, settled, cleaned = (kafka / f"orders-{number}" / f"{0:020d}.log" for number in range(3))
    member = MemberFiles(data / "1")
    member.archive(*((start, start + 1) for start in range(MAX_SMALL_FILES)))
    member.log(40, 30)
    write_segment(grown, [0, 1, 2], torn=5)
    write_segment(settled, [0, 1])
    write_segment(cleaned, [0, 0, 1, 2])
    paths = AuditPaths([str(data)], [str(kafka)])
    state = tmp_path / "state"

    def audit(name: str, kept: Path | None) -> tuple[Verdict, list[Any]]:
        verdict = run_audit(spark, AuditOptions(paths, tmp_path / name, kept), CHECKS)
        return verdict, outcome(spark, tmp_path / name, verdict)

    first, before = audit("first", state)
    assert (first.files_read_anew, first.files_bad) == (MAX_SMALL_FILES + 3, 1)
    again, same = audit("again", state)
    assert again.files_read_anew == 0
    assert same == before
    # The archive is merged, one segment grows by what a producer sent twice, one is compacted, one goes.
    member.archive((MAX_SMALL_FILES, MAX_SMALL_FILES + 1))
    give_again(data / "2")
    write_segment(grown, [0, 1, 2, 2])
    settled.unlink()
    write_segment(cleaned, [0, 1, 2])
    second, found = audit("second", state)
    full, expected = audit("full", None)
    assert found == expected
    assert second.checks["repeated"].violations == 2
    assert second.checks["overlap"].violations > 0
    assert second.files_read_anew == full.files_read_anew == len(member.found("archive")) + 1 + 2
