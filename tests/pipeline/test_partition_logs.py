"""Partition logs and their store: whole audits of what members and agents leave, and of what is wrong with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from pidkeeper.pipeline.audit import look, run_audit
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.engine.local import LocalEngine
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.log_faults import FAULTS, check_fault, found_in, objects, options, told, write_fault
from tests.pipeline.rolled_faults import ROLLED, check_random
from tests.support.log_state import FOUNDING
from tests.support.rolled_logs import BATCHES, ROLLED_OFFSETS

SAMPLE: Final = (
    "an entry that was never committed",
    "an ID of a later block",
    "bytes of another batch",
    "a transaction that is over",
    "a bit of an object",
    "rolled logs with nothing wrong",
    "a member that lags",
    "another sequence in a segment",
    "an abort that neighbours see otherwise",
)
"""Of `make audit-faults`, which has all."""
ALL: Final = FAULTS | ROLLED
SEEDS: Final = (3, 7)
"""Of histories with aborts across segments that were merged; `make audit-faults` has more."""
BY_COMMAND: Final = ("an object that is gone", "an object that nobody can read")
EXIT_CODES: Final = {"clean": 0, "violations": 5, "incomplete": 6}
COMMAND_SECONDS: Final = 120.0


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """Members and a store with nothing wrong."""
    write_fault(tmp_path, FAULTS["nothing wrong"])
    return tmp_path


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_told(tmp_path: Path, name: str) -> None:
    check_fault(tmp_path, ALL[name])


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_to_sound_logs_is_clean(tmp_path: Path, seed: int) -> None:
    check_random(tmp_path, seed)


@pytest.mark.parametrize("name", ["an object of another producer", "a batch left out of a segment"])
def test_spark_finds_the_same(engine: Engine, tmp_path: Path, name: str) -> None:
    write_fault(tmp_path, ALL[name])
    assert found_in(look(engine, options(tmp_path))) == found_in(look(LocalEngine(), options(tmp_path))) != []


@pytest.mark.parametrize("name", BY_COMMAND)
def test_a_fault_is_told_by_the_command(tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    write_fault(tmp_path, fault)
    ran = command(
        str(tmp_path / "data"), "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "-o", "json"
    )
    verdict = json.loads(ran.stdout)
    findings = told(pq.read_table(next((tmp_path / "out" / "runs").iterdir()) / "findings.parquet").to_pylist())
    assert (verdict["verdict"], ran.returncode) == (fault.verdict, EXIT_CODES[fault.verdict]), ran.stderr
    assert verdict["coverage"]["logs"]["objects"] == 6
    assert fault.check is None or any(check == fault.check and fault.part in detail for check, *_, detail in findings)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "objects of the store" in page
    assert fault.check is None or f"<b>{fault.check}</b>" in page


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pidkeeper.cli", "audit", "run", "--engine", "local", *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        cwd=REPOSITORY,
    )


def test_a_store_alone_is_nothing_to_audit(tmp_path: Path) -> None:
    ran = command("--segments", str(tmp_path), "--store", str(tmp_path), "--out", str(tmp_path / "out"))
    assert ran.returncode == 2
    assert "give their data directories too" in ran.stderr


def test_a_cluster_has_its_store_beside_it(sound: Path) -> None:
    members = [{"data_dir": f"data/{node}"} for node in (1, 2, 3)]
    (sound / "cluster.json").write_text(json.dumps({"controllers": members}))
    ran = command("--cluster", str(sound), "--out", str(sound / "out"))
    assert "12 batches of partition logs in 6 objects, of which 6 were read" in ran.stdout
    assert ran.returncode == 0, ran.stderr


def test_without_a_store_nothing_is_clean(sound: Path) -> None:
    outcome = look(LocalEngine(), options(sound, store=False))
    assert found_in(outcome) == []
    assert outcome.verdict.verdict == "incomplete"
    assert outcome.verdict.coverage.unseen == ["no store was given: 12 batches in 6 objects were not looked at"]


def test_segments_are_counted(tmp_path: Path) -> None:
    """Those that no log reads from are no fault: they are deleted in time."""
    write_fault(tmp_path, ROLLED["rolled logs with nothing wrong"])
    logs = look(LocalEngine(), options(tmp_path)).verdict.coverage.logs
    assert logs is not None
    assert (logs.segments, logs.segments_read, logs.segments_unnamed, logs.segment_batches) == (7, 7, 1, BATCHES)
    assert logs.offsets_rolled == logs.offsets_read == ROLLED_OFFSETS
    named = [f"{number:020}" for number in (0, 1, *range(3, 8))]
    files = [path for path in (tmp_path / "store" / "segments").rglob("*.*") if path.parts[-3] in named]
    assert logs.segment_bytes == sum(path.stat().st_size for path in files) > 0


def test_segments_without_a_store_are_not_looked_at(tmp_path: Path) -> None:
    write_fault(tmp_path, ROLLED["rolled logs with nothing wrong"])
    verdict = look(LocalEngine(), options(tmp_path, store=False)).verdict
    assert (verdict.verdict, verdict.violations) == ("incomplete", 0)
    assert f"no store was given: {ROLLED_OFFSETS} offsets in 7 segments were not looked at" in verdict.coverage.unseen


def test_a_segment_that_is_missing_is_looked_for_twice(tmp_path: Path) -> None:
    write_fault(tmp_path, ROLLED["rolled logs with nothing wrong"])
    first = next((tmp_path / "store" / "segments").rglob("*.log"))
    content, seen = first.read_bytes(), []

    def say(step: str) -> None:
        if step == "reading the store":
            seen.append(step)
            first.unlink() if len(seen) == 1 else first.write_bytes(content)

    assert look(LocalEngine(), options(tmp_path), say).verdict.verdict == "clean"


def test_without_a_state_to_begin_with_batches_are_not_looked_at(sound: Path) -> None:
    """The logs begin behind the snapshots that are lost: nobody knows where each partition log ended by then."""
    for node in (1, 2, 3):
        shutil.rmtree(sound / "data" / str(node) / "snapshots")
    verdict = look(LocalEngine(), options(sound)).verdict
    assert verdict.verdict == "incomplete"
    assert any("no file has the state of partition logs" in one for one in verdict.coverage.unseen)


def test_an_object_is_read_once(sound: Path) -> None:
    """What has the same length and time is not read again, but by `--anew`; what has another time is."""
    first = run_audit(LocalEngine(), options(sound))
    last = objects(sound)[-1]
    before, content = last.stat(), last.read_bytes()
    last.write_bytes(bytes(len(content)))
    os.utime(last, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = look(LocalEngine(), options(sound)).verdict
    assert (first.verdict, again.verdict, again.coverage.logs) == ("clean", "clean", first.coverage.logs)
    assert look(LocalEngine(), options(sound, anew=True)).verdict.verdict == "violations"
    os.utime(last, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    assert look(LocalEngine(), options(sound)).verdict.verdict == "violations"


def test_what_is_missing_is_looked_for_twice(sound: Path) -> None:
    """An object that is not there is there again when all is listed once more: as if nothing named it any more."""
    last = objects(sound)[-1]
    content, told_of = last.read_bytes(), []

    def say(step: str) -> None:
        told_of.append(step)
        if step == "reading the store":
            if told_of.count(step) == 1:
                last.unlink()
            else:
                last.write_bytes(content)

    assert look(LocalEngine(), options(sound), say).verdict.verdict == "clean"
    assert told_of.count("reading the store") == 2


@pytest.mark.parametrize("newer", ["an epoch that no file tells of", "the logs are not there"])
def test_files_older_than_the_store_prove_no_loss(sound: Path, newer: str) -> None:
    """A topic may have been deleted since, with its objects."""
    last = objects(sound)[-1]
    if newer == "the logs are not there":
        for node in (1, 2, 3):
            shutil.rmtree(sound / "data" / str(node) / "wal")
        last = objects(sound)[-2]
    else:
        (last.parent.parent / "26").mkdir()
        (last.parent.parent / "26" / f"{1:020}").write_bytes(b"x")
    last.unlink()
    verdict = look(LocalEngine(), options(sound)).verdict
    assert (verdict.verdict, verdict.violations) == ("incomplete", 0)
    assert any("may have been deleted by right" in one for one in verdict.coverage.unseen)


@pytest.mark.parametrize(("number", "verdict"), [(7, "violations"), (40, "incomplete")])
def test_an_object_on_its_way_is_no_excuse(sound: Path, number: int, verdict: str) -> None:
    """Agents put an object before they commit it; of many objects files should tell."""
    last = objects(sound)[-1]
    (last.parent / f"{number:020}").write_bytes(b"x")
    last.unlink()
    assert look(LocalEngine(), options(sound)).verdict.verdict == verdict


@pytest.mark.parametrize(("number", "verdict"), [(7, "violations"), (8, "incomplete")])
def test_a_segment_that_no_file_tells_of_is_an_excuse(tmp_path: Path, number: int, verdict: str) -> None:
    """Batches may have been rolled into it since, and their objects deleted; files tell of number 7."""
    write_fault(tmp_path, ROLLED["rolled logs with nothing wrong"])
    last = objects(tmp_path)[-1]
    last.unlink()
    of_epoch = tmp_path / "store" / "segments" / str(FOUNDING) / "1" / "3"
    segment = of_epoch / f"{number:020}" / "orders-0" / f"{13:020}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"x")
    assert look(LocalEngine(), options(tmp_path)).verdict.verdict == verdict
