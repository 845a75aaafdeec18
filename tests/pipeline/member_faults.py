"""Members' files that a foreign or broken writer left, or that are not there, and what an audit is to say of them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pidkeeper.controller.storage.archive import AllocationArchive
from pidkeeper.pipeline.audit import AuditOptions, run_audit
from pidkeeper.pipeline.checks import Checks
from pidkeeper.pipeline.checks.quorum.coverage import coverage
from pidkeeper.pipeline.checks.quorum.overlap import overlap
from pidkeeper.pipeline.checks.quorum.regress import regress
from pidkeeper.pipeline.checks.quorum.replicas_disagree import replicas_disagree
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.report import tables
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.messages import AllocatedBlock
from pidkeeper.protocol.metadata_version import FOUNDING
from tests.support.archive_edits import edit_archive
from tests.support.member_files import MemberFiles, blocks
from tests.support.quorum_tables import tiny_tables
from tests.support.raft_network import members

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMBERS: Final = 3
NAMED: Final = (
    ("overlap", overlap),
    ("regress", regress),
    ("replicas_disagree", replicas_disagree),
    ("coverage", coverage),
)
CHECKS: Final = Checks(NAMED, ())
AT: Final = 20
"""The row that is changed; its offset is one more."""

Fault = Callable[[MemberFiles], None]
"""Does something to the files of one member."""


def archive(member: MemberFiles, *bounds: int) -> None:
    """Files from each of these offsets to the next. The record at offset 0 is a leader's, so it has no block."""
    archived = AllocationArchive(member.files, member.path / "archive", member.meta.cluster_id)
    for start, end in pairwise(bounds):
        archived.append(blocks(max(start, 1), end), start, end)


def in_the_archive(edit: Callable[[list[AllocatedBlock]], None]) -> Fault:
    def fault(member: MemberFiles) -> None:
        edit_archive(min((member.path / "archive").iterdir()), edit)

    return fault


def given_twice(rows: list[AllocatedBlock]) -> None:
    before = rows[AT - 1]
    rows[AT] = msgspec.structs.replace(rows[AT], first=before.first, last=before.last, broker_id=8)


def given_in_part_twice(rows: list[AllocatedBlock]) -> None:
    rows[AT] = msgspec.structs.replace(rows[AT], first=rows[AT].first - 4)


def below_all(rows: list[AllocatedBlock]) -> None:
    rows[AT] = msgspec.structs.replace(rows[AT], first=0, last=9)


def other_owner(rows: list[AllocatedBlock]) -> None:
    rows[AT] = msgspec.structs.replace(rows[AT], broker_id=8)


def swapped(rows: list[AllocatedBlock]) -> None:
    rows[AT - 1 : AT + 1] = rows[AT], rows[AT - 1]


def repeated(rows: list[AllocatedBlock]) -> None:
    rows.insert(AT, rows[AT])


def cut_short(member: MemberFiles) -> None:
    file = min((member.path / "archive").iterdir())
    file.write_bytes(file.read_bytes()[:-48])


def without_its_first_file(member: MemberFiles) -> None:
    min((member.path / "archive").iterdir()).unlink()


def without_its_second_file(member: MemberFiles) -> None:
    sorted((member.path / "archive").iterdir())[1].unlink()


def without_anything(member: MemberFiles) -> None:
    shutil.rmtree(member.path)
    member.path.mkdir()


class Said(NamedTuple):
    """The verdict, the checks that found a violation with its subject, and what was not seen."""

    verdict: str
    violations: set[tuple[str, str]]
    unseen: list[str]


def of_another_cluster(member: MemberFiles) -> None:
    shutil.rmtree(member.path)
    stranger = MemberFiles(member.path, member.meta.node_id, "cluster-b")
    archive(stranger, 0, 70)


def without_a_fourth(member: MemberFiles) -> None:
    """All members say that there is one more, whose files nobody has brought."""
    member.snapshot(80, 80, version=FOUNDING, voters=members(1, 2, 3, 4))


def of_another_founding(member: MemberFiles) -> None:
    founding = FoundingRecord(uuid.UUID(int=min(member.meta.node_id, 2)), 10, False, 1_700_000_000_000)
    member.snapshot(80, 80, version=FOUNDING, founding=founding)


class Case(NamedTuple):
    """A fault of all members alike, or of the first one alone, and what is said of it."""

    name: str
    fault: Fault
    of_all: bool
    said: Said


MALFORMED: Final = ["3 files could not be read, or not wholly"]
NOTHING: Final = "no file of a member told of any log offset: of the quorum nothing was audited"

CASES: Final = (
    Case("nothing wrong", lambda _: None, True, Said("clean", set(), [])),
    Case(
        "IDs given twice in one file",
        in_the_archive(given_twice),
        True,
        Said("violations", {("overlap", "IDs 200 to 209")}, MALFORMED),
    ),
    Case(
        "some IDs given twice in one file",
        in_the_archive(given_in_part_twice),
        True,
        Said("violations", {("overlap", "IDs 206 to 209")}, MALFORMED),
    ),
    Case(
        "a block below those before it",
        in_the_archive(below_all),
        True,
        Said("violations", {("regress", "IDs 0 to 9")}, MALFORMED),
    ),
    Case("rows swapped", in_the_archive(swapped), True, Said("incomplete", set(), MALFORMED)),
    Case("a row repeated", in_the_archive(repeated), True, Said("incomplete", set(), MALFORMED)),
    Case(
        "a file cut short",
        cut_short,
        True,
        Said("incomplete", set(), [*MALFORMED, "log offsets 0 to 39 are in no file"]),
    ),
    Case(
        "the first file gone",
        without_its_first_file,
        True,
        Said("incomplete", set(), ["log offsets 0 to 39 are in no file"]),
    ),
    Case(
        "a file in the middle gone",
        without_its_second_file,
        True,
        Said("violations", {("coverage", "offsets 40 to 59")}, ["log offsets 40 to 59 are in no file"]),
    ),
    Case("nothing there", without_anything, True, Said("incomplete", set(), [NOTHING])),
    Case(
        "another owner",
        in_the_archive(other_owner),
        False,
        Said("violations", {("replicas_disagree", "offset 21, member 1")}, []),
    ),
    Case(
        "a file of one member cut short",
        cut_short,
        False,
        Said("incomplete", set(), ["1 file could not be read, or not wholly"]),
    ),
    Case(
        "a member of another cluster",
        of_another_cluster,
        False,
        Said("violations", {("identity", "member 1")}, []),
    ),
    Case(
        "a member of another founding",
        of_another_founding,
        True,
        Said("violations", {("identity", "member 1")}, []),
    ),
    Case(
        "a voter of whom there is nothing",
        without_a_fourth,
        True,
        Said("incomplete", set(), ["nothing was read of voter 4"]),
    ),
    Case("a file gone that others have", without_its_first_file, False, Said("clean", set(), [])),
)


def said_of(spark: SparkSession, directory: Path, case: Case) -> Said:
    """Write the files of three members, spoil them, and audit them."""
    for node in range(1, MEMBERS + 1):
        member = MemberFiles(directory / "data" / str(node), node)
        archive(member, 0, 40, 60, 80)
        if case.of_all or node == 1:
            case.fault(member)
    out = directory / "out"
    with tiny_tables(spark):
        verdict = run_audit(spark, AuditOptions(AuditPaths([str(directory / "data")]), out), CHECKS)
        found = tables.read(spark, out, "findings").where("severity = 'violation'").collect()
    return Said(verdict.verdict, {(row.check, row.subject) for row in found}, verdict.coverage.unseen)
