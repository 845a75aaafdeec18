"""Whose files are left out of an audit."""

from __future__ import annotations

from pidkeeper.pipeline.quorum.identity import Known, foreign_members

ONE, TWO, THREE, OTHER = range(4)


def kin(**foundings: list[tuple[int, str]]) -> dict[int, Known]:
    """Members of cluster a."""
    numbers = {"one": ONE, "two": TWO, "three": THREE}
    return {numbers[name]: Known("a", told) for name, told in foundings.items()}


def left_out(known: dict[int, Known]) -> list[int]:
    return [one.member_id for one in foreign_members(known)]


def test_members_of_one_quorum_are_kin() -> None:
    assert left_out({}) == []
    assert left_out(kin(one=[])) == []
    assert left_out(kin(one=[(2, "f")], two=[(2, "f"), (90, "f")], three=[])) == []


def test_files_of_another_cluster_are_left_out() -> None:
    known = kin(one=[], two=[]) | {OTHER: Known("b", [])}
    assert left_out(known) == [OTHER]
    [told] = foreign_members(known)
    assert told.detail == "these are files of cluster b, and cluster a is audited"


def test_files_of_another_founding_are_left_out() -> None:
    assert left_out(kin(one=[(2, "f")], two=[(2, "g")], three=[(2, "f")])) == [TWO]


def test_a_member_that_is_behind_knows_what_the_others_knew() -> None:
    known = kin(one=[(2, "f"), (50, "g")], two=[(60, "g")], three=[(2, "f"), (40, "f")])
    assert left_out(known) == []
    assert left_out(known | kin(three=[(2, "f"), (55, "f")])) == [THREE]
