"""What the kernels of the quorum tell of data directories: rows by table, with names beside the numbers."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.ledger import Registry
from pidkeeper.pipeline.paths import AuditPaths
from pidkeeper.pipeline.quorum.gathering import END
from pidkeeper.pipeline.quorum.logs import read_member
from pidkeeper.pipeline.quorum.members import Members, list_members
from pidkeeper.pipeline.quorum.shard import ArchiveOf, Shard, ShardTask, judge_task
from pidkeeper.protocol.messages import AllocatedBlock

Row = dict[str, Any]
Tables = dict[str, list[Row]]


class Archived(NamedTuple):
    """What archives tell: blocks in the order of the log, and all else by table."""

    blocks: list[AllocatedBlock]
    tables: Tables


def listed(*paths: Path) -> Members:
    """The members whose files are there."""
    return list_members(AuditPaths([str(path) for path in paths]), Registry())


def told(*paths: Path) -> Tables:
    """The evidence of logs and snapshots, and what is wrong with them."""
    members = listed(*paths)
    return named(members, (row for member in members.members for row in read_member(member)))


def archives_of(members: Members) -> list[ArchiveOf]:
    """The archives, as a task gets them."""
    return [
        ArchiveOf(member.member_id, member.cluster_id, files.folder, files.names)
        for member in members.members
        for files in member.archives
    ]


def archived(*paths: Path, cuts: Sequence[int] = ()) -> Archived:
    """The blocks and the evidence of archives; `cuts`: log offsets between two shards."""
    return judged(listed(*paths), cuts)


def judged(members: Members, cuts: Sequence[int] = ()) -> Archived:
    """The same for files that were listed before."""
    with tempfile.TemporaryDirectory(prefix="blocks-") as directory:
        place = locate(directory)
        bounds = enumerate(pairwise([0, *cuts, END]))
        shards = [Shard(number, *ends, blocks_to=place / f"{number:06}.parquet") for number, ends in bounds]
        tables = named(members, judge_task(ShardTask(shards, archives_of(members))))
        found = pa.concat_tables([pq.read_table(path) for path in sorted(Path(directory).iterdir())])
    return Archived([block_of(row) for row in found.to_pylist()], tables)


def named(members: Members, found: Iterable[Named]) -> Tables:
    """Rows of evidence by table; `member` and `path` are the names of `member_id` and `file_id`."""
    names = {member.member_id: member.name for member in members.members}
    paths = {file.file_id: str(file.found.location) for file in members.files}
    tables: Tables = defaultdict(list)
    for name, batch in found:
        for row in batch.to_pylist():
            known = {"member": names.get(row.get("member_id")), "path": paths.get(row.get("file_id"))}
            tables[name].append(row | {key: value for key, value in known.items() if value is not None})
    return tables


def block_of(row: Row) -> AllocatedBlock:
    """The block of a row, of an archive or of a log."""
    names = ("first_id", "last_id", "broker_id", "broker_epoch", "offset", "timestamp_ms")
    return AllocatedBlock(*(row[name] for name in names))
