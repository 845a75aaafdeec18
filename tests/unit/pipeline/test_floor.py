"""The floor after a disaster: the highest ID in any file, also in those that are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from pidkeeper.pipeline.floor import Floor, find_floor
from pidkeeper.pipeline.paths import AuditPaths, LoadingError, cluster_paths
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.snapshots.archive_format import HEADER_BYTES, ROW_BYTES, decode_header, encode_header
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles
from tests.support.segment_builder import batch

MARGIN = 1000


def floor_of(path: Path, *segments: Path) -> Floor:
    return find_floor(AuditPaths([str(path)], [str(one) for one in segments]), MARGIN)


def highest(found: Floor) -> dict[str, int]:
    return {one.kind: one.highest for one in found.evidence if one.highest is not None}


def test_every_kind_of_file_counts_and_uncommitted_entries_do(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 20))
    member.snapshot(30, 30)
    member.log(50, 10)
    segment = tmp_path / "kafka" / "orders-0" / f"{0:020d}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(batch(0, producer=(777, 0, 0)) + batch(1))
    found = floor_of(member.path, tmp_path / "kafka")
    assert highest(found) == {"archive files": 199, "snapshots": 299, "logs": 499, "Kafka segments": 777}
    assert (found.highest, found.floor) == (777, 777 + 1 + MARGIN)
    assert found.command == f"pidkeeper ids raise-floor {778 + MARGIN}"
    assert (found.warning, found.unread) == ("", [])


def test_the_command_for_a_floor_far_above_forces_it(tmp_path: Path) -> None:
    segment = tmp_path / "kafka" / "orders-0" / f"{0:020d}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(batch(0, producer=(MAX_FLOOR_JUMP, 0, 0)))
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 1))
    found = floor_of(member.path, tmp_path / "kafka")
    assert found.command == f"pidkeeper ids raise-floor {found.floor} --force --token-file OPERATORS-TOKEN"


def test_rows_that_are_higher_than_the_header_says_count(tmp_path: Path) -> None:
    """Every checksum of the file is right: it is the order of the rows that hides the highest one."""
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 20))
    (path,) = member.found("archive")

    def leap(rows: list[AllocatedBlock]) -> None:
        rows[7] = msgspec.structs.replace(rows[7], first=700_000, last=700_009)

    edit_archive(path, leap)
    assert decode_header(path.read_bytes()).last_id == 199
    found = floor_of(member.path)
    assert (highest(found), found.evidence[0].file) == ({"archive files": 700_009}, str(path))


def test_a_header_that_names_an_id_that_no_row_has_counts_too(tmp_path: Path) -> None:
    """After a disaster, IDs are better burnt than handed out twice."""
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 20))
    (path,) = member.found("archive")
    header = decode_header(path.read_bytes())
    data = path.read_bytes()[HEADER_BYTES:]
    path.write_bytes(encode_header(msgspec.structs.replace(header, last_id=4999)) + data)
    assert highest(floor_of(member.path)) == {"archive files": 4999}


def test_files_on_another_file_system_are_looked_through_as_those_here(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed").filesystem("memory")
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 20))
    member.log(50, 10)
    member.snapshot(30, 30)
    segment = tmp_path / "kafka" / "orders-0" / f"{0:020d}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(batch(0, producer=(777, 0, 0)))
    due = highest(floor_of(tmp_path, tmp_path / "kafka"))
    memory.put(str(tmp_path), "/elsewhere/all", recursive=True)
    try:
        for at in (f"file://{tmp_path}", "memory://elsewhere/all"):
            found = find_floor(AuditPaths([at], [f"{at}/kafka"]), MARGIN)
            assert (highest(found), found.highest, found.unread) == (due, 777, [])
            assert found.evidence[0].file == f"{at}/1/archive/{member.found('archive')[0].name}"
    finally:
        memory.rm("/elsewhere", recursive=True)


def test_a_torn_archive_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 20))
    (path,) = member.found("archive")
    path.write_bytes(path.read_bytes()[: HEADER_BYTES + 12 * ROW_BYTES + 5])
    found = floor_of(member.path)
    assert highest(found) == {"damaged archive files": 119}
    assert [(one.file, one.kind, one.position) for one in found.unread] == [
        (str(path), "torn", HEADER_BYTES + 12 * ROW_BYTES + 5)
    ]


def test_a_wrong_bit_in_an_archive_file_is_told_from_an_id(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 20))
    member.log(10, 10)
    (path,) = member.found("archive")
    data = bytearray(path.read_bytes())
    at = HEADER_BYTES + 5 * ROW_BYTES
    data[at : at + 16] = struct.pack(">qq", 1 << 40, (1 << 40) + 9)
    path.write_bytes(data)
    found = floor_of(member.path)
    assert found.highest == (1 << 40) + 9
    assert f"Without it the floor would be {99 + 1 + MARGIN}" in found.warning


def test_segments_of_a_log_behind_damage_are_read_too(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.log(120, 100)
    first, *_, last = member.found("wal")
    assert first != last
    data = bytearray(first.read_bytes())
    data[-20] ^= 1
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    found = floor_of(member.path)
    assert highest(found) == {"logs": 1199}
    assert found.unread[0].file == str(first)


def test_damage_behind_which_a_segment_goes_on_hides_nothing(tmp_path: Path) -> None:
    segment = tmp_path / "orders-0" / f"{0:020d}.log"
    segment.parent.mkdir(parents=True)
    whole = batch(0, producer=(5, 0, 0)) + batch(1, producer=(6, 0, 0)) + batch(2, producer=(9, 0, 0))
    size = len(whole) // 3
    segment.write_bytes(whole[:size] + b"\0" * size + whole[2 * size :])
    found = find_floor(AuditPaths([], [str(tmp_path)]), 0)
    assert (found.highest, [one.kind for one in found.unread]) == (9, ["lost_boundary"])


def test_nothing_is_no_floor(tmp_path: Path) -> None:
    found = floor_of(tmp_path)
    assert (found.highest, found.floor, found.command) == (None, None, None)
    with pytest.raises(LoadingError, match="nothing at"):
        floor_of(tmp_path / "none")
    with pytest.raises(LoadingError, match="--cluster is a directory of"):
        cluster_paths(tmp_path)
