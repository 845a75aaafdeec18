"""One shard of the quorum's history: a range of log offsets, in all members' archives, and what their logs have of it.

The files of a member are read once in a task, which has shards that lie side by side, and the rows of each are judged
beside the other members' rows of the same offsets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import from_blob
from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import write_parquet
from pidkeeper.pipeline.formats.archive import (
    MAX_FILE_BYTES,
    FileName,
    Piece,
    as_problem,
    file_name,
    read_span,
    read_whole,
    within,
)
from pidkeeper.pipeline.formats.archive_rows import Columns, FileRows
from pidkeeper.pipeline.formats.problems import FOREIGN, BadFile, Problem
from pidkeeper.pipeline.limits import DEFAULT, Limits
from pidkeeper.pipeline.quorum import evidence
from pidkeeper.pipeline.quorum.blocks import (
    BLOCKS_SQL,
    Cover,
    History,
    distinct_blocks,
    judge_copies,
    judge_ids,
    judge_order,
    judge_snapshots,
)
from pidkeeper.pipeline.quorum.brokers import judge_brokers, judge_hours, judge_registrations
from pidkeeper.pipeline.quorum.memory import judge_changes

KEPT_FILES: Final = 2
"""Of each member: a shard mostly ends within a file."""
OTHERS: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("member_id", pa.int32()),
        ("file_id", pa.int32()),
        ("position", pa.int64()),
        ("record_type", pa.string()),
    ]
)
"""Records in members' logs that are no blocks, by their offsets."""
REGISTERED: Final = pa.schema([("broker_id", pa.int32()), ("offset", pa.int64()), ("broker_epoch", pa.int64())])


class ArchiveOf(msgspec.Struct, frozen=True):
    """The archive files of one member that have offsets of a task, by name, and the number of each."""

    member_id: int
    cluster_id: str | None
    folder: Location
    files: dict[str, int]


class Shard(msgspec.Struct, frozen=True):
    """Log offsets `from_offset` to before `to_offset`, with what logs have of them as blobs (see `engine.blobs`).

    logged: `evidence.COPIES`; others: OTHERS; registered: REGISTERED. Empty for none. blocks_to: the Parquet file for
    the blocks. before: those of an earlier audit that have offsets of it.
    """

    number: int
    from_offset: int
    to_offset: int
    logged: bytes = b""
    others: bytes = b""
    registered: bytes = b""
    blocks_to: Location | None = None
    before: list[Location] = []


class ShardTask(msgspec.Struct, frozen=True):
    """Shards side by side. snapshot_ends: `next_offset` of every snapshot."""

    shards: list[Shard]
    archives: list[ArchiveOf]
    snapshot_ends: list[int] = []
    limits: Limits = DEFAULT


def judge_task(task: ShardTask) -> Iterator[Named]:
    """The evidence of all shards of a task."""
    readers = [_Archive(archive) for archive in task.archives]
    for shard in task.shards:
        for name, batch in _judge_shard(task, shard, readers):
            yield name, evidence.of_shard(shard.number, name, batch)


def _judge_shard(task: ShardTask, shard: Shard, readers: list[_Archive]) -> Iterator[Named]:
    covers: list[Cover] = []
    copies = [_blob(shard.logged, evidence.COPIES)]
    for reader in readers:
        for item in reader.read(shard):
            if isinstance(item, Cover):
                covers.append(item)
            elif isinstance(item, pa.Table):
                copies.append(item)
            else:
                yield item
    with connect() as con:
        history = distinct_blocks(con, pa.concat_tables(copies))
        yield from judge_history(con, history, shard, covers, task.snapshot_ends, task.limits)
        if shard.before:
            yield from judge_changes(con, shard.before, shard.from_offset, shard.to_offset)
        if shard.blocks_to is not None:
            write_parquet(shard.blocks_to, con.sql(BLOCKS_SQL).to_arrow_table().cast(evidence.BLOCKS))


def judge_history(
    con: Any, history: History, shard: Shard, covers: list[Cover], snapshot_ends: list[int], limits: Limits
) -> Iterator[Named]:
    """All that the blocks of a shard show."""
    if not len(history):
        return
    yield from judge_order(shard.number, history)
    yield from judge_ids(con, shard.number, history)
    yield from judge_copies(con, history, covers, _blob(shard.others, OTHERS))
    yield from judge_snapshots(history, snapshot_ends, shard.from_offset, shard.to_offset)
    yield from judge_registrations(con, history, _blob(shard.registered, REGISTERED))
    yield from judge_brokers(shard.number, history, limits)
    yield from judge_hours(shard.number, history)


class _Archive:
    """Reads the archive of one member; the files that were read last stay in memory."""

    def __init__(self, archive: ArchiveOf) -> None:
        self._archive = archive
        self._folder = archive.folder
        self._names: list[str] | None = list(archive.files)
        # Of a function, not a method: what keeps itself alive keeps its files until Python looks for such circles.
        read = functools.partial(_read_file, archive.folder, archive.cluster_id)
        self._read: Callable[[str], FileRows] = functools.lru_cache(KEPT_FILES)(read)

    def read(self, shard: Shard) -> Iterator[Cover | Any | Named]:
        """Which offsets its files cover, tables of evidence.COPIES, and evidence about files."""
        if shard.from_offset == 0:
            for name in self._archive.files:
                if file_name(name) is None:
                    yield self._problem(Problem(name, FOREIGN, 0, "an archive file is not called so: it was left out"))
        span = FileName(shard.from_offset, shard.to_offset)
        used: list[FileName] = []
        for item in read_span(span, self._listed, self._read):
            if isinstance(item, Problem):
                yield self._problem(item)
            else:
                used.append(FileName(item.file.header.from_offset, item.file.header.to_offset))
                yield from self._piece(item)
        yield from self._superfluous(shard, used)

    def _piece(self, piece: Piece[FileRows]) -> Iterator[Cover | Any | Named]:
        file_id = self._number(piece.file.name)
        table = _copies(*piece.file.piece(piece.from_offset, piece.to_offset), self._archive.member_id, file_id)
        yield table
        yield Cover(self._archive.member_id, file_id, piece.from_offset, piece.to_offset)
        header = piece.file.header
        row = {
            "file_id": [file_id],
            "member_id": [self._archive.member_id],
            "cluster_id": [header.cluster_id],
            "rows": [header.rows],
            "copies": [table.num_rows],
        }
        yield "archive_files", pa.RecordBatch.from_pydict(row, schema=evidence.ARCHIVE_FILES)
        for problem in piece.file.problems:
            yield self._problem(problem)

    def _superfluous(self, shard: Shard, used: list[FileName]) -> Iterator[Named]:
        """What is wrong with files that a wider one makes superfluous: a crash left them behind a merge."""
        for name in self._archive.files:
            file = file_name(name)
            if file is None or file in used or not any(within(file, other) for other in used):
                continue
            if not shard.from_offset <= file.from_offset < shard.to_offset:
                continue
            try:
                problems = self._read(name).problems
            except FileNotFoundError:
                continue
            except (BadFile, OSError) as error:
                problems = [as_problem(name, error)]
            for problem in problems:
                yield self._problem(problem)

    def _listed(self) -> list[str]:
        """As it was listed, and then as it is now: files may be merged away meanwhile."""
        names, self._names = self._names, None
        return self._folder.names() if names is None else names

    def _number(self, name: str) -> int:
        return self._archive.files.get(name, -1)

    def _problem(self, problem: Problem) -> Named:
        row = {
            "file_id": [self._archive.files.get(problem.file)],
            "member_id": [self._archive.member_id],
            "file": [str(self._folder / problem.file)],
            "kind": [problem.kind],
            "position": [problem.position],
            "index": [problem.index],
            "detail": [problem.detail],
        }
        return "problems", pa.RecordBatch.from_pydict(row, schema=evidence.PROBLEMS)


def _read_file(folder: Location, cluster_id: str | None, name: str) -> FileRows:
    return FileRows(read_whole(name, (folder / name).read(MAX_FILE_BYTES + 1), cluster_id))


def _copies(rows: Columns, positions: npt.NDArray[np.int64], member_id: int, file_id: int) -> Any:
    columns = {name: rows[name] for name, _ in evidence.BLOCK_FIELDS if name != "place"}
    columns["place"] = positions + file_id * evidence.POSITIONS
    columns["member_id"] = np.full(len(positions), member_id, np.int32)
    columns["archived"] = np.ones(len(positions), bool)
    return pa.table(columns, schema=evidence.COPIES)


def _blob(data: bytes, schema: Any) -> Any:
    return pa.Table.from_batches([from_blob(data)] if data else [], schema=schema)
