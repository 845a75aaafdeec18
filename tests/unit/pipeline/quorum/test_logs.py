"""What is told of a member's log and snapshots, on data directories that the product's storage wrote."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pidkeeper.controller.storage.recovery import LogReader
from pidkeeper.disk.files import OsFiles
from pidkeeper.pipeline.formats.problems import (
    BAD_CRC,
    CORRUPT,
    EMPTY,
    FOREIGN,
    MALFORMED,
    MISNAMED,
    NEWER,
    NOT_READ,
    TORN,
)
from pidkeeper.pipeline.quorum import logs
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from tests.support.member_evidence import Row, told
from tests.support.member_files import CLUSTER, MemberFiles


def of_cluster(member: MemberFiles, cluster: str) -> None:
    """Let the meta.json of a member name another cluster."""
    meta = member.path / "meta.json"
    meta.write_text(meta.read_text().replace(CLUSTER, cluster))


def kinds(rows: list[Row]) -> list[tuple[str, str]]:
    return [(row["file"], row["kind"]) for row in rows]


# Logs.


def test_records_of_all_members_come_with_their_places(tmp_path: Path) -> None:
    written = {str(node): MemberFiles(tmp_path / str(node), node).log(60, 50 + node) for node in (1, 2)}
    tables = told(tmp_path)
    for node, records in written.items():
        mine = [row for row in tables["records"] if row["member"] == node]
        assert [row["record_type"] for row in mine] == [type(record).__name__ for record in records]
        assert [row["offset"] for row in mine] == list(range(60))
        assert [row["committed"] for row in mine] == [index <= 50 + int(node) for index in range(1, 61)]
        for row, record in list(zip(mine, records, strict=True))[1:]:
            assert isinstance(record, AllocateProducerIdsRecord)
            assert (row["first_id"], row["last_id"]) == (record.producer_id_start, record.producer_id_end)
            assert (row["broker_id"], row["broker_epoch"]) == (record.broker_id, record.broker_epoch)
            assert row["timestamp_ms"] == record.timestamp_ms
            path = Path(row["path"])
            assert path.name == row["segment"]
            assert path.is_relative_to(tmp_path / node)
            assert path.read_bytes()[row["position"] + 13 :][:8] == row["index"].to_bytes(8)
    assert tables["problems"] == []


def test_many_records_come_in_batches_of_a_bounded_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MemberFiles(tmp_path / "1").log(60, 60)
    whole = told(tmp_path)["records"]
    monkeypatch.setattr(logs, "BATCH_ROWS", 7)
    assert told(tmp_path)["records"] == whole
    assert len(whole) == 60


def test_segments_say_what_they_hold(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(60, 50)
    rows = told(tmp_path)["logs"]
    assert [row["path"] for row in rows] == [str(path) for path in member.found("wal")]
    assert len(rows) > 2
    assert {row["cluster_id"] for row in rows} == {CLUSTER}
    recovered = Counter(header.name for header, _ in LogReader(OsFiles(), member.path / "wal", None).batches())
    assert {Path(row["path"]).name: row["batches"] for row in rows} == recovered
    assert [row["last_index"] for row in rows] == sorted(row["last_index"] for row in rows)
    assert (rows[-1]["last_index"], {row["commit_index"] for row in rows}) == (60, {50})


def test_offsets_of_a_log_without_its_start_are_those_of_the_snapshot_beside_it(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(60, 60)
    member.found("wal")[0].unlink()
    assert {row["offset"] for row in told(tmp_path)["records"]} == {None}
    member.snapshot(50, 50)
    rows = told(tmp_path)["records"]
    assert [row["offset"] for row in rows] == [row["index"] - 1 for row in rows]
    member.snapshot(55, 7).write_bytes(b"damaged")
    again = told(tmp_path)["records"]
    # The number of a file is higher by that of the snapshot that came.
    assert [row | {"file_id": 0} for row in again] == [row | {"file_id": 0} for row in rows]


def test_a_damaged_segment_is_named_and_the_rows_before_it_are_given(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(60, 60)
    whole = told(tmp_path)["records"]
    segments = member.found("wal")
    data = bytearray(segments[1].read_bytes())
    data[300] ^= 1
    segments[1].write_bytes(data)
    tables = told(tmp_path)
    rows = tables["records"]
    assert 0 < len(rows) < len(whole)
    first, *others = tables["problems"]
    assert (first["file"], first["path"], first["kind"], first["member"]) == (
        str(segments[1]),
        str(segments[1]),
        CORRUPT,
        "1",
    )
    assert first["index"] == rows[-1]["index"] + 1
    assert kinds(others) == [(str(path), NOT_READ) for path in segments[2:]]


def test_a_log_in_another_members_directory_is_told(tmp_path: Path) -> None:
    one, two = MemberFiles(tmp_path / "1", 1), MemberFiles(tmp_path / "2", 2)
    one.log(5, 5)
    (segment,) = one.found("wal")
    segment.rename(two.path / "wal" / segment.name)
    tables = told(tmp_path)
    (problem,) = tables["problems"]
    assert (problem["member"], problem["kind"]) == ("2", FOREIGN)
    assert tables["records"] == []


def test_an_identity_that_cannot_be_read_is_a_problem_and_the_log_counts(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(5, 5)
    (member.path / "meta.json").write_text("{")
    tables = told(tmp_path)
    assert kinds(tables["problems"]) == [(str(member.path / "meta.json"), MALFORMED)]
    assert {row["member"] for row in tables["records"]} == {str(member.path / "wal")}
    assert len(tables["records"]) == 5


# Snapshots.


def test_snapshots_have_a_row_each(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1", 4)
    path = member.snapshot(30, 21)
    (row,) = told(tmp_path)["snapshots"]
    assert (row["member"], row["cluster_id"], row["path"]) == ("4", CLUSTER, str(path))
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
def test_a_damaged_snapshot_is_named(tmp_path: Path, change: Callable[[bytes], bytes], kind: str) -> None:
    path = MemberFiles(tmp_path / "1").snapshot(30, 21)
    path.write_bytes(change(path.read_bytes()))
    tables = told(tmp_path)
    assert tables["snapshots"] == []
    (problem,) = tables["problems"]
    assert (problem["file"], problem["kind"], problem["member"]) == (str(path), kind, "1")


def test_snapshots_under_another_name_of_another_cluster_or_newer_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = MemberFiles(tmp_path / "1")
    path = member.snapshot(30, 21)
    renamed = path.with_name(path.name.replace("30", "31"))
    shutil.copy(path, renamed)
    assert kinds(told(renamed)["problems"]) == [(str(renamed), MISNAMED)]
    assert told(path)["problems"] == []
    monkeypatch.setattr("pidkeeper.snapshots.snapshot_format.LATEST", 0)
    assert kinds(told(path)["problems"]) == [(str(path), NEWER)]
    monkeypatch.undo()
    of_cluster(member, "cluster-b")
    assert kinds(told(path)["problems"]) == [(str(path), FOREIGN)]


# Whose they are.


def test_a_member_of_archives_alone_is_of_the_cluster_in_their_headers(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 5), (5, 9))
    of_cluster(member, "cluster-b")
    member.found("archive")[0].write_bytes(b"damaged")
    assert [(row["member"], row["cluster_id"]) for row in told(tmp_path)["clusters"]] == [("1", CLUSTER)]
