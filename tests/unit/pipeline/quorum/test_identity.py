"""Whose files are left out of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from pidkeeper.pipeline.audit import AuditOptions, Outcome, look
from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum import logs
from pidkeeper.pipeline.quorum.identity import Foreign, Known, foreign_members, known_of
from pidkeeper.pipeline.quorum.loading import load
from tests.support.member_files import MemberFiles

KIN = Known("a", [])


def of(*foundings: tuple[int, str]) -> Known:
    """A member of cluster a."""
    return Known("a", list(foundings))


def left_out(known: Mapping[int, Known]) -> list[int]:
    return [one.member_id for one in foreign_members(known)]


def test_members_of_one_quorum_are_kin() -> None:
    assert left_out({}) == []
    assert left_out({1: KIN}) == []
    assert left_out({1: of((2, "f")), 2: of((2, "f"), (90, "f")), 3: KIN}) == []


def test_files_of_another_cluster_are_left_out_whoever_they_are_of() -> None:
    known = {1: KIN, 2: KIN, 7: Known("b", [(2, "f")])}
    assert foreign_members(known) == [Foreign(7, "these are files of cluster b, and cluster a is audited")]
    assert left_out({0: Known("b", []), **known}) == [0, 7], "the first by name of those that most are of"


def test_files_of_another_founding_are_left_out() -> None:
    assert foreign_members({1: of((2, "f")), 2: of((2, "g")), 3: of((2, "f"))}) == [
        Foreign(2, "by index 2 it is of founding g, and founding f is audited")
    ]


def test_a_member_that_is_behind_knows_what_the_others_knew() -> None:
    known = {1: of((2, "f"), (50, "g")), 2: of((60, "g")), 3: of((2, "f"), (40, "f"))}
    assert left_out(known) == []
    assert left_out({**known, 3: of((2, "f"), (55, "f"))}) == [3]


def test_what_files_say_is_what_most_of_them_say_and_only_what_is_committed() -> None:
    rows = {
        "clusters": [{"member_id": 1, "cluster_id": "b"}],
        "logs": [{"member_id": 1, "cluster_id": "a"}, {"member_id": 2, "cluster_id": "a"}],
        "snapshots": [
            {"member_id": 1, "cluster_id": "a", "index": 9, "founding_id": "f"},
            {"member_id": 2, "cluster_id": "a", "index": 9},
        ],
        "records": [
            {"member_id": 2, "index": index, "committed": committed, "record_type": kind, "founding_id": "g"}
            for index, committed, kind in [
                (4, True, "FoundingRecord"),
                (5, False, "FoundingRecord"),
                (6, True, "SuccessionRecord"),
            ]
        ],
    }
    with connect() as con:
        for name, table in rows.items():
            batches = pa.Table.from_pylist(table, schema=logs.TABLES[name]).to_batches()
            load(con, [(name, batch) for batch in batches], logs.TABLES)
        assert known_of(con) == {1: Known("a", [(9, "f")]), 2: Known("a", [(4, "g")])}


def look_at(*paths: Path) -> Outcome:
    place = paths[0].parent.parent / "out"
    return look(LocalEngine(), AuditOptions(AuditPaths([str(path) for path in paths]), locate(place)))


def test_a_foreign_member_is_one_finding_and_nothing_else_is_of_it(tmp_path: Path) -> None:
    """Its blocks of the same offsets have other owners: nothing is said of that, and nothing counts that it has."""
    members = [
        MemberFiles(tmp_path / "data" / str(node), node, cluster)
        for node, cluster in enumerate(["cluster-a", "cluster-a", "cluster-b"], 1)
    ]
    for member in members[:2]:
        member.archive((1, 10))
        member.log(20, 15)
    members[2].archive((5, 40))
    members[2].log(60, 55)
    members[2].snapshot(900, 900)
    alone, beside = look_at(*(member.path for member in members[:2])), look_at(*(member.path for member in members))
    before, after = (outcome.tables["findings"].to_pylist() for outcome in (alone, beside))
    told, *others = [row for row in after if row not in before]
    assert others == []
    assert [row for row in before if row not in after] == []
    assert (told["check"], told["severity"], told["subject"], told["member"]) == (
        "identity",
        "violation",
        "member 3",
        "3",
    )
    assert told["detail"] == (
        "these are files of cluster cluster-b, and cluster cluster-a is audited: it was left out, audit it apart"
    )
    assert (beside.verdict.blocks, beside.verdict.coverage.members) == (14, ["1", "2"])
    assert list(beside.held) == ["1", "2"]
    assert beside.verdict.coverage == alone.verdict.coverage
