"""What a task reads of archives, on data directories that the product's storage wrote and others spoilt."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pidkeeper.controller.storage.archive import MAX_SMALL_FILES
from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.formats.archive_rows import FileRows
from pidkeeper.pipeline.formats.problems import BAD_CRC, EMPTY, FOREIGN, MALFORMED, MISNAMED, TORN, UNREADABLE
from pidkeeper.pipeline.quorum import evidence
from pidkeeper.pipeline.quorum.gathering import END
from pidkeeper.pipeline.quorum.shard import Shard, ShardTask, judge_task
from tests.support.archive_edits import edit_archive
from tests.support.member_evidence import Archived, Row, archived, archives_of, judged, listed, named
from tests.support.member_files import CLUSTER, MemberFiles, blocks

pa = pytest.importorskip("pyarrow")


def of_cluster(member: MemberFiles, cluster: str) -> None:
    """Let the meta.json of a member name another cluster."""
    meta = member.path / "meta.json"
    meta.write_text(meta.read_text().replace(CLUSTER, cluster))


def problems(found: Archived) -> list[tuple[str, str]]:
    """Name and kind, each once, however many shards read the file."""
    return sorted({(Path(row["file"]).name, row["kind"]) for row in found.tables["problems"]})


def name(start: int, end: int) -> str:
    return f"{start:020d}-{end:020d}.arc"


def files_before_a_merge(member: MemberFiles) -> list[Path]:
    """One file more than are kept small, and the small ones put back beside that into which they were merged."""
    member.archive(*[(start, start + 1) for start in range(MAX_SMALL_FILES)])
    old = {path: path.read_bytes() for path in member.found("archive")}
    member.archive((MAX_SMALL_FILES, MAX_SMALL_FILES + 1))
    assert len(member.found("archive")) == 1
    for path, data in old.items():
        path.write_bytes(data)
    return list(old)


def test_the_files_of_a_task_go_with_it(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1", 1)
    member.archive((0, 5), (5, 9))
    gc.collect()
    gc.disable()
    try:
        assert archived(tmp_path).blocks == blocks(0, 9)
        assert [one for one in gc.get_objects() if isinstance(one, FileRows)] == []
    finally:
        gc.enable()


def test_every_block_is_there_once_and_every_copy_counts(tmp_path: Path) -> None:
    members = [MemberFiles(tmp_path / str(node), node) for node in (1, 2)]
    for member in members:
        member.archive((0, 5), (5, 9), (20, 22))
    found = archived(tmp_path)
    assert found.blocks == [*blocks(0, 9), *blocks(20, 22)]
    copies = [(row["member"], row["path"], row["copies"]) for row in found.tables["archive_files"]]
    due = zip([5, 4, 2] * 2, (path for member in members for path in member.found("archive")), strict=True)
    assert copies == [(path.parents[1].name, str(path), count) for count, path in due]
    for member in members:
        assert archived(member.path).blocks == found.blocks


def test_files_say_what_they_hold(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 9))
    one, two = archived(tmp_path).tables["archive_files"]
    assert (one["rows"], one["copies"], two["rows"], two["copies"]) == (5, 5, 4, 4)
    assert (one["member"], one["cluster_id"]) == ("1", CLUSTER)
    assert [one["path"], two["path"]] == [str(path) for path in member.found("archive")]


def test_files_behind_a_merge_give_no_block_twice_and_are_read_for_what_is_wrong(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    first, second, *_ = files_before_a_merge(member)
    found = archived(tmp_path)
    assert found.blocks == blocks(0, MAX_SMALL_FILES + 1)
    assert problems(found) == []
    (read,) = found.tables["archive_files"]
    assert Path(read["path"]).name == name(0, MAX_SMALL_FILES + 1)
    second.write_bytes(second.read_bytes()[:-1] + b"?")
    edit_archive(first, lambda rows: rows.append(msgspec.structs.replace(rows.pop(), offset=99)))
    for cuts in ((), (1, 7)):
        found = archived(tmp_path, cuts=cuts)
        assert problems(found) == [(first.name, MALFORMED), (second.name, BAD_CRC)]
        assert found.blocks == blocks(0, MAX_SMALL_FILES + 1)


def test_a_wider_file_that_is_damaged_leaves_those_that_went_into_it(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    files_before_a_merge(member)
    (tmp_path / "1" / "archive" / name(0, MAX_SMALL_FILES + 1)).write_bytes(b"")
    found = archived(tmp_path)
    assert problems(found) == [(name(0, MAX_SMALL_FILES + 1), EMPTY)]
    assert found.blocks == blocks(0, MAX_SMALL_FILES)


def test_a_damaged_file_gives_no_block_and_says_why(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5))
    (path,) = member.found("archive")
    path.write_bytes(path.read_bytes()[:50])
    found = archived(tmp_path)
    assert (found.blocks, found.tables["archive_files"]) == ([], [])
    (problem,) = found.tables["problems"]
    assert (problem["file"], problem["path"], problem["member"]) == (str(path), str(path), "1")
    assert (problem["kind"], problem["position"]) == (TORN, 50)


@pytest.mark.parametrize("cuts", [(), (1, 3, 6, 8, 9)])
def test_the_problems_of_an_archive_name_every_file(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 8), (8, 9))
    one, two, three = member.found("archive")
    one.write_bytes(one.read_bytes()[:-1] + b"?")
    two.write_bytes(b"")
    (member.path / "archive" / "notes.arc").write_bytes(b"notes")
    shutil.copy(three, three.with_name(name(8, 10)))
    found = archived(tmp_path, cuts=cuts)
    assert problems(found) == [
        (one.name, BAD_CRC),
        (two.name, EMPTY),
        (name(8, 10), MISNAMED),
        ("notes.arc", FOREIGN),
    ]
    assert found.blocks == blocks(8, 9)


def test_files_of_another_cluster_than_their_members_are_left_out(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5))
    of_cluster(member, "cluster-b")
    found = archived(tmp_path)
    assert problems(found) == [(name(0, 5), FOREIGN)]
    assert found.blocks == []


def test_a_block_that_the_archive_of_one_member_lacks_is_told_of_it(tmp_path: Path) -> None:
    for node in (1, 2):
        MemberFiles(tmp_path / str(node), node).archive((0, 5), (5, 9))
    (path, _) = sorted((tmp_path / "2" / "archive").iterdir())
    edit_archive(path, lambda rows: rows.pop(2))
    for cuts in ((), (2, 3)):
        (row,) = archived(tmp_path, cuts=cuts).tables["absent"]
        assert (row["block"]["offset"], row["member"], row["path"]) == (2, "2", str(path))


# What happens between the listing and the reading.


def test_files_that_are_merged_away_meanwhile_are_read_from_what_they_went_into(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive(*[(start, start + 1) for start in range(MAX_SMALL_FILES)])
    before = listed(tmp_path)
    member.archive((MAX_SMALL_FILES, MAX_SMALL_FILES + 1))
    assert len(member.found("archive")) == 1
    found = judged(before)
    assert found.blocks == blocks(0, MAX_SMALL_FILES + 1)
    assert problems(found) == []
    (row,) = found.tables["archive_files"]
    assert "path" not in row, "the wider file has no number in this audit"


def test_files_that_go_away_are_told_and_not_skipped(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 8))
    before = listed(tmp_path)
    member.found("archive")[1].unlink()
    found = judged(before)
    assert problems(found) == [(name(5, 8), UNREADABLE)]
    assert found.blocks == blocks(0, 5)
    member.found("archive")[0].unlink()
    found = judged(before)
    assert (name(0, 5), UNREADABLE) in problems(found)
    assert found.blocks == []


# Any cuts.


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Members whose archives differ, with much that is wrong with them."""
    path = tmp_path_factory.mktemp("spoilt")
    one, two, three = (MemberFiles(path / str(node), node) for node in (1, 2, 3))
    one.archive((0, 10), (10, 11), (11, 30), (30, 60))
    two.archive((0, 30), (30, 45), (50, 60))
    three.archive((5, 25), (25, 60))
    first, *_, last = one.found("archive")
    first.write_bytes(first.read_bytes()[:-1] + b"?")
    edit_archive(last, lambda rows: rows.pop(4))
    edit_archive(two.found("archive")[0], lambda rows: rows.insert(0, rows.pop(3)))
    edit_archive(three.found("archive")[1], spoil_block)
    return path


def spoil_block(rows: list[Any]) -> None:
    rows[11] = msgspec.structs.replace(rows[11], broker_id=9)
    rows[20] = msgspec.structs.replace(rows[20], first=1)


def in_any_order(rows: list[Row], *left_out: str) -> list[str]:
    return sorted({repr({key: value for key, value in row.items() if key not in left_out}) for row in rows})


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 70), unique=True, max_size=8).map(sorted))
def test_shards_of_any_bounds_give_the_same_blocks_and_evidence_as_one(spoilt: Path, cuts: list[int]) -> None:
    one, many = archived(spoilt), archived(spoilt, cuts=cuts)
    assert many.blocks == one.blocks
    for table in ("problems", "versions", "absent", "archive_files"):
        left_out = ("shard", "copies") if table == "archive_files" else ("shard",)
        assert one.tables[table], f"no {table} to be compared"
        assert in_any_order(many.tables[table], *left_out) == in_any_order(one.tables[table], *left_out), table
    for table, column in (
        ("archive_files", "copies"),
        ("shards", "blocks"),
        ("hours", "blocks"),
        ("brokers", "blocks"),
    ):
        totals = [sum(row[column] for row in found.tables[table]) for found in (one, many)]
        assert totals[0] == totals[1] > 0, table
    assert {row["shard"] for row in many.tables["shards"]} <= set(range(len(cuts) + 1))


# What logs have beside the archives.


def test_blocks_of_logs_are_copies_beside_those_of_archives(tmp_path: Path) -> None:
    """One block that the archive has too, and one behind its end."""
    MemberFiles(tmp_path / "1").archive((0, 5))
    members = listed(tmp_path)
    logged = [
        {
            "offset": block.offset,
            "first_id": block.first,
            "last_id": block.last,
            "broker_id": block.broker_id,
            "broker_epoch": block.broker_epoch,
            "timestamp_ms": block.timestamp_ms,
            "place": 9 * evidence.POSITIONS + 100 + block.offset,
            "member_id": 1,
            "archived": False,
        }
        for block in blocks(4, 6)
    ]
    blob = to_blob(pa.RecordBatch.from_pylist(logged, schema=evidence.COPIES))
    shard = Shard(0, 0, END, logged=blob)
    tables = named(members, judge_task(ShardTask([shard], archives_of(members))))
    (facts,) = tables["shards"]
    assert (facts["blocks"], facts["last_offset"], facts["ids"], facts["disordered"]) == (6, 5, 60, 0)
    assert (facts["top"]["offset"], facts["top"]["place"]) == (5, 9 * evidence.POSITIONS + 105)
    assert tables["versions"] == tables["absent"] == tables["gaps"] == []


def test_a_shard_without_blocks_gives_no_evidence_and_an_empty_table(tmp_path: Path) -> None:
    MemberFiles(tmp_path / "1").log(3, 3)
    found = archived(tmp_path, cuts=[5])
    assert (found.blocks, dict(found.tables)) == ([], {})
