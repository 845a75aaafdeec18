"""Files of members and of a broker for a small audit, and what two audits of the same files have in common."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pidkeeper.pipeline.checks import Checks
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.verdict import Verdict
from tests.pipeline.stand_ins import overlap, repeated
from tests.support.member_files import MemberFiles
from tests.support.segment_builder import batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKS: Final = Checks((("overlap", overlap),), (("repeated", repeated),))
GOLDEN: Final = Path(__file__).parent / "golden"
SEGMENTS: Final = ("plain-0", "transactional-0", "torn-0")


def write_files(path: Path) -> MemberFiles:
    """Two members, and the segments of a broker, one of them torn; the first member."""
    members = [MemberFiles(path / "data" / str(node), node) for node in (1, 2)]
    for member in members:
        member.archive((1, 40))
        member.log(60, 50)
    for name in SEGMENTS:
        shutil.copytree(GOLDEN / name, path / "kafka" / name, ignore=shutil.ignore_patterns("*.json"))
    (path / "kafka" / "meta.properties").write_text("node.id=3\n")
    return members[0]


def grow(path: Path, member: MemberFiles) -> list[str]:
    """One archive file more, and one segment with a batch more; both as paths below `path`."""
    member.archive((40, 45))
    segment = path / "kafka" / "plain-0" / f"{100:020d}.log"
    segment.write_bytes(segment.read_bytes() + batch(10_000))
    return [str(file.relative_to(path)) for file in (member.found("archive")[-1], segment)]


def comparable(verdict: Verdict, where: str) -> Verdict:
    """Without times, and with paths below the directory of all files."""
    bad = [msgspec.structs.replace(one, file=one.file.removeprefix(where)) for one in verdict.bad_files]
    return msgspec.structs.replace(verdict, wall_seconds=0, bad_files=bad)


def rows(spark: SparkSession, out: str | Path, name: str, where: str) -> list[str]:
    found: list[Any] = tables.read(spark, out, name).drop("day").collect()
    return sorted(repr(row).replace(where, "") for row in found)
