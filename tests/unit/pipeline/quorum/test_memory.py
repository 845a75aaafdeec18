"""What an earlier audit saw and files do not have any more is found, and what a quorum does lawfully is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pidkeeper.controller.storage.archive import MAX_SMALL_FILES
from pidkeeper.pipeline.audit import AuditOptions, keep, look
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.ledger import Ledger
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum import gathering, memory
from tests.support.archive_edits import edit_archive
from tests.support.member_evidence import block_of
from tests.support.member_files import MemberFiles, blocks

Row = dict[str, Any]


class Quorum:
    """Data directories that are audited again and again, into one ledger."""

    def __init__(self, path: Path) -> None:
        self._data, self._out = path / "data", locate(path / "out")

    def member(self, node: int) -> MemberFiles:
        return MemberFiles(self._data / str(node), node)

    def audit(self) -> list[Row]:
        """The findings of `memory`."""
        outcome = look(LocalEngine(), AuditOptions(AuditPaths([str(self._data)]), self._out))
        keep(outcome, self._out)
        rows = outcome.tables["findings"].to_pylist()
        self.blocks = [block_of(row) for row in outcome.blocks.table().to_pylist()]
        return [
            {key: value for key, value in row.items() if value is not None} for row in rows if row["check"] == "memory"
        ]

    @property
    def shards(self) -> list[tuple[int, str]]:
        """Where those of the newest audit begin, and by which run each was judged."""
        commit = Ledger(self._out).newest()
        assert commit is not None
        return [(shard.from_offset, shard.run) for shard in commit.shards]


@pytest.fixture
def quorum(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Quorum:
    """Its history is in several shards, unless a test is `one_and_many`."""
    monkeypatch.setattr(gathering, "SHARD_ROWS", getattr(request, "param", FEW_ROWS))
    return Quorum(tmp_path)


FEW_ROWS: Final = 12
one_and_many = pytest.mark.parametrize(
    "quorum", [gathering.SHARD_ROWS, FEW_ROWS], ids=["one shard", "many shards"], indirect=True
)


def without(path: Path, *offsets: int) -> None:
    """Take the blocks of these offsets out of an archive file, whose checksums are right all the same."""

    def edit(rows: list[Any]) -> None:
        rows[:] = [row for row in rows if row.offset not in offsets]

    edit_archive(path, edit)


def facts(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.get(name) for name in names) for row in rows)


@one_and_many
def test_a_block_that_is_gone_from_all_files_is_a_violation(quorum: Quorum) -> None:
    members = [quorum.member(node) for node in (1, 2)]
    for member in members:
        member.archive((0, 10), (10, 30))
    assert quorum.audit() == []
    for member in members:
        without(member.found("archive")[0], 4)
    (row,) = quorum.audit()
    assert (row["severity"], row["subject"], row["offset"]) == ("violation", "offset 4", 4)
    assert (row["first_id"], row["last_id"], row["broker_id"]) == (40, 49, 7)
    assert (row["member"], row["file"]) == ("1", str(members[0].found("archive")[0]))
    assert row["detail"].startswith("an earlier audit saw IDs 40 to 49 of broker 7 at offset 4 (member 1, ")
    assert row["detail"].endswith("), which is in no file any more")


def test_blocks_that_are_gone_in_a_row_are_one_finding(quorum: Quorum) -> None:
    member = quorum.member(1)
    member.archive((0, 30))
    quorum.audit()
    without(member.found("archive")[0], 2, 3, 4, 9)
    rows = quorum.audit()
    assert facts(rows, "subject", "first_id", "last_id") == [("offset 9", 90, 99), ("offsets 2 to 4", 20, 49)]
    (row,) = [row for row in rows if row["offset"] == 2]
    assert "an earlier audit saw 3 blocks from IDs 20 to 29 of broker 7 at offset 2 (member 1, " in row["detail"]
    assert row["detail"].endswith(" on, up to ID 49 at offset 4; they are in no file any more")


def test_a_block_that_says_something_else_is_a_violation(quorum: Quorum) -> None:
    """Whatever of it changed."""
    member = quorum.member(1)
    member.archive((0, 10), (10, 30))
    quorum.audit()
    changes: list[dict[str, int]] = [
        {"first": 111},
        {"last": 128},
        {"broker_id": 9},
        {"broker_epoch": 4},
        {"timestamp_ms": 1_700_000_000_000},
    ]

    def edit(rows: list[Any]) -> None:
        for number, change in enumerate(changes, 1):
            rows[number] = msgspec.structs.replace(rows[number], **change)

    edit_archive(member.found("archive")[1], edit)
    rows = quorum.audit()
    assert facts(rows, "severity", "subject") == [("violation", f"offset {offset}") for offset in range(11, 16)]
    detail = next(row["detail"] for row in rows if row["offset"] == 13)
    assert "saw IDs 130 to 139 of broker 7 at offset 13 (" in detail
    assert "); the files now say IDs 130 to 139 of broker 9 at offset 13 (" in detail


@one_and_many
def test_a_change_is_told_until_files_have_the_block_again(quorum: Quorum) -> None:
    member = quorum.member(1)
    member.archive((0, 30))
    (path,) = member.found("archive")
    whole = path.read_bytes()
    quorum.audit()
    without(path, 4)
    (told,) = quorum.audit()
    assert quorum.audit() == [told]
    without(path, 7, 8)
    assert facts(quorum.audit(), "subject") == [("offset 4",), ("offsets 7 to 8",)]
    # The shard is judged anew, and neither of them has anything new.
    without(path, 20)
    assert facts(quorum.audit(), "subject") == [("offset 20",), ("offset 4",), ("offsets 7 to 8",)]
    path.write_bytes(whole)
    without(path, 7)
    assert facts(quorum.audit(), "subject") == [("offsets 7 to 8",)]
    path.write_bytes(whole)
    assert quorum.audit() == []
    assert quorum.audit() == []


def test_other_blocks_in_the_place_of_those_that_went_away_are_not_those(quorum: Quorum) -> None:
    member = quorum.member(1)
    member.archive((0, 30))
    (path,) = member.found("archive")
    whole = path.read_bytes()
    quorum.audit()
    without(path, 7, 8)
    assert facts(quorum.audit(), "subject") == [("offsets 7 to 8",)]
    path.write_bytes(whole)
    edit_archive(path, lambda rows: rows.__setitem__(7, msgspec.structs.replace(rows[7], broker_id=9)))
    (other,) = quorum.audit()
    assert "saw IDs 70 to 79 of broker 7 at offset 7 (" in other["detail"]
    assert "); the files now say IDs 70 to 79 of broker 9 at offset 7 (" in other["detail"]


def test_a_block_that_changes_twice_is_told_as_it_was_at_first(quorum: Quorum) -> None:
    member = quorum.member(1)
    member.archive((0, 10))
    (path,) = member.found("archive")
    whole = path.read_bytes()
    quorum.audit()
    without(path, 4)
    assert facts(quorum.audit(), "subject", "broker_id") == [("offset 4", 7)]
    path.write_bytes(whole)

    def edit(rows: list[Any]) -> None:
        rows[4] = msgspec.structs.replace(rows[4], broker_id=9)

    edit_archive(path, edit)
    (row,) = quorum.audit()
    assert "saw IDs 40 to 49 of broker 7 at offset 4 (" in row["detail"]
    assert "); the files now say IDs 40 to 49 of broker 9 at offset 4 (" in row["detail"]


@one_and_many
def test_a_whole_file_that_is_gone_is_told_of_the_blocks_and_of_the_member(quorum: Quorum) -> None:
    member = quorum.member(1)
    member.archive((0, 10), (10, 30))
    quorum.audit()
    member.found("archive")[1].unlink()
    rows = quorum.audit()
    assert {row["severity"] for row in rows if row["offset"] >= 10} == {"violation", "warning"}
    gone = [row for row in rows if row["severity"] == "violation"]
    assert (min(row["first_id"] for row in gone), max(row["last_id"] for row in gone)) == (100, 299)
    (lost,) = [row for row in rows if row["severity"] == "warning"]
    assert (lost["subject"], lost["member"]) == ("member 1, offsets 10 to 29", "1")
    assert lost["detail"].startswith(
        "an earlier audit saw offsets 10 to 29 in files of member 1, which has them no more"
    )
    assert lost["detail"].endswith("; no other member alone holds them all")


def test_a_disk_that_was_replaced_is_a_warning_that_says_who_holds_the_rest(quorum: Quorum) -> None:
    members = [quorum.member(node) for node in (1, 2, 3)]
    for member in members:
        member.archive((0, 10), (10, 30))
    quorum.audit()
    shutil.rmtree(members[2].path)
    quorum.member(3).archive((20, 30))
    (row,) = quorum.audit()
    assert (row["severity"], row["subject"], row["member"]) == ("warning", "member 3, offsets 0 to 19", "3")
    assert row["detail"] == (
        "an earlier audit saw offsets 0 to 19 in files of member 3, which has them no more; members 1, 2 hold them"
    )
    assert quorum.blocks == blocks(0, 30)


def test_a_member_that_is_not_there_any_more_is_a_warning(quorum: Quorum) -> None:
    members = [quorum.member(node) for node in (1, 2)]
    for member in members:
        member.archive((0, 30))
    quorum.audit()
    shutil.rmtree(members[1].path)
    assert facts(quorum.audit(), "severity", "subject") == [("warning", "member 2, offsets 0 to 29")]


def test_a_damaged_file_of_one_member_of_two_loses_no_block(quorum: Quorum) -> None:
    members = [quorum.member(node) for node in (1, 2)]
    for member in members:
        member.archive((0, 30))
    quorum.audit()
    members[0].found("archive")[0].write_bytes(b"PIDARCH1")
    assert facts(quorum.audit(), "severity", "subject") == [("warning", "member 1, offsets 0 to 29")]
    assert quorum.blocks == blocks(0, 30)


@one_and_many
def test_another_history_is_not_told_block_by_block_without_end(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MAX_CHANGES", 5)
    member = quorum.member(1)
    member.archive((0, 30))
    quorum.audit()

    def edit(rows: list[Any]) -> None:
        rows[:] = [msgspec.structs.replace(row, broker_id=9) for row in rows]

    edit_archive(member.found("archive")[0], edit)
    shards = {start for start, _ in quorum.shards if start < 30}
    assert len(quorum.audit()) == 5 * len(shards) <= 15


# What a quorum does.


def test_files_that_merge_change_nothing(quorum: Quorum) -> None:
    member = quorum.member(1)
    member.archive(*[(start, start + 2) for start in range(0, 2 * MAX_SMALL_FILES, 2)])
    assert quorum.audit() == []
    end = 2 * MAX_SMALL_FILES
    member.archive((end, end + 2))
    assert len(member.found("archive")) == 1
    assert quorum.audit() == []
    assert quorum.blocks == blocks(0, end + 2)


@one_and_many
def test_a_log_that_goes_to_the_archive_changes_nothing(quorum: Quorum) -> None:
    """And an archive that begins behind a block of the log, which the log has no more."""
    member = quorum.member(1)
    member.archive((0, 1))
    member.log(30, 25)
    assert quorum.audit() == []
    assert len(quorum.blocks) == 25
    member.archive((1, 25))
    for path in member.found("wal")[:-1]:
        path.unlink()
    member.snapshot(25, 25)
    assert quorum.audit() == []
    assert quorum.blocks == blocks(0, 25)


def test_members_that_come_change_nothing(quorum: Quorum) -> None:
    quorum.member(2).archive((0, 10), (10, 30))
    assert quorum.audit() == []
    quorum.member(1).archive((0, 30))
    quorum.member(3).archive((5, 20))
    assert quorum.audit() == []
    assert quorum.blocks == blocks(0, 30)


def test_one_copy_less_of_a_block_that_others_have_is_no_change(quorum: Quorum) -> None:
    members = [quorum.member(node) for node in (1, 2, 3)]
    for member in members:
        member.archive((0, 30))
    quorum.audit()
    without(members[0].found("archive")[0], 4)
    assert quorum.audit() == []


@settings(max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=4, max_size=24))
def test_every_block_is_there_once_whatever_was_merged_and_audited_when(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[int, bool]]
) -> None:
    monkeypatch.setattr(gathering, "SHARD_ROWS", 6)
    quorum = Quorum(tmp_path_factory.mktemp("audits"))
    member = quorum.member(1)
    total, audits = 0, 0
    for size, audited in [*steps, (1, True)]:
        member.archive((total, total + size))
        total += size
        if audited and audits < 4:
            audits += 1
            assert quorum.audit() == []
            assert quorum.blocks == blocks(0, total)
