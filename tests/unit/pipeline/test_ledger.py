"""What an output directory remembers of audits, and what counts of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pidkeeper.pipeline.audit import AuditOptions, keep, look, run_audit
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import Location, locate
from pidkeeper.pipeline.ledger import (
    VERSION,
    Commit,
    KnownFile,
    KnownMember,
    KnownShard,
    Ledger,
    LedgerError,
    Registry,
    evidence_of,
)
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum import evidence, gathering
from pidkeeper.pipeline.verdict import Coverage, Verdict, Watermark
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles, blocks

VERDICT = Verdict(
    verdict="clean",
    violations=0,
    warnings=0,
    notes=0,
    checks={},
    files_read=0,
    files_bad=0,
    bad_files=[],
    blocks=0,
    ids=0,
    batches=0,
    brokers=0,
    highest_id=None,
    first_ms=None,
    last_ms=None,
    watermark=Watermark(),
    coverage=Coverage(),
    pidkeeper_version="1",
)


def commit_of(number: int, run: str, shards: list[KnownShard]) -> Commit:
    return Commit(number, run, 1_700_000_000_000, VERDICT, shards=shards)


def newest(ledger: Ledger) -> Commit:
    commit = ledger.newest()
    assert commit is not None
    return commit


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(locate(tmp_path / "out"))


def options(tmp_path: Path) -> AuditOptions:
    return AuditOptions(AuditPaths([str(tmp_path / "data")]), locate(tmp_path / "out"))


# Numbers.


def test_members_and_files_keep_their_numbers_and_those_that_come_get_higher_ones() -> None:
    first = Registry()
    assert [first.member(name, "c") for name in ("1", "2", "1")] == [0, 1, 0]
    assert [first.file("log", member, path) for member, path in ((0, "/a"), (1, "/a"), (0, "/a"))] == [0, 1, 0]
    assert first.next_file == 2
    second = Registry(first.members, first.files)
    assert [second.member("0", "c"), second.member("2", "c"), second.member("2", "d")] == [2, 1, 3]
    assert [second.file("log", 1, "/b"), second.file("log", 1, "/a")] == [2, 1]
    assert second.next_file == 3
    assert second.members == [
        KnownMember(0, "1", "c"),
        KnownMember(1, "2", "c"),
        KnownMember(2, "0", "c"),
        KnownMember(3, "2", "d"),
    ]
    assert second.files[0] == KnownFile(0, "log", 0, "/a")


def test_numbers_stay_from_audit_to_audit_also_of_what_is_gone(tmp_path: Path, ledger: Ledger) -> None:
    two = MemberFiles(tmp_path / "data" / "2", 2)
    two.archive((0, 5), (5, 9))
    gone = two.found("archive")[0]
    run_audit(LocalEngine(), options(tmp_path))
    before = newest(ledger)
    gone.unlink()
    MemberFiles(tmp_path / "data" / "1", 1).archive((0, 9))
    run_audit(LocalEngine(), options(tmp_path))
    after = newest(ledger)
    assert [(one.member_id, one.name) for one in after.members] == [(0, "2"), (1, "1")]
    assert [(one.member_id, one.name) for one in before.members] == [(0, "2")]
    assert after.files[:2] == before.files
    assert (after.files[0].path, after.files[2].path) == (
        str(gone),
        str(tmp_path / "data/1/archive" / f"{0:020}-{9:020}.arc"),
    )


# What counts.


def test_where_nothing_was_audited_nothing_counts(ledger: Ledger) -> None:
    assert ledger.newest() is None
    assert ledger.begin(None).number == 1


def test_the_newest_commit_counts_and_all_stay(tmp_path: Path, ledger: Ledger) -> None:
    for number in (1, 2):
        last = ledger.newest()
        run = ledger.begin(last)
        assert run.number == number
        run.finish(commit_of(number, run.name, []))
    assert newest(ledger).number == 2
    assert ledger.commit(1).run.startswith("00000001-")
    (tmp_path / "out/commits/notes.json").write_text("{}")
    assert newest(ledger).number == 2


def test_a_run_that_did_not_end_counts_for_nothing(tmp_path: Path, ledger: Ledger) -> None:
    MemberFiles(tmp_path / "data" / "1").archive((0, 9))
    outcome = look(LocalEngine(), options(tmp_path))
    assert list((tmp_path / "out/blocks").iterdir()) != []
    assert ledger.newest() is None
    verdict = run_audit(LocalEngine(), options(tmp_path))
    assert (verdict.blocks, newest(ledger).number) == (9, 1)
    assert newest(ledger).run != outcome.run.name


def test_of_two_that_end_at_once_one_is_refused_and_the_other_counts(tmp_path: Path, ledger: Ledger) -> None:
    """Whatever one has removed of the blocks: the other one ends with the message, and what counts is whole."""
    member = MemberFiles(tmp_path / "data" / "1")
    member.archive((0, 9))
    for number in (1, 2):
        one, two = (look(LocalEngine(), options(tmp_path)) for _ in range(2))
        assert one.run.number == two.run.number == number
        keep(two, options(tmp_path).out)
        with pytest.raises(LedgerError, match=r"another audit has finished in .* meanwhile: run this one again"):
            keep(one, options(tmp_path).out)
        assert newest(ledger).run == two.run.name
        assert all((tmp_path / "out" / shard.blocks).exists() for shard in newest(ledger).shards)
        member.archive((9 * number, 9 * number + 9))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: data[:50], "cannot be read .*: bring it back, or name another --out and audit everything again"),
        (lambda data: b"", "cannot be read .*: bring it back, or name another --out"),
        (lambda data: b'{"version": 1}', "cannot be read .*: bring it back, or name another --out"),
        (lambda data: b'{"version": 2}', f"is of version 2, this build knows {VERSION}: name another --out"),
    ],
)
def test_a_commit_that_cannot_be_read_ends_it_with_what_to_do(
    tmp_path: Path, ledger: Ledger, spoil: Any, said: str
) -> None:
    MemberFiles(tmp_path / "data" / "1").archive((0, 9))
    run_audit(LocalEngine(), options(tmp_path))
    path = tmp_path / "out/commits/00000001.json"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(LedgerError, match=f"{re.escape(str(path))} {said}"):
        ledger.newest()
    with pytest.raises(LedgerError, match=said):
        run_audit(LocalEngine(), options(tmp_path))


def test_what_counts_is_read_as_it_was_written(ledger: Ledger) -> None:
    run = ledger.begin(None)
    shards = [KnownShard(0, 0, 2**63 - 1, "sum", run.name, run.blocks_name(0))]
    commit = msgspec.structs.replace(
        commit_of(1, run.name, shards),
        members=[KnownMember(0, "1", "")],
        files=[KnownFile(0, "archive", 0, "s3://b/a")],
        held={"1": [(0, 10), (20, 30)]},
    )
    run.finish(commit)
    assert ledger.newest() == commit


# Blocks that no shard has any more.


def test_blocks_that_are_obsolete_are_swept_and_nothing_else(tmp_path: Path, ledger: Ledger) -> None:
    place = tmp_path / "out/blocks"
    place.mkdir(parents=True)
    names = {
        "kept": "00000001-aaaaaaaa-000000.parquet",
        "replaced": "00000001-aaaaaaaa-000001.parquet",
        "of a run that died": "00000002-bbbbbbbb-000001.parquet",
        "half of a file": ".00000002-bbbbbbbb-000002.parquet.0123abcd",
        "of one that may end yet": "00000003-cccccccc-000000.parquet",
        "half of its file": ".00000003-cccccccc-000001.parquet.0123abcd",
        "of a later one": "00000004-dddddddd-000001.parquet",
        "somebody's": "notes.txt",
        "with a number": "20240101-notes.parquet",
    }
    for name in names.values():
        (place / name).touch()
    commit = commit_of(2, "00000002-eeeeeeee", [])
    ledger.begin(None).finish(msgspec.structs.replace(commit, number=1))
    run = ledger.begin(commit)
    own = run.blocks_name(1).rpartition("/")[2]
    (place / own).touch()
    blocks_of = {0: f"blocks/{names['kept']}", 1: run.blocks_name(1)}
    shards = [KnownShard(number, number, number + 1, "", "", name) for number, name in blocks_of.items()]
    run.finish(commit_of(3, run.name, shards))
    left = {path.name for path in place.iterdir()}
    assert {what for what, name in names.items() if name not in left} == {
        "replaced",
        "of a run that died",
        "half of a file",
    }
    assert own in left


def test_where_nothing_may_be_deleted_an_audit_counts_all_the_same(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    obsolete = tmp_path / "out/blocks/00000001-aaaaaaaa-000001.parquet"
    obsolete.parent.mkdir(parents=True)
    obsolete.touch()
    first = commit_of(1, "00000001-eeeeeeee", [])
    ledger.begin(None).finish(first)

    def refused(self: Location) -> None:
        raise PermissionError(f"no right to delete {self}")

    monkeypatch.setattr(Location, "delete", refused)
    run = ledger.begin(first)
    run.finish(commit_of(2, run.name, []))
    newest = ledger.newest()
    assert newest is not None
    assert (newest.number, obsolete.exists()) == (2, True)


def test_an_audit_leaves_the_blocks_of_its_shards_alone(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "SHARD_ROWS", 10)
    member = MemberFiles(tmp_path / "data" / "1")
    member.archive((0, 10), (10, 30))
    run_audit(LocalEngine(), options(tmp_path))
    for _ in range(2):
        edit_archive(member.found("archive")[1], lambda rows: rows.pop(5))
        run_audit(LocalEngine(), options(tmp_path))
    commit = newest(ledger)
    runs = {shard.run for shard in commit.shards}
    assert len(runs) == 2, "the first shard is as the first audit left it"
    there = {f"blocks/{path.name}" for path in (tmp_path / "out/blocks").iterdir()}
    due = {shard.blocks for shard in commit.shards}
    assert due <= there
    run_audit(LocalEngine(), options(tmp_path))
    assert {f"blocks/{path.name}" for path in (tmp_path / "out/blocks").iterdir()} == due


# Evidence of shards that are settled.


def test_evidence_of_settled_shards_comes_back_and_that_of_others_does_not(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "SHARD_ROWS", 10)
    for node in (1, 2):
        member = MemberFiles(tmp_path / "data" / str(node), node)
        member.archive((0, 10), (10, 30))
    edit_archive(member.found("archive")[1], lambda rows: rows.pop(5))
    outcome = look(LocalEngine(), options(tmp_path))
    keep(outcome, options(tmp_path).out)
    shards = newest(ledger).shards
    assert len(shards) == 7
    for wanted in (shards, shards[1:2], shards[3:], []):
        numbers = {shard.number for shard in wanted}
        back = list(evidence_of(ledger, wanted, evidence.OF_SHARDS))
        for name, table in outcome.evidence.items():
            due = [row for row in table.to_pylist() if row["shard"] in numbers]
            assert [row for one, batch in back if one == name for row in batch.to_pylist()] == due, name
            assert all(batch.schema == evidence.OF_SHARDS[name] for one, batch in back if one == name)
    assert {name for name, table in outcome.evidence.items() if table.num_rows} >= {"shards", "id_runs", "absent"}


def test_blocks_of_all_runs_together_are_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SHARD_ROWS", 10)
    member = MemberFiles(tmp_path / "data" / "1")
    for start in (0, 30, 33):
        member.archive((start, 30 if start == 0 else start + 3))
        outcome = look(LocalEngine(), options(tmp_path))
        keep(outcome, options(tmp_path).out)
    rows = outcome.blocks.table().to_pylist()
    assert [(row["offset"], row["first_id"]) for row in rows] == [(one.offset, one.first) for one in blocks(0, 36)]
