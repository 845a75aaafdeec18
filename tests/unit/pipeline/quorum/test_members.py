"""Whose files there are, and by which numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.ledger import Registry
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum.members import MAX_MEMBERS, Members, TooManyMembersError, list_members
from tests.support.member_evidence import listed
from tests.support.member_files import MemberFiles


def sources(members: Members, name: str) -> list[tuple[str, str]]:
    (member,) = [one for one in members.members if one.name == name]
    mine = (file for file in members.files if file.member_id == member.member_id)
    return [(file.source, file.found.location.name) for file in mine]


def test_a_member_is_the_node_of_the_meta_json_around_its_folders(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "data", 4)
    member.archive((0, 3))
    member.snapshot(3, 3)
    member.log(5, 5)
    (path,) = member.found("archive")
    found = listed(tmp_path)
    (one,) = found.members
    assert (one.name, one.owner and one.owner.node_id) == ("4", 4)
    assert sources(found, "4")[:2] == [("archive", path.name), ("snapshot", member.found("snapshots")[0].name)]
    assert [source for source, _ in sources(found, "4")[2:]] == ["log"] * len(member.found("wal"))
    assert [file.found.size for file in found.files if file.source == "archive"] == [path.stat().st_size]


def test_files_beside_a_meta_json_are_of_its_node_and_those_without_one_are_of_their_folder(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "data", 4)
    member.archive((0, 3))
    (path,) = member.found("archive")
    for folder in ("beside", "alone"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    (tmp_path / "beside" / "meta.json").write_bytes((member.path / "meta.json").read_bytes())
    found = listed(tmp_path)
    assert [one.name for one in found.members] == [str(tmp_path / "alone"), "4"]
    assert len(sources(found, "4")) == 2


def test_members_of_two_clusters_under_one_node_id_are_two(tmp_path: Path) -> None:
    for cluster in "ab":
        MemberFiles(tmp_path / cluster, 1, f"cluster-{cluster}").log(3, 3)
    found = listed(tmp_path)
    assert [(one.name, one.owner and one.owner.cluster_id) for one in found.members] == [
        ("1", "cluster-a"),
        ("1", "cluster-b"),
    ]


def test_a_file_that_was_named_twice_is_one_and_a_file_of_another_kind_is_none(tmp_path: Path) -> None:
    member = MemberFiles(tmp_path / "1")
    member.archive((0, 3))
    (path,) = member.found("archive")
    (path.parent / "notes.txt").write_text("notes")
    assert len(listed(tmp_path, path, path.parent).files) == 1
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        listed(tmp_path / "none")


def test_more_members_than_can_be_counted_are_refused(tmp_path: Path) -> None:
    """Nothing is counted wrong in silence: members are bits of a long."""
    for number in range(MAX_MEMBERS):
        (tmp_path / f"{number:02}").mkdir()
        (tmp_path / f"{number:02}" / "some.arc").touch()
    found = listed(tmp_path)
    assert [one.member_id for one in found.members] == list(range(MAX_MEMBERS))
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "some.arc").touch()
    with pytest.raises(TooManyMembersError, match=f"more than {MAX_MEMBERS} members: audit them in parts"):
        listed(tmp_path)


def test_members_that_an_earlier_audit_knew_count_too(tmp_path: Path) -> None:
    """Their numbers stay, so that those of other members get higher and higher."""
    registry = Registry()
    for number in range(MAX_MEMBERS):
        registry.member(f"of an earlier audit, {number}", "")
    MemberFiles(tmp_path / "1").log(3, 3)
    with pytest.raises(TooManyMembersError):
        list_members(AuditPaths([str(tmp_path)]), registry)
