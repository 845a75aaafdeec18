"""Files of members and of a broker for a small audit, and what two audits of the same files have in common."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.ledger import RUNS, Ledger
from pidkeeper.pipeline.report.tables import WRITTEN
from pidkeeper.pipeline.verdict import Verdict
from tests.support.member_files import MemberFiles
from tests.support.segment_builder import batch
from tests.support.sound_quorum import write_quorum

GOLDEN: Final = Path(__file__).parent / "golden"
SEGMENTS: Final = ("plain-0", "transactional-0", "torn-0")


def write_files(path: Path) -> list[MemberFiles]:
    """Three members, and the segments of a broker, one of them torn; the members."""
    for name in SEGMENTS:
        shutil.copytree(GOLDEN / name, path / "kafka" / name, ignore=shutil.ignore_patterns("*.json"))
    (path / "kafka" / "meta.properties").write_text("node.id=3\n")
    return write_quorum(path / "data")


def grow(path: Path) -> str:
    """One segment gets a batch more; the segment as a path below `path`."""
    segment = path / "kafka" / "plain-0" / f"{100:020d}.log"
    segment.write_bytes(segment.read_bytes() + batch(10_000))
    return str(segment.relative_to(path))


def comparable(verdict: Verdict, where: str) -> Verdict:
    """Without times, and with paths below the directory of all files."""
    bad = [msgspec.structs.replace(one, file=one.file.removeprefix(where)) for one in verdict.bad_files]
    return msgspec.structs.replace(verdict, wall_seconds=0, files_read_anew=0, bad_files=bad)


def table(out: Location, name: str) -> list[dict[str, Any]]:
    """A table of the newest audit; or its blocks."""
    commit = Ledger(out).newest()
    assert commit is not None
    if name == "blocks":
        places = [out / shard.blocks for shard in commit.shards]
    else:
        places = [out / RUNS / commit.run / f"{name}.parquet"]
    found: list[dict[str, Any]] = []
    for place in places:
        with place.open() as file:
            found += pq.read_table(file).to_pylist()
    return found


def rows(out: Location, where: str) -> dict[str, list[str]]:
    """All that the newest audit left, by table: the rows without paths above `where`."""
    return {name: sorted(repr(row).replace(where, "") for row in table(out, name)) for name in (*WRITTEN, "blocks")}
