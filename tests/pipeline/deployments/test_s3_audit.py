"""An audit of files in a bucket of S3, with its outputs and its memory beside them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pidkeeper.pipeline.audit import AuditOptions, draw_again, look, run_audit
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.finding import find_files
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.owner import find_owner
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.verdict import read_verdict
from tests.pipeline.log_faults import FAULTS, found_in, options, write_fault
from tests.pipeline.member_faults import CASES, Case, expected, findings_of, write_case
from tests.pipeline.small_audits import SEGMENTS, comparable, grow, rows, table, write_files
from tests.support.s3 import BUCKET, S3


def test_an_audit_of_a_bucket_is_that_of_the_same_files_here(engine: Engine, bucket: S3, tmp_path: Path) -> None:
    members = write_files(tmp_path)
    bucket.put(tmp_path / "data", "data")
    bucket.put(tmp_path / "kafka", "kafka")
    root = f"s3://{BUCKET}"
    there = AuditPaths([f"{root}/data/*{bucket.query}"], [f"{root}/kafka{bucket.query}"])
    here = AuditPaths([str(tmp_path / "data")], [str(tmp_path / "kafka")])
    out = locate(f"{root}/out{bucket.query}")
    first = run_audit(engine, AuditOptions(there, out))
    assert [bad.file for bad in first.bad_files] == [f"{root}/kafka/torn-0/{100:020d}.log"]

    bucket.put(tmp_path / (name := grow(tmp_path)), name)
    second = run_audit(engine, AuditOptions(there, out))
    expected_here = run_audit(LocalEngine(), AuditOptions(here, locate(tmp_path / "out")))
    assert second.batches == first.batches + 1
    assert first.files_read_anew - second.files_read_anew == 2 * len(members) + len(SEGMENTS) - 1
    assert comparable(second, root) == comparable(expected_here, str(tmp_path))
    assert rows(out, root) == rows(locate(tmp_path / "out"), str(tmp_path))

    assert read_verdict(out) == second
    blocks = find_owner(out, 305).blocks
    assert blocks == find_owner(locate(tmp_path / "out"), 305).blocks
    assert [(block.first_id, block.members) for block in blocks] == [(300, 3)]
    assert out.names() == ["blocks", "commits", "producers", "report.html", "runs", "verdict.json"]
    unfinished = re.compile(r"/\.")
    assert not [one.location for one in find_files(root + bucket.query, "") if unfinished.search(one.location.path)]
    page = (out / "report.html").read()
    (out / "report.html").write(b"")
    assert draw_again(out) == second
    assert (out / "report.html").read() == page


@pytest.mark.parametrize("case", CASES[::7], ids=lambda case: case.name)
def test_a_fault_is_told(engine: Engine, bucket: S3, tmp_path: Path, case: Case) -> None:
    write_case(tmp_path / "data", case)
    where = f"faults/{CASES.index(case)}"
    bucket.put(tmp_path / "data", where)
    root = f"s3://{BUCKET}/{where}"
    # S3 has no empty directories.
    empty = case.fault == "nothing there" and case.of_all
    out = locate(f"s3://{BUCKET}/told/{where}{bucket.query}")
    verdict = run_audit(
        engine, AuditOptions(AuditPaths([f"{root}/*{bucket.query}" if empty else root + bucket.query]), out)
    )
    said = expected()[case.name]
    assert (verdict.verdict, verdict.coverage.unseen) == (said.verdict, said.unseen)
    assert findings_of(table(out, "findings"), root) == said.findings


@pytest.mark.parametrize("fault", ["nothing wrong", "an object that is gone", "an object of another producer"])
def test_a_store_in_a_bucket_is_that_of_the_same_files_here(bucket: S3, tmp_path: Path, fault: str) -> None:
    write_fault(tmp_path, FAULTS[fault])
    where = f"logs/{list(FAULTS).index(fault)}"
    bucket.put(tmp_path / "data", f"{where}/data")
    bucket.put(tmp_path / "store", f"{where}/store")
    root, query = f"s3://{BUCKET}/{where}", bucket.query
    there = AuditPaths([f"{root}/data{query}"], store=f"{root}/store{query}")
    first, second = (
        look(LocalEngine(), AuditOptions(paths, locate(tmp_path / out)))
        for paths, out in ((there, "out-there"), (options(tmp_path).paths, "out"))
    )
    assert first.verdict.verdict == second.verdict.verdict == FAULTS[fault].verdict
    told_there = [[text.replace(root, "") for text in one] for one in found_in(first)]
    assert told_there == [[text.replace(str(tmp_path), "") for text in one] for one in found_in(second)]
