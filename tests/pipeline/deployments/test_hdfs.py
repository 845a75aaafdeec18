"""An audit whose files, outputs and memory are on a real HDFS, all over HTTP."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pidkeeper.cli.main import cli
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline.audit import AuditOptions, draw_again, run_audit
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.ledger import Ledger
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.verdict import read_verdict
from pidkeeper.protocol.messages import AllocatedBlock
from tests.pipeline.member_faults import CASES, Case, expected, findings_of, write_case
from tests.pipeline.small_audits import SEGMENTS, comparable, grow, rows, table, write_files
from tests.support import hdfs
from tests.support.hdfs import SUPERUSER, Hdfs
from tests.support.member_files import CLUSTER, MemberFiles


@pytest.fixture(scope="module")
def dfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """With a directory of the user that runs the tests, and one that this user may not touch."""
    if (reason := hdfs.why_unavailable()) is not None:
        pytest.skip(reason)
    system = Hdfs(tmp_path_factory.mktemp("hdfs"))
    try:
        system.start()
        system.make("/audit", getpass.getuser(), 0o755)
        system.make("/locked", SUPERUSER, 0o700)
        yield system
    finally:
        system.close()


@pytest.fixture(autouse=True)
def _user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", getpass.getuser())


def test_an_audit_on_hdfs_is_that_of_the_same_files_here(engine: Engine, dfs: Hdfs, tmp_path: Path) -> None:
    members = write_files(tmp_path)
    dfs.put(tmp_path / "data", "/audit/data")
    dfs.put(tmp_path / "kafka", "/audit/kafka")
    web = f"{dfs.web}/audit"
    out = locate(f"{web}/out")
    there = AuditPaths([f"{web}/data/*"], [f"{web}/kafka"])
    here = AuditPaths([str(tmp_path / "data")], [str(tmp_path / "kafka")])

    local = run_audit(LocalEngine(), AuditOptions(here, locate(tmp_path / "out")))
    first = run_audit(engine, AuditOptions(there, out))
    assert comparable(first, web) == comparable(local, str(tmp_path))
    assert [bad.file for bad in first.bad_files] == [f"{web}/kafka/torn-0/{100:020d}.log"]
    assert rows(out, web) == rows(locate(tmp_path / "out"), str(tmp_path))

    dfs.put(tmp_path / (name := grow(tmp_path)), f"/audit/{name}")
    second = run_audit(engine, AuditOptions(there, out))
    assert second.batches == first.batches + 1
    assert first.files_read_anew - second.files_read_anew == 2 * len(members) + len(SEGMENTS) - 1
    assert read_verdict(out) == second
    assert dfs.names("/audit/out") == ["blocks", "commits", "producers", "report.html", "runs", "verdict.json"]

    page = (out / "report.html").read()
    (out / "report.html").write(b"")
    assert draw_again(out) == second
    assert (out / "report.html").read() == page


def ask(out: str | Path, producer_id: int) -> tuple[int, Any]:
    """The exit code and the answer of `pidkeeper audit owner`."""
    ran = CliRunner().invoke(cli, ["audit", "owner", str(producer_id), "--out", str(out), "-o", "json"])
    assert ran.stdout, ran.stderr
    return ran.exit_code, json.loads(ran.stdout)


def test_an_audit_on_hdfs_is_asked_for_owners(engine: Engine, dfs: Hdfs, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "data" / "1").archive((0, 5))
    second = MemberFiles(tmp_path / "data" / "2", 2)
    again = [AllocatedBlock(25, 34, 8, 3, 9, 1_700_000_000_000), AllocatedBlock(60, 69, 8, 3, 10, 1_701_000_000_000)]
    AllocationArchive(second.files, second.path / "archive", CLUSTER).append(again, 5, 11)
    paths = AuditPaths([str(tmp_path / "data")])
    found = run_audit(LocalEngine(), AuditOptions(paths, locate(tmp_path / "out")))
    assert found.checks["overlap"].violations > 0
    run_audit(engine, AuditOptions(paths, locate(f"{dfs.web}/audit/owned")))
    places = {12: "owned", 27: "owned_twice", 65: "owned", 55: "between", 70: "above"}
    for producer_id, place in places.items():
        told = ask(f"{dfs.web}/audit/owned", producer_id)
        assert told == ask(tmp_path / "out", producer_id)
        assert told[1]["place"] == place
    for where, reason in (("/audit/none", "there is no audit in"), ("/locked/out", "Permission denied")):
        ran = CliRunner().invoke(cli, ["audit", "owner", "5", "--out", f"{dfs.web}{where}"])
        assert (ran.exit_code, reason in ran.stderr) == (1, True), ran.output


def test_what_ends_an_audit_leaves_nothing_that_counts(engine: Engine, dfs: Hdfs, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").archive((0, 5))
    (tmp_path / "1" / "archive" / f"{5:020d}-{6:020d}.arc").write_bytes(b"PID")
    dfs.put(tmp_path / "1", "/audit/bad/1")
    paths = AuditPaths([f"{dfs.web}/audit/bad"])
    out = locate(f"{dfs.web}/audit/failed")
    with pytest.raises(LoadingError, match=re.escape(f"{dfs.web}/audit/bad/1/archive/{5:020d}-{6:020d}.arc, byte")):
        run_audit(engine, AuditOptions(paths, out, fail=True))
    assert Ledger(out).newest() is None


def test_a_directory_that_may_not_be_touched_is_named(engine: Engine, dfs: Hdfs, tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").archive((0, 5))
    locked = f"{dfs.web}/locked/out"
    with pytest.raises(OSError, match=f"{locked} cannot be written: .*Permission denied"):
        run_audit(engine, AuditOptions(AuditPaths([str(tmp_path)]), locate(locked)))
    for where, reason in ((f"{dfs.web}/locked/x", "Permission denied"), (f"{dfs.web}/none", "there is nothing at")):
        with pytest.raises(LoadingError, match=reason):
            run_audit(engine, AuditOptions(AuditPaths([where]), locate(tmp_path / "out")))


@pytest.mark.parametrize("case", CASES[3::7], ids=lambda case: case.name)
def test_a_fault_is_told(engine: Engine, dfs: Hdfs, tmp_path: Path, case: Case) -> None:
    write_case(tmp_path / "data", case)
    where = f"/audit/faults/{CASES.index(case)}"
    dfs.put(tmp_path / "data", where)
    out = locate(f"{dfs.web}/audit/told/{CASES.index(case)}")
    verdict = run_audit(engine, AuditOptions(AuditPaths([dfs.web + where]), out))
    said = expected()[case.name]
    assert (verdict.verdict, verdict.coverage.unseen) == (said.verdict, said.unseen)
    assert findings_of(table(out, "findings"), dfs.web + where) == said.findings
