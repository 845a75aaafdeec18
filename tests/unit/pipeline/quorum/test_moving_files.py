"""Audits of members that archive, merge and are sent snapshots between the listing of their files and the reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pidkeeper.controller.raft.messages import Entry, HardState
from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.pipeline.audit import AuditOptions, Outcome, keep, look
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum.coverage import holes
from pidkeeper.protocol.records import encode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.support.member_files import MemberFiles
from tests.support.sound_quorum import ARCHIVED, END, blocks, records, snapshot, write_quorum

T = TypeVar("T")


class Meddling(LocalEngine):
    """Lets something happen before anything is read."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens: Callable[[], None] | None = happens

    def map(self, kernel: Callable[[T], Iterator[Named]], parts: Sequence[T]) -> Iterator[Named]:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return super().map(kernel, parts)


def audited(path: Path, happens: Callable[[], None]) -> Outcome:
    return look(Meddling(happens), AuditOptions(AuditPaths([str(path / "data")], []), locate(path / "out")))


def told(outcome: Outcome) -> list[tuple[Any, ...]]:
    """Whatever is above a note."""
    rows = outcome.tables["findings"].to_pylist()
    return [(row["check"], row["subject"], row["detail"]) for row in rows if row["severity"] != "note"]


def merge(member: MemberFiles) -> None:
    for file in member.found("archive"):
        file.unlink()
    rewritten = AllocationArchive(member.files, member.path / "archive", member.meta.cluster_id)
    rewritten.append(blocks(ARCHIVED[0], ARCHIVED[-1]), ARCHIVED[0], ARCHIVED[-1])


def archive_the_log(member: MemberFiles, to: int = END - 5) -> None:
    """A snapshot is taken, the log before it archived, and the segments that it makes superfluous are removed."""
    archive = AllocationArchive(member.files, member.path / "archive", member.meta.cluster_id)
    archive.append(blocks(ARCHIVED[-1], to), ARCHIVED[-1], to)
    snapshot(member, to)
    log, _ = WriteAheadLog.open(member.files, member.path / "wal", member.meta, segment_bytes=2048)
    log.compact(to + 1)
    log.close()


@pytest.mark.parametrize("change", [merge, archive_the_log])
def test_what_moves_into_another_file_meanwhile_is_found_there(
    tmp_path: Path, change: Callable[[MemberFiles], None]
) -> None:
    members = write_quorum(tmp_path / "data")
    before = [[path.name for path in member.found("wal")] for member in members]

    def happens() -> None:
        for member in members:
            change(member)

    outcome = audited(tmp_path, happens)
    assert (told(outcome), outcome.verdict.verdict, outcome.verdict.blocks) == ([], "clean", END - 3)
    if change is archive_the_log:
        assert before != [[path.name for path in member.found("wal")] for member in members]


def test_a_snapshot_that_is_superfluous_meanwhile_is_no_file_that_cannot_be_read(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")

    def happens() -> None:
        for member in members:
            (old,) = member.found("snapshots")
            snapshot(member, END)
            old.unlink()

    outcome = audited(tmp_path, happens)
    assert (told(outcome), outcome.verdict.verdict, outcome.verdict.files_bad) == ([], "clean", 0)


def lag(member: MemberFiles, *, at: int) -> None:
    """It loses its log: the leader sent it a snapshot, behind which it goes on."""
    for file in member.found("wal"):
        file.unlink()
    snapshot(member, at)
    log, _ = WriteAheadLog.open(member.files, member.path / "wal", member.meta, segment_bytes=2048)
    log.restart_at(SnapshotId(at, 1), HardState(term=1, vote=1, commit=at))
    all_records = records()
    log.append([Entry(1, index, encode_batch([all_records[index - 1]])) for index in range(at + 1, END + 1)], None)
    log.append([], HardState(term=1, vote=1, commit=END))
    log.close()


def test_what_a_member_lost_by_a_snapshot_that_it_was_sent_is_a_note(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")
    keep(audited(tmp_path, lambda: None), locate(tmp_path / "out"))
    lag(members[0], at=END - 5)
    outcome = audited(tmp_path, lambda: None)
    lost = [row for row in outcome.tables["findings"].to_pylist() if row["check"] == "memory"]
    assert [(row["severity"], row["subject"]) for row in lost] == [("note", "member 1, offsets 60 to 84")]
    assert lost[0]["detail"].endswith("which has them no more; members 2, 3 hold them")
    assert told(outcome) == []


def test_what_is_lost_from_an_archive_is_a_warning_though_others_hold_it(tmp_path: Path) -> None:
    members = write_quorum(tmp_path / "data")
    keep(audited(tmp_path, lambda: None), locate(tmp_path / "out"))
    members[0].found("archive")[0].unlink()
    outcome = audited(tmp_path, lambda: None)
    assert [(check, subject) for check, subject, _ in told(outcome)] == [("memory", "member 1, offsets 0 to 39")]


def test_holes_are_within_what_was_asked_for() -> None:
    held = [(0, 5), (7, 9), (12, 20)]
    assert holes(held, 0, 3) == []
    assert holes(held, 0, 6) == [(5, 6)]
    assert holes(held, 0, 30) == [(5, 7), (9, 12), (20, 30)]
    assert holes(held, 6, 8) == [(6, 7)]
    for start, end in pairwise(range(0, 25, 3)):
        found = {offset for one in holes(held, start, end) for offset in range(*one)}
        assert found == {offset for offset in range(start, end) if not any(a <= offset < b for a, b in held)}
