"""The source's planning and reading without a session, on data directories that the product's storage wrote.

The rows of a piece are decoded here by `snapshots.archive_format`; tests/pipeline has them as Spark gives them.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pidkeeper.controller.storage.archive import MAX_SMALL_FILES
from pidkeeper.pipeline.formats.problems import BAD_CRC, EMPTY, FOREIGN, MALFORMED, MISNAMED, NEWER, TORN
from pidkeeper.pipeline.schemas import ARCHIVE_BLOCKS
from pidkeeper.pipeline.sources.archive import ArchiveSource
from pidkeeper.pipeline.sources.archive_stream import ArchiveStreamReader, MissingOffsetsError
from pidkeeper.pipeline.sources.tables import BadFileError
from tests.support.member_files import CLUSTER, MemberFiles, blocks
from tests.support.source_rows import piece_blocks, table


def plan(path: Path) -> list[Any]:
    source = ArchiveSource({"path": str(path)})
    return list(source.reader(source.schema()).partitions())


def test_every_file_is_one_partition_and_every_block_is_in_one(tmp_path: Path) -> None:
    members = [MemberFiles(tmp_path / str(node), node) for node in (1, 2)]
    for member in members:
        member.archive((0, 5), (5, 9), (20, 22))
    partitions = plan(tmp_path)
    assert len(partitions) == 6
    for member in members:
        mine = [one for one in partitions if one.value.listing.member == str(member.meta.node_id)]
        assert piece_blocks(mine) == [*blocks(0, 9), *blocks(20, 22)]


def test_files_say_what_they_cover(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 9))
    one, two = table(ArchiveSource, tmp_path, "files")
    assert (one["from_offset"], one["to_offset"], one["rows"], one["first_id"], one["last_id"]) == (0, 5, 5, 0, 49)
    assert (two["member"], two["cluster_id"], two["bytes"], two["superseded"]) == ("1", CLUSTER, 320, False)
    assert [one["file"], two["file"]] == [str(path) for path in member.found("archive")]


def test_files_behind_a_merge_are_marked(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    ranges = [(start, start + 1) for start in range(MAX_SMALL_FILES + 1)]
    member.archive(*ranges[:-1])
    old = {path: path.read_bytes() for path in member.found("archive")}
    member.archive(ranges[-1])
    for path, data in old.items():
        path.write_bytes(data)
    assert [row["superseded"] for row in table(ArchiveSource, tmp_path, "files")].count(False) == 1
    assert len(table(ArchiveSource, tmp_path, "files")) == MAX_SMALL_FILES + 1
    assert piece_blocks(plan(tmp_path)) == blocks(0, MAX_SMALL_FILES + 1)


def test_a_damaged_file_has_a_row_without_content(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5))
    (path,) = member.found("archive")
    path.write_bytes(path.read_bytes()[:50])
    (row,) = table(ArchiveSource, tmp_path, "files")
    assert (row["bytes"], row["rows"], row["cluster_id"]) == (50, None, None)
    with pytest.raises(BadFileError, match=f"{path.name}, byte 50: torn"):
        table(ArchiveSource, tmp_path, "files", on_bad_file="fail")


def test_snapshots_have_a_row_each(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1", 4)
    path = member.snapshot(30, 21)
    (row,) = table(ArchiveSource, tmp_path, "snapshots")
    assert (row["member"], row["cluster_id"], row["file"]) == ("4", CLUSTER, str(path))
    assert (row["index"], row["term"], row["next_offset"], row["next_producer_id"]) == (30, 1, 21, 210)
    assert (row["last_first_id"], row["last_last_id"], row["last_offset"], row["brokers"]) == (200, 209, 20, 0)
    assert (row["metadata_version"], row["voters"], row["phase"]) == (1, None, None)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda data: b"", EMPTY),
        (lambda data: b"PK\3\4" + data[4:], FOREIGN),
        (lambda data: data[:60], TORN),
        (lambda data: data[:-1], BAD_CRC),
        (lambda data: data[:120] + b"?" + data[121:], BAD_CRC),
    ],
)
def test_a_damaged_snapshot_is_named(tmp_path: Path, change: Any, kind: str) -> None:
    path = MemberFiles(tmp_path / "1").snapshot(30, 21)
    path.write_bytes(change(path.read_bytes()))
    assert table(ArchiveSource, tmp_path, "snapshots") == []
    (problem,) = table(ArchiveSource, path, "problems")
    assert (problem["file"], problem["kind"], problem["member"]) == (str(path), kind, "1")
    with pytest.raises(BadFileError, match=path.name):
        table(ArchiveSource, tmp_path, "snapshots", on_bad_file="fail")


def test_snapshots_under_another_name_of_another_cluster_or_newer_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = MemberFiles(tmp_path / "1")
    path = member.snapshot(30, 21)
    renamed = path.with_name(path.name.replace("30", "31"))
    shutil.copy(path, renamed)
    assert [(row["file"], row["kind"]) for row in table(ArchiveSource, renamed, "problems")] == [
        (str(renamed), MISNAMED)
    ]
    assert [row["kind"] for row in table(ArchiveSource, path, "problems")] == []
    monkeypatch.setattr("pidkeeper.snapshots.snapshot_format.LATEST", 0)
    assert [row["kind"] for row in table(ArchiveSource, path, "problems")] == [NEWER]
    monkeypatch.undo()
    (member.path / "meta.json").write_text((member.path / "meta.json").read_text().replace(CLUSTER, "cluster-b"))
    assert [row["kind"] for row in table(ArchiveSource, path, "problems")] == [FOREIGN]


@pytest.mark.parametrize("table_name", ["snapshots", "files", "problems"])
def test_an_option_that_is_none_is_refused(tmp_path: Path, table_name: str) -> None:
    with pytest.raises(ValueError, match='no table "record"'):
        ArchiveSource({"path": str(tmp_path), "table": "record"}).schema()
    source = ArchiveSource({"path": str(tmp_path), "table": table_name})
    with pytest.raises(ValueError, match='only table "blocks" is a stream'):
        source.streamReader(source.schema())


# The stream.


def stream(path: Path) -> ArchiveStreamReader:
    return ArchiveStreamReader({"path": str(path)}, ARCHIVE_BLOCKS, True)


def test_a_stream_gives_what_is_new_and_starts_with_the_oldest(tmp_path: Path) -> None:
    one, two = MemberFiles(tmp_path / "1", 1), MemberFiles(tmp_path / "2", 2)
    one.archive((0, 5))
    start = stream(tmp_path).initialOffset()
    middle = stream(tmp_path).latestOffset(start, None)
    assert middle == {str(one.path / "archive"): 5}
    one.archive((5, 8))
    two.archive((3, 6))
    end = stream(tmp_path).latestOffset(middle, None)
    assert end == {str(one.path / "archive"): 8, str(two.path / "archive"): 6}
    assert piece_blocks(stream(tmp_path).partitions(start, middle)) == blocks(0, 5)
    assert piece_blocks(stream(tmp_path).partitions(middle, end)) == [*blocks(5, 8), *blocks(3, 6)]
    assert stream(tmp_path).latestOffset(end, None) == end
    assert stream(tmp_path).partitions(end, end) == []


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=50))
@settings(max_examples=25, deadline=None)
def test_a_stream_gives_every_block_once_whatever_was_merged_when(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    """Batches are planned as files come, and each is read at the end again, as after a restart."""
    path = tmp_path_factory.mktemp("stream")
    member = MemberFiles(path / "1")
    total, offsets = 0, [stream(path).initialOffset()]
    for size, polls in steps:
        member.archive((total, total + size))
        total += size
        if polls:
            offsets.append(stream(path).latestOffset(offsets[-1], None))
            batch = stream(path).partitions(offsets[-2], offsets[-1])
            before = offsets[-2].get(str(member.path / "archive"), 0)
            assert piece_blocks(batch) == blocks(before, total)
    again = [
        row for one, other in itertools.pairwise(offsets) for row in piece_blocks(stream(path).partitions(one, other))
    ]
    assert again == blocks(0, offsets[-1].get(str(member.path / "archive"), 0))


def test_a_planned_batch_is_read_from_the_file_that_its_files_were_merged_into(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive(*[(start, start + 1) for start in range(MAX_SMALL_FILES)])
    end = stream(tmp_path).latestOffset({}, None)
    batch = stream(tmp_path).partitions({}, end)
    member.archive((MAX_SMALL_FILES, MAX_SMALL_FILES + 1))
    assert len(member.found("archive")) == 1
    assert piece_blocks(batch) == blocks(0, MAX_SMALL_FILES)


def test_a_file_whose_header_is_bad_or_foreign_does_not_move_the_stream(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 8))
    first, second = member.found("archive")
    good = second.read_bytes()
    shutil.copy(first, first.with_name("00000000000000000000-00000000000000000099.arc"))
    second.write_bytes(good[:20])
    assert list(stream(tmp_path).latestOffset({}, None).values()) == [5]
    second.write_bytes(good)
    assert list(stream(tmp_path).latestOffset({}, None).values()) == [8]
    (member.path / "meta.json").write_text((member.path / "meta.json").read_text().replace(CLUSTER, "cluster-b"))
    assert list(stream(tmp_path).latestOffset({}, None).values()) == [0]


def test_a_batch_whose_files_are_gone_is_refused_and_not_skipped(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 8))
    end = stream(tmp_path).latestOffset({}, None)
    member.found("archive")[1].unlink()
    with pytest.raises(MissingOffsetsError, match="reached to log offset 8"):
        stream(tmp_path).partitions({}, end)
    assert stream(tmp_path).latestOffset(end, None) == end
    member.found("archive")[0].unlink()
    with pytest.raises(MissingOffsetsError):
        stream(tmp_path).partitions({}, end)


def test_problems_of_the_archive_need_numpy_and_name_every_file(tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="the rows are read with numpy, which is not installed")
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 8), (8, 9))
    one, two, three = member.found("archive")
    one.write_bytes(one.read_bytes()[:-1] + b"?")
    two.write_bytes(b"")
    (member.path / "archive" / "notes.arc").write_bytes(b"notes")
    shutil.copy(three, three.with_name("00000000000000000008-00000000000000000010.arc"))
    found = {(Path(row["file"]).name[18:], row["kind"]) for row in table(ArchiveSource, tmp_path, "problems")}
    assert {kind for _, kind in found} == {BAD_CRC, EMPTY, FOREIGN, MISNAMED}
    assert MALFORMED not in {kind for _, kind in found}
