"""Who owns an ID, from what an audit left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.cli.main import cli
from pidkeeper.pipeline.audit import AuditOptions, run_audit
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import Location, locate
from pidkeeper.pipeline.ledger import VERSION, Commit, KnownShard, Ledger
from pidkeeper.pipeline.owner import (
    BLOCK_COLUMNS,
    FINDING_COLUMNS,
    MAX_BLOCKS,
    MAX_FINDINGS,
    OwnerError,
    Ownership,
)
from pidkeeper.pipeline.owner import find_owner as find_owner_at
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum import evidence
from pidkeeper.pipeline.report.tables import TABLES
from pidkeeper.pipeline.verdict import CheckCount, Coverage, Verdict, Watermark
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles

REPOSITORY = Path(__file__).resolve().parents[3]
GIVEN_MS = 1_700_000_000_000


def find_owner(out: Path, producer_id: int) -> Ownership:
    return find_owner_at(locate(out), producer_id)


def block(first: int, last: int, broker: int = 7, offset: int | None = None, at: int = 0) -> Any:
    values = (first, last, first if offset is None else offset, broker, 3, GIVEN_MS + at, 2)
    return dict(zip(BLOCK_COLUMNS, values, strict=True)) | {"version": 1, "place": 128, "day": "2023-11-14"}


def finding(check: str, severity: str, first: int | None, last: int | None, detail: str = "so") -> Any:
    known = {"check": check, "severity": severity, "subject": f"IDs {first} to {last}", "detail": detail}
    return dict.fromkeys(FINDING_COLUMNS) | known | {"first_id": first, "last_id": last, "day": None}


def write_audit(out: Path, shards: Sequence[list[Any]], findings: list[Any], schema: Any = evidence.BLOCKS) -> Path:
    """What an audit leaves that found these blocks in each of its shards."""
    ledger = Ledger(locate(out))
    run = ledger.begin(ledger.newest())
    known = [
        KnownShard(number, number, number + 1, "", run.name, run.blocks_name(number)) for number in range(len(shards))
    ]
    for shard, rows in zip(known, shards, strict=True):
        with (ledger.place / shard.blocks).writing() as file:
            pq.write_table(pa.Table.from_pylist(rows, schema), file)
    run.write_table("blocks_adrift", TABLES["blocks_adrift"].empty_table())
    run.write_table("findings", pa.Table.from_pylist(findings, TABLES["findings"]))
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
        blocks=sum(map(len, shards)),
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
    run.finish(Commit(run.number, run.name, GIVEN_MS, verdict, shards=known))
    return out


def ask(out: str | Path, producer_id: object, *options: str) -> Result:
    return CliRunner().invoke(cli, ["audit", "owner", "--out", str(out), *options, "--", str(producer_id)])


@pytest.fixture
def audited(tmp_path: Path) -> Path:
    shards = [[block(1000, 1999), block(2000, 2999, broker=8)], [], [block(5000, 5999)]]
    gap = finding("gap", "warning", 3000, 4999, "nobody has IDs 3000 to 4999")
    return write_audit(tmp_path / "out", shards, [gap, finding("storm", "note", None, None)])


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
    several = write_audit(tmp_path / "several", [[block(at, at + 4)] for at in starts], [])
    one = write_audit(tmp_path / "one", [[block(at, at + 4) for at in starts]], [])
    for where in (several, one):
        found = find_owner(where, 50)
        assert found.block_below is not None
        assert found.block_above is not None
        assert (found.block_below.last_id, found.block_above.first_id) == (44, 60)


def test_several_blocks_are_a_violation_and_all_are_named_oldest_first(tmp_path: Path) -> None:
    shards = [[block(20, 29, broker=1, at=5), block(25, 34, broker=2, at=3)], [block(27, 27, broker=3, at=9)]]
    shared = finding("overlap", "violation", 25, 29)
    out = write_audit(tmp_path / "out", shards, [shared])
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
    out = write_audit(tmp_path / "out", [[block(0, 9, offset=number) for number in range(MAX_BLOCKS + 3)]], [])
    ran = ask(out, 5)
    assert ran.exit_code == 5
    assert "and 3 more blocks" in ran.stdout
    assert f"violation: {MAX_BLOCKS + 3} blocks" in ran.stderr


def test_an_id_that_is_none_is_a_usage_error(audited: Path) -> None:
    for bad in (-1, MAX_PRODUCER_ID + 1, "seven", 1.5):
        assert ask(audited, bad).exit_code == 2


def test_an_audit_on_another_file_system_is_asked_as_one_here(audited: Path) -> None:
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    memory.put(str(audited), "/elsewhere/out", recursive=True)
    try:
        for producer_id in (0, 2500, 4000, 6000):
            expected = find_owner(audited, producer_id)
            for out in (f"file://{audited}", f"file://{audited}/", "memory://elsewhere/out"):
                assert find_owner_at(locate(out), producer_id) == expected, out
        there = locate("memory://elsewhere/out")
        part, *_ = memory.find("/elsewhere/out/blocks")
        memory.pipe_file(part, b"PAR1")
        table = "the table blocks in memory://elsewhere/out cannot be used"
        with pytest.raises(
            OwnerError, match=f"{table}: .*; run `pidkeeper audit run ... --out memory://elsewhere/out`"
        ):
            find_owner_at(there, 5)
        memory.rm("/elsewhere/out/blocks", recursive=True)
        with pytest.raises(OwnerError, match=f"{table}: "):
            find_owner_at(there, 5)
        memory.rm("/elsewhere/out/commits", recursive=True)
        with pytest.raises(OwnerError, match="there is no audit in memory://elsewhere/out"):
            find_owner_at(there, 5)
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
    assert ran.exit_code == 2
    assert "name no password in a URI" in ran.stderr and "secret" not in ran.output


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    ran = ask("webhdfs://host-without-fsspec/out", 5)
    assert ran.exit_code == 1
    assert "nothing here knows webhdfs://: import of fsspec" in ran.stderr
    assert "pip install 'pidkeeper[audit]'" in ran.stderr


def test_where_no_audit_ended_it_says_what_to_run(tmp_path: Path) -> None:
    again = f"run `pidkeeper audit run ... --out {tmp_path / 'none'}`"
    ran = ask(tmp_path / "none", 5)
    assert ran.exit_code == 1
    assert f"there is no audit in {tmp_path / 'none'}, or none that came to its end: {again}" in ran.stderr
    out = write_audit(tmp_path / "out", [[block(0, 9)]], [])
    shutil.rmtree(out / "commits")
    assert "or none that came to its end" in ask(out, 5).stderr


def test_the_newest_audit_is_asked(audited: Path) -> None:
    write_audit(audited, [[block(1000, 1999, broker=9)]], [])
    assert [one.broker_id for one in find_owner(audited, 1500).blocks] == [9]
    assert find_owner(audited, 2500).place == "above"


def test_a_ledger_of_another_version_is_not_guessed_at(audited: Path) -> None:
    commit = audited / "commits/00000001.json"
    told = json.loads(commit.read_bytes())
    commit.write_text(json.dumps(told | {"version": VERSION + 1}))
    ran = ask(audited, 5)
    assert ran.exit_code == 1
    assert f"{commit} is of version {VERSION + 1}, this build knows {VERSION}: name another --out" in ran.stderr


def test_damage_is_said(audited: Path) -> None:
    commit = audited / "commits/00000001.json"
    whole = commit.read_bytes()
    commit.write_bytes(whole[:50])
    with pytest.raises(OwnerError, match=r"00000001\.json cannot be read"):
        find_owner(audited, 5)
    commit.write_bytes(whole)
    (findings,) = audited.glob("runs/*/findings.parquet")
    for table, part in (("blocks", max(audited.glob("blocks/*.parquet"))), ("findings", findings)):
        kept = part.read_bytes()
        part.write_bytes(kept[:-20])
        with pytest.raises(OwnerError, match=f"the table {table} in {audited} cannot be used"):
            find_owner(audited, 5)
        part.unlink()
        with pytest.raises(OwnerError, match=f"the table {table} in {audited} cannot be used"):
            find_owner(audited, 5)
        part.write_bytes(kept)
    assert find_owner(audited, 2500).place == "owned"


def test_another_number_of_rows_than_was_told_is_said(audited: Path) -> None:
    first, second, _ = sorted(audited.glob("blocks/*.parquet"))
    shutil.copy(second, first)
    with pytest.raises(OwnerError, match="it has 1 rows, and the audit tells of 3"):
        find_owner(audited, 5)


def test_columns_of_another_type_are_said(tmp_path: Path) -> None:
    number = evidence.BLOCKS.get_field_index("last_id")
    short = evidence.BLOCKS.set(number, pa.field("last_id", pa.int32()))
    out = write_audit(tmp_path / "out", [[block(0, 9)]], [], short)
    with pytest.raises(OwnerError, match="no column last_id of type int64"):
        find_owner(out, 5)


def test_the_columns_are_those_that_an_audit_writes() -> None:
    for table, columns in (("blocks", BLOCK_COLUMNS), ("findings", FINDING_COLUMNS)):
        written = {field.name: field.type for field in TABLES[table]}
        assert {name: written.get(name) for name in columns} == {
            name: pa.type_for_alias(kind) for name, kind in columns.items()
        }
    assert [*FINDING_COLUMNS, "day"] == TABLES["findings"].names


# What an audit leaves itself.


def audit(data: Path, out: Path) -> Location:
    run_audit(LocalEngine(), AuditOptions(AuditPaths([str(data)]), locate(out)))
    return locate(out)


def test_what_an_audit_left_is_asked_with_all_that_it_found(tmp_path: Path) -> None:
    """In shards of two audits, with a block that a copy has otherwise, and one that only the log has."""
    members = [MemberFiles(tmp_path / "data" / str(node), node) for node in (1, 2)]
    for member in members:
        member.archive((0, 10))
    out = audit(tmp_path / "data", tmp_path / "out")
    for member in members:
        member.archive((10, 20))
        member.log(25, 24)
    audit(tmp_path / "data", tmp_path / "out")
    for producer_id, offset in ((0, 0), (99, 9), (100, 10), (239, 23)):
        found = find_owner_at(out, producer_id)
        assert (found.place, [one.offset for one in found.blocks], found.members_audited) == ("owned", [offset], 2)
        assert found.blocks[0].members == 2
    assert find_owner_at(out, 240).place == "above"

    def edit(rows: list[Any]) -> None:
        rows.pop(3)

    for member in members:
        edit_archive(member.found("archive")[0], edit)
        for path in member.found("wal"):
            path.unlink()
    audit(tmp_path / "data", tmp_path / "out")
    found = find_owner_at(out, 35)
    assert (found.place, found.gap and found.gap.last_id) == ("between", 39)
    assert {one.check for one in found.findings} == {"gap", "memory"}


def test_blocks_whose_offset_no_log_tells_are_owned_too(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "data" / "1", 1)
    member.archive((0, 10))
    member.log(60, 60)
    member.found("wal")[0].unlink()
    out = audit(tmp_path / "data", tmp_path / "out")
    assert find_owner_at(out, 55).blocks[0].offset == 5
    found = find_owner_at(out, 555)
    assert [(one.first_id, one.offset) for one in found.blocks] == [(550, None)]


def test_it_imports_no_spark(audited: Path) -> None:
    program = (
        "import sys\n"
        "from pidkeeper.pipeline.files.location import locate\n"
        "from pidkeeper.pipeline.owner import find_owner\n"
        "assert find_owner(locate(sys.argv[1]), 1000).blocks\n"
        "assert not {'pyspark', 'py4j', 'plotly'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(audited)], check=True, timeout=60, cwd=REPOSITORY)
