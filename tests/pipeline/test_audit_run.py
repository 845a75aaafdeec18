"""A whole audit on small files: what it leaves, what bad files do, and that the ledger only saves work."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest

from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline import gathering
from pidkeeper.pipeline.audit import AuditOptions, draw_again, run_audit
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.ledger import Ledger, LedgerError
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.quorum import gathering as of_quorum
from pidkeeper.pipeline.verdict import read_verdict
from tests.pipeline.small_audits import SEGMENTS, comparable, grow, rows, table, write_files
from tests.support.sound_quorum import ARCHIVED, END, FIRST_BLOCK, block, blocks, write_member, write_quorum


def options(tmp_path: Path, out: str = "out", *, fail: bool = False) -> AuditOptions:
    paths = AuditPaths([str(tmp_path / "data")], [str(tmp_path / "kafka")] if (tmp_path / "kafka").exists() else [])
    return AuditOptions(paths, locate(tmp_path / out), fail=fail)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the files were large: each step is a job of its own, and the quorum's history is cut into shards."""
    monkeypatch.setattr(gathering, "SMALL_BYTES", 0)
    monkeypatch.setattr(of_quorum, "SHARD_ROWS", 30)
    monkeypatch.setattr(of_quorum, "TASK_SHARDS", 2)


def test_a_clean_quorum_leaves_tables_verdict_and_report(engine: Engine, tmp_path: Path) -> None:
    write_quorum(tmp_path / "data")
    out = locate(tmp_path / "out")
    verdict = run_audit(engine, options(tmp_path))
    count = END - FIRST_BLOCK
    assert (verdict.verdict, verdict.blocks, verdict.ids, verdict.brokers) == ("clean", count, 10 * count, 2)
    assert (verdict.violations, verdict.warnings, verdict.files_bad) == (0, 0, 0)
    assert verdict.watermark.log_offsets == {"1": END, "2": END, "3": END}
    assert (verdict.first_ms, verdict.last_ms) == (block(FIRST_BLOCK).timestamp_ms, block(END - 1).timestamp_ms)
    assert read_verdict(out) == verdict
    found = rows(out, "")["blocks"]
    assert len(found) == count
    assert all(f"'first_id': {one.first}, 'last_id': {one.last}" in "".join(found) for one in blocks(0, END))
    report = (tmp_path / "out" / "report.html").read_text()
    (tmp_path / "out" / "report.html").unlink()
    assert draw_again(out) == verdict
    assert (tmp_path / "out" / "report.html").read_text() == report
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == ["blocks", "commits", "report.html", "runs", "verdict.json"]


@pytest.mark.usefixtures("small_parts")
def test_both_engines_say_the_same_of_many_parts(engine: Engine, tmp_path: Path) -> None:
    write_files(tmp_path)
    here = run_audit(LocalEngine(), options(tmp_path, "here"))
    there = run_audit(engine, options(tmp_path, "there"))
    commit = Ledger(locate(tmp_path / "here")).newest()
    assert commit is not None and len(commit.shards) > 5
    assert here.batches > 0 and here.verdict == "violations"
    assert comparable(here, "") == comparable(there, "")
    assert rows(locate(tmp_path / "here"), str(tmp_path)) == rows(locate(tmp_path / "there"), str(tmp_path))


def test_many_parts_and_one_give_the_same(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    write_files(tmp_path)
    one = run_audit(LocalEngine(), options(tmp_path, "one"))
    request.getfixturevalue("small_parts")
    many = run_audit(LocalEngine(), options(tmp_path, "many"))
    assert comparable(one, "") == comparable(many, "")
    assert rows(locate(tmp_path / "one"), "") == rows(locate(tmp_path / "many"), "")


def test_bad_files_are_named_and_can_end_the_audit(tmp_path: Path) -> None:
    write_files(tmp_path)
    torn = tmp_path / "kafka" / "torn-0" / f"{100:020d}.log"
    (flipped,) = (tmp_path / "kafka" / "plain-0").glob("*.log")
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"?")
    verdict = run_audit(LocalEngine(), options(tmp_path))
    assert [(bad.file, bad.kinds) for bad in verdict.bad_files] == [(str(flipped), "bad_crc"), (str(torn), "torn")]
    assert (verdict.checks["files"].warnings, verdict.checks["files"].notes) == (1, 1)
    assert set(verdict.watermark.partition_offsets) == set(SEGMENTS)
    with pytest.raises(LoadingError, match=re.escape(f"{flipped}, byte ")):
        run_audit(LocalEngine(), options(tmp_path, "again", fail=True))
    assert Ledger(locate(tmp_path / "again")).newest() is None
    missing = AuditOptions(AuditPaths([str(tmp_path / "none")]), locate(tmp_path / "again"))
    with pytest.raises(LoadingError, match="nothing at"):
        run_audit(LocalEngine(), missing)


def test_what_a_topic_is_called_is_no_markup(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "kafka" / "plain-0").rename(tmp_path / "kafka" / "<b>-0")
    run_audit(LocalEngine(), options(tmp_path))
    report = (tmp_path / "out" / "report.html").read_text()
    assert "<b>-0" not in report
    assert "&lt;b&gt;" in report


@pytest.mark.usefixtures("small_parts")
def test_a_second_audit_reads_what_is_new_and_says_what_a_first_one_says(tmp_path: Path) -> None:
    members = write_files(tmp_path)
    first = run_audit(LocalEngine(), options(tmp_path))
    again = run_audit(LocalEngine(), options(tmp_path))
    assert comparable(again, "") == comparable(first, "")
    archives, kafka = 2 * len(members), len(SEGMENTS)
    assert first.files_read_anew - again.files_read_anew == archives + kafka
    # One segment of Kafka grows, and every member archives more.
    grow(tmp_path)
    for member in members:
        archive = AllocationArchive(member.files, member.path / "archive", member.meta.cluster_id)
        archive.append(blocks(ARCHIVED[-1], 80), ARCHIVED[-1], 80)
    second = run_audit(LocalEngine(), options(tmp_path))
    full = run_audit(LocalEngine(), options(tmp_path, "full"))
    assert comparable(second, "") == comparable(full, "")
    assert second.batches == first.batches + 1
    # The last shard but one ended where the archives did. Of the segments the one that grew is read on.
    assert full.files_read_anew - second.files_read_anew == archives + len(SEGMENTS) - 1
    kept, read = (table(locate(tmp_path / name), "blocks") for name in ("out", "full"))
    # Files that were merged or are gone keep their numbers.
    assert [row | {"place": 0} for row in kept] == [row | {"place": 0} for row in read]


def test_earlier_verdicts_stay(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")
    first = run_audit(LocalEngine(), options(tmp_path))
    shutil.rmtree(members[0].path)
    members[0].path.mkdir()
    second = run_audit(LocalEngine(), options(tmp_path))
    assert (first.verdict, second.verdict) == ("clean", "incomplete")
    assert second.checks["memory"].warnings == 1
    ledger = Ledger(locate(tmp_path / "out"))
    assert [ledger.commit(number).verdict for number in (1, 2)] == [first, second]
    assert msgspec.structs.asdict(read_verdict(ledger.place)) == msgspec.structs.asdict(second)


def test_a_ledger_is_of_one_cluster(tmp_path: Path) -> None:
    write_quorum(tmp_path / "data")
    run_audit(LocalEngine(), options(tmp_path))
    shutil.rmtree(tmp_path / "data")
    for node in (1, 2, 3):
        write_member(tmp_path / "data" / str(node), node, "cluster-b")
    with pytest.raises(
        LedgerError, match="has the audits of cluster cluster-a, and these are files of cluster-b: name"
    ):
        run_audit(LocalEngine(), options(tmp_path))
    commit = Ledger(locate(tmp_path / "out")).newest()
    assert commit is not None
    assert (commit.number, commit.cluster) == (1, "cluster-a")
