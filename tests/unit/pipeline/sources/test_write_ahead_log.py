"""The source's planning and reading without a session, on data directories that the product's storage wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.formats.problems import CORRUPT, FOREIGN, MALFORMED, NOT_READ
from pidkeeper.pipeline.schemas import LOG_TABLES
from pidkeeper.pipeline.sources.tables import BadFileError
from pidkeeper.pipeline.sources.write_ahead_log import LogSource
from pidkeeper.protocol.records import AllocateProducerIdsRecord
from tests.support.member_files import CLUSTER, MemberFiles
from tests.support.source_rows import table


def test_records_of_all_members_come_with_their_places(tmp_path: Path) -> None:
    written = {str(node): MemberFiles(tmp_path / str(node), node).log(60, 50 + node) for node in (1, 2)}
    rows = table(LogSource, tmp_path, "records")
    for node, records in written.items():
        mine = [row for row in rows if row["member"] == node]
        assert [row["record_type"] for row in mine] == [type(record).__name__ for record in records]
        assert [row["offset"] for row in mine] == list(range(60))
        assert [row["committed"] for row in mine] == [index <= 50 + int(node) for index in range(1, 61)]
        for row, record in list(zip(mine, records, strict=True))[1:]:
            assert isinstance(record, AllocateProducerIdsRecord)
            assert (row["first_id"], row["last_id"]) == (record.producer_id_start, record.producer_id_end)
            assert (row["broker_id"], row["broker_epoch"]) == (record.broker_id, record.broker_epoch)
            assert (row["cluster_id"], row["timestamp_ms"]) == (CLUSTER, record.timestamp_ms)
            assert Path(row["file"]).name == row["segment"]
            assert Path(row["file"]).read_bytes()[row["position"] + 13 :][:8] == row["index"].to_bytes(8)
    assert table(LogSource, tmp_path, "problems") == []


def test_files_say_what_they_cover(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(60, 60)
    rows = table(LogSource, tmp_path, "files")
    assert [row["file"] for row in rows] == [str(path) for path in member.found("wal")]
    assert len(rows) > 2
    assert (rows[0]["first_index"], rows[-1]["last_index"], rows[0]["commit_index"]) == (1, 60, 60)


def test_offsets_of_a_log_without_its_start_are_those_of_the_snapshot_beside_it(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(60, 60)
    member.found("wal")[0].unlink()
    assert {row["offset"] for row in table(LogSource, tmp_path, "records")} == {None}
    member.snapshot(50, 50)
    rows = table(LogSource, tmp_path, "records")
    assert [row["offset"] for row in rows] == [row["index"] - 1 for row in rows]
    member.snapshot(55, 7).write_bytes(b"damaged")
    assert table(LogSource, tmp_path, "records") == rows


def test_a_damaged_segment_is_named_and_the_rows_before_it_are_given(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(60, 60)
    whole = table(LogSource, tmp_path, "records")
    segments = member.found("wal")
    data = bytearray(segments[1].read_bytes())
    data[300] ^= 1
    segments[1].write_bytes(data)
    rows = table(LogSource, tmp_path, "records")
    assert 0 < len(rows) < len(whole)
    first, *others = table(LogSource, tmp_path, "problems")
    assert (first["file"], first["kind"], first["member"]) == (str(segments[1]), CORRUPT, "1")
    assert first["index"] == rows[-1]["index"] + 1
    assert [(row["file"], row["kind"]) for row in others] == [(str(path), NOT_READ) for path in segments[2:]]
    for name in LOG_TABLES:
        with pytest.raises(BadFileError, match=segments[1].name):
            table(LogSource, tmp_path, name, on_bad_file="fail")


def test_a_log_in_another_members_directory_is_told(tmp_path: Path) -> None:
    one, two = MemberFiles(tmp_path / "1", 1), MemberFiles(tmp_path / "2", 2)
    one.log(5, 5)
    (segment,) = one.found("wal")
    segment.rename(two.path / "wal" / segment.name)
    (problem,) = table(LogSource, tmp_path, "problems")
    assert (problem["member"], problem["kind"]) == ("2", FOREIGN)
    assert table(LogSource, tmp_path, "records") == []


def test_an_identity_that_cannot_be_read_is_a_problem_and_the_log_counts(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(5, 5)
    (member.path / "meta.json").write_text("{")
    (problem,) = table(LogSource, tmp_path, "problems")
    assert (problem["file"], problem["kind"]) == (str(member.path / "meta.json"), MALFORMED)
    assert {row["member"] for row in table(LogSource, tmp_path, "records")} == {str(member.path / "wal")}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "blocks"}, 'no table "blocks"'),
        ({"on_bad_file": "skip"}, "report or fail"),
        ({}, "name what to read"),
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, str], said: str) -> None:
    source = LogSource(options)
    with pytest.raises(ValueError, match=said):
        source.reader(source.schema())
