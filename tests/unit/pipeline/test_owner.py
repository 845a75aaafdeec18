"""Who owns an ID, from Parquet as an audit leaves it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.cli.main import cli
from pidkeeper.pipeline.owner import BLOCK_COLUMNS, FINDING_COLUMNS, MAX_BLOCKS, MAX_FINDINGS, OwnerError, find_owner
from pidkeeper.pipeline.report.verdict import SCHEMA_VERSION, CheckCount, Coverage, Verdict, Watermark, write_verdict
from pidkeeper.pipeline.store import open_store
from pidkeeper.protocol.ids import MAX_PRODUCER_ID

pa = pytest.importorskip("pyarrow")
ds = pytest.importorskip("pyarrow.dataset")

REPOSITORY = Path(__file__).resolve().parents[3]
DAYS = ("2023-11-14", "2023-11-15", None)
GIVEN_MS = 1_700_000_000_000


def block(first: int, last: int, broker: int = 7, offset: int | None = None, at: int = 0, day: int = 0) -> Any:
    values = (first, last, first if offset is None else offset, broker, 3, GIVEN_MS + at, 2)
    return dict(zip(BLOCK_COLUMNS, values, strict=True)) | {"day": DAYS[day]}


def finding(check: str, severity: str, first: int | None, last: int | None, detail: str = "so") -> Any:
    known = {"check": check, "severity": severity, "subject": f"IDs {first} to {last}", "detail": detail}
    return dict.fromkeys(FINDING_COLUMNS) | known | {"first_id": first, "last_id": last, "day": None}


def write_table(path: Path, columns: dict[str, str], rows: list[Any]) -> None:
    fields = [(name, pa.type_for_alias(kind)) for name, kind in columns.items()]
    path.mkdir(parents=True)
    (path / "_SUCCESS").touch()
    if rows:
        table = pa.Table.from_pylist(rows, pa.schema([*fields, ("day", pa.string())]))
        by_day = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
        ds.write_dataset(
            table, path, format="parquet", partitioning=by_day, existing_data_behavior="overwrite_or_ignore"
        )


def write_audit(out: Path, blocks: list[Any], findings: list[Any], **changes: Any) -> Path:
    write_table(out / "blocks", BLOCK_COLUMNS, blocks)
    write_table(out / "findings", FINDING_COLUMNS, findings)
    counts: dict[str, CheckCount] = {}
    for one in findings:
        count = counts.setdefault(one["check"], CheckCount())
        setattr(count, f"{one['severity']}s", getattr(count, f"{one['severity']}s") + 1)
    verdict = Verdict(
        verdict="clean",
        violations=0,
        warnings=0,
        notes=0,
        checks=counts,
        files_read=2,
        files_bad=0,
        bad_files=[],
        blocks=len(blocks),
        ids=0,
        batches=0,
        brokers=1,
        highest_id=None,
        first_ms=None,
        last_ms=None,
        watermark=Watermark({"1": 5, "2": 5, "3": 5}),
        coverage=Coverage(["1"], 1, 0, 9),
        pidkeeper_version="1",
    )
    write_verdict(open_store(out), msgspec.structs.replace(verdict, **changes))
    return out


def ask(out: str | Path, producer_id: object, *options: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "owner", "--out", str(out), *options, "--", str(producer_id)])


@pytest.fixture
def audited(tmp_path: Path) -> Path:
    blocks = [block(1000, 1999, day=0), block(2000, 2999, broker=8, day=1), block(5000, 5999, day=2)]
    gap = finding("gap", "warning", 3000, 4999, "nobody has IDs 3000 to 4999")
    return write_audit(tmp_path / "out", blocks, [gap, finding("storm", "note", None, None)])


def test_the_ends_of_a_block_are_its_and_what_is_beside_it_is_not(audited: Path) -> None:
    for producer_id, owner in ((1000, 7), (1999, 7), (2000, 8), (2999, 8), (5000, 7), (5999, 7)):
        found = find_owner(audited, producer_id)
        assert (found.place, [one.broker_id for one in found.blocks]) == ("owned", [owner])
    places = {999: "below", 3000: "between", 4999: "between", 6000: "above", MAX_PRODUCER_ID: "above", 0: "below"}
    assert {producer_id: find_owner(audited, producer_id).place for producer_id in places} == places


def test_the_command_tells_the_whole_block(audited: Path) -> None:
    ran = ask(audited, 2500)
    assert ran.exit_code == 0, ran.output
    told = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1].strip() for line in ran.stdout.splitlines()}
    assert told == {
        "ProducerId": "2500",
        "BrokerId": "8",
        "BrokerEpoch": "3",
        "Block": "2000 to 2999 (1,000 IDs)",
        "AllocatedAt": "2023-11-14T22:13:20.000Z",
        "RecordOffset": "2000",
        "Members": "2 of 3 have it",
    }
    answer = json.loads(ask(audited, 2500, "-o", "json").stdout)
    assert (answer["place"], answer["blocks"][0]["timestamp_ms"], answer["members_audited"]) == ("owned", GIVEN_MS, 3)


def test_nobody_is_1_and_why(audited: Path) -> None:
    gap = ask(audited, 4000)
    assert gap.exit_code == 1
    assert "between the blocks that end at 2999 and start at 5000; nobody has IDs 3000 to 4999" in gap.stderr
    assert "warning: gap: IDs 3000 to 4999" in gap.stdout
    above = ask(audited, 6000)
    assert above.exit_code == 1
    assert "it was not allocated when the audit ran; the highest allocated ID is 5999" in above.stderr
    below = ask(audited, 0)
    assert below.exit_code == 1
    assert "the first known block starts at 1000" in below.stderr
    assert "ZooKeeper" in below.stderr
    answer = ask(audited, 4000, "-o", "json")
    assert answer.exit_code == 1
    told = json.loads(answer.stdout)
    assert (told["block_below"]["last_id"], told["block_above"]["first_id"]) == (2999, 5000)
    assert (told["gap"]["first_id"], told["blocks"]) == (3000, [])


def test_the_neighbours_are_the_nearest_of_all_files(tmp_path: Path) -> None:
    starts = [70, 10, 40, 90, 20, 60]
    out = write_audit(tmp_path / "out", [block(at, at + 4, day=n % 3) for n, at in enumerate(starts)], [])
    one_day = write_audit(tmp_path / "one", [block(at, at + 4) for at in starts], [])
    for where in (out, one_day):
        found = find_owner(where, 50)
        assert found.block_below is not None
        assert found.block_above is not None
        assert (found.block_below.last_id, found.block_above.first_id) == (44, 60)


def test_several_blocks_are_a_violation_and_all_are_named_oldest_first(tmp_path: Path) -> None:
    blocks = [block(20, 29, broker=1, at=5), block(25, 34, broker=2, at=3, day=1), block(27, 27, broker=3, at=9)]
    shared = finding("overlap", "violation", 25, 29)
    out = write_audit(tmp_path / "out", blocks, [shared])
    assert [one.broker_id for one in find_owner(out, 27).blocks] == [2, 1, 3]
    ran = ask(out, 27)
    assert ran.exit_code == 5
    assert "violation: 3 blocks hold producer ID 27" in ran.stderr
    assert "violation: overlap: IDs 25 to 29: so" in ran.stdout
    assert ask(out, 24).exit_code == 0
    assert ask(out, 30).exit_code == 0


def test_findings_come_narrowest_first_and_are_bounded(tmp_path: Path) -> None:
    wide = [finding("quota", "note", 0, 1000 + number) for number in range(MAX_FINDINGS + 4)]
    gap = finding("gap", "warning", 0, 9999)
    others = [finding("quota", "note", 0, 49), finding("quota", "note", 51, 60)]
    out = write_audit(tmp_path / "out", [], [*wide, gap, *others, finding("overlap", "violation", 50, 50)])
    found = find_owner(out, 50)
    assert (found.place, len(found.findings), found.more_findings) == ("no_blocks", MAX_FINDINGS, 6)
    assert [one.check for one in found.findings[:2]] == ["overlap", "quota"]
    assert [one.last_id for one in found.findings[1:]] == [1000 + number for number in range(MAX_FINDINGS - 1)]
    assert found.gap is not None
    assert found.gap.last_id == 9999
    ran = ask(out, 50)
    assert "and 6 more" in ran.stdout
    assert "the audit found no blocks" in ran.stderr


def test_blocks_are_bounded(tmp_path: Path) -> None:
    out = write_audit(tmp_path / "out", [block(0, 9, offset=number) for number in range(MAX_BLOCKS + 3)], [])
    ran = ask(out, 5)
    assert ran.exit_code == 5
    assert "and 3 more blocks" in ran.stdout
    assert f"violation: {MAX_BLOCKS + 3} blocks" in ran.stderr


def test_an_id_that_is_none_is_a_usage_error(audited: Path) -> None:
    for bad in (-1, MAX_PRODUCER_ID + 1, "seven", 1.5):
        assert ask(audited, bad).exit_code == 2


def test_an_audit_on_another_file_system_is_asked_as_one_here(audited: Path) -> None:
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    cut = audited / "blocks" / "_temporary" / "0" / "part.parquet"
    cut.parent.mkdir(parents=True)
    cut.write_bytes(b"PAR1")
    memory.put(str(audited), "/elsewhere/out", recursive=True)
    try:
        for producer_id in (0, 2500, 4000, 6000):
            expected = find_owner(audited, producer_id)
            for out in (f"file://{audited}", f"file://{audited}/", "memory://elsewhere/out"):
                assert find_owner(out, producer_id) == expected, out
        part = next(name for name in memory.find("/elsewhere/out/blocks") if "2023-11-15" in name)
        memory.pipe_file(part, b"PAR1")
        table = "the table memory://elsewhere/out/blocks cannot be used"
        with pytest.raises(OwnerError, match=f"{table}: .*; run `pidkeeper audit run` with its --out there"):
            find_owner("memory://elsewhere/out", 5)
        memory.rm("/elsewhere/out/blocks", recursive=True)
        with pytest.raises(OwnerError, match=f"{table}: it is not there"):
            find_owner("memory://elsewhere/out", 5)
        memory.rm("/elsewhere/out/verdict.json")
        with pytest.raises(OwnerError, match=r"memory://elsewhere/out is not there \(no verdict\.json\)"):
            find_owner("memory://elsewhere/out", 5)
    finally:
        memory.rm("/elsewhere", recursive=True)


def test_a_file_system_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    (port,) = free_ports(1)
    # What starts Java for libhdfs would be found by these.
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "JAVA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for out, reason in (
        (f"hdfs://127.0.0.1:{port}/out", "libhdfs, which is not here; name webhdfs://NAMENODE:9870/PATH"),
        (f"webhdfs://127.0.0.1:{port}/out", f"http://127.0.0.1:{port}/webhdfs/v1: "),
        ("webhdfs:///out", "name the NameNode and its HTTP port"),
        ("nothing://host/out", "no file system is known for nothing://"),
    ):
        ran = ask(out, 5)
        assert (ran.exit_code, reason in ran.stderr, "out of reach" in ran.stderr) == (1, True, True), ran.output
        assert isinstance(ran.exception, SystemExit)
    ran = ask("webhdfs://me:secret@host/out", 5)
    assert ran.exit_code == 1
    assert "name no password in a URI" in ran.stderr and "secret" not in ran.output


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    ran = ask("webhdfs://host-without-fsspec/out", 5)
    assert ran.exit_code == 1
    assert "nothing here knows webhdfs://: import of fsspec" in ran.stderr
    assert "pip install 'pidkeeper[audit]'" in ran.stderr


def test_where_no_audit_ended_it_says_what_to_run(tmp_path: Path) -> None:
    ran = ask(tmp_path / "none", 5)
    assert ran.exit_code == 1
    assert "is not there" in ran.stderr
    assert f"run `pidkeeper audit run ... --out {tmp_path / 'none'}`" in ran.stderr
    out = write_audit(tmp_path / "out", [block(0, 9)], [])
    (out / "verdict.json").unlink()
    assert "did not come to its end" in ask(out, 5).stderr


def test_tables_of_another_version_are_not_guessed_at(tmp_path: Path) -> None:
    out = write_audit(tmp_path / "out", [block(0, 9)], [], schema_version=SCHEMA_VERSION - 1)
    ran = ask(out, 5)
    assert ran.exit_code == 1
    assert f"schema version {SCHEMA_VERSION - 1}, and this build reads {SCHEMA_VERSION}" in ran.stderr


def test_damage_is_said(audited: Path) -> None:
    verdict = audited / "verdict.json"
    whole = verdict.read_bytes()
    verdict.write_bytes(whole[:50])
    with pytest.raises(OwnerError, match=r"verdict\.json cannot be read"):
        find_owner(audited, 5)
    verdict.write_bytes(whole)
    part = next((audited / "blocks" / "day=2023-11-15").glob("*.parquet"))
    kept = part.read_bytes()
    part.write_bytes(kept[:-20])
    with pytest.raises(OwnerError, match="blocks cannot be used"):
        find_owner(audited, 5)
    part.unlink()
    with pytest.raises(OwnerError, match=r"it has 2 rows, and verdict\.json tells of 3"):
        find_owner(audited, 5)
    part.write_bytes(kept)
    assert find_owner(audited, 2500).place == "owned"
    (audited / "blocks").rename(audited / "findings" / "blocks")
    with pytest.raises(OwnerError, match="it is not there"):
        find_owner(audited, 5)


def test_columns_of_another_type_are_said(tmp_path: Path) -> None:
    out = write_audit(tmp_path / "out", [block(0, 9)], [])
    (out / "blocks").rename(tmp_path / "before")
    write_table(out / "blocks", BLOCK_COLUMNS | {"last_id": "int32"}, [block(0, 9)])
    with pytest.raises(OwnerError, match="no column last_id of type int64"):
        find_owner(out, 5)


def test_the_columns_are_those_that_an_audit_writes() -> None:
    pytest.importorskip("pyspark")
    from pidkeeper.pipeline.report.tables import TABLES

    names = {"bigint": "int64", "int": "int32", "string": "string"}
    for table, columns in (("blocks", BLOCK_COLUMNS), ("findings", FINDING_COLUMNS)):
        fields = {field.name: names[field.dataType.simpleString()] for field in TABLES[table]}
        assert fields == columns | {"day": "string"}


def test_it_imports_no_spark(audited: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from pipeline.owner import find_owner\n"
        "assert find_owner(pathlib.Path(sys.argv[1]), 1000).blocks\n"
        "assert not {'pyspark', 'py4j', 'plotly'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(audited)], check=True, timeout=60, cwd=REPOSITORY)
