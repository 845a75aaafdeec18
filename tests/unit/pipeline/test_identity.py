"""Whose files are left out of an audit."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the facts are gathered with Spark, which is not installed")

from pidkeeper.pipeline.identity import Known, Member, foreign_members

ONE, TWO, THREE = (Member(member, "a") for member in "123")


def left_out(known: Known) -> list[Member]:
    return [one.member for one in foreign_members(known)]


def test_members_of_one_quorum_are_kin() -> None:
    assert left_out({}) == []
    assert left_out({ONE: []}) == []
    assert left_out({ONE: [(2, "f")], TWO: [(2, "f"), (90, "f")], THREE: []}) == []


def test_files_of_another_cluster_are_left_out_even_under_the_same_name() -> None:
    other = Member("1", "b")
    assert left_out({ONE: [], TWO: [], other: []}) == [other]
    [told] = foreign_members({ONE: [], TWO: [], other: []})
    assert told.detail == "these are files of cluster b, and cluster a is audited"


def test_files_of_another_founding_are_left_out() -> None:
    assert left_out({ONE: [(2, "f")], TWO: [(2, "g")], THREE: [(2, "f")]}) == [TWO]


def test_a_member_that_is_behind_knows_what_the_others_knew() -> None:
    known = {ONE: [(2, "f"), (50, "g")], TWO: [(60, "g")], THREE: [(2, "f"), (40, "f")]}
    assert left_out(known) == []
    assert left_out({**known, THREE: [(2, "f"), (55, "f")]}) == [THREE]
