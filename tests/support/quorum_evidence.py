"""The tables of a quorum, judged by the kernels over shards and concluded as an audit does it, without any file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa

from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.pipeline.limits import DEFAULT, Limits
from pidkeeper.pipeline.quorum import evidence, logs
from pidkeeper.pipeline.quorum.blocks import BLOCKS_SQL, Cover, distinct_blocks
from pidkeeper.pipeline.quorum.conclusions import conclude
from pidkeeper.pipeline.quorum.evidence import ALLOCATIONS
from pidkeeper.pipeline.quorum.gathering import END
from pidkeeper.pipeline.quorum.loading import load
from pidkeeper.pipeline.quorum.shard import OTHERS, REGISTERED, Shard, judge_history
from tests.support.quorum_tables import QuorumTables, Row


class Numbered:
    """Members and files by number."""

    def __init__(self, tables: QuorumTables) -> None:
        rows = [*tables.blocks, *tables.files, *tables.snapshots, *tables.log]
        self.members = sorted({row["member"] for row in rows})
        self.files = sorted({(row["file"], row["member"]) for row in rows})
        self._files = {file: number for number, (file, _) in enumerate(self.files)}

    def row(self, row: Row, schema: Any) -> Row:
        """The columns of `schema`, names as numbers."""
        ids = {"member_id": self.members.index(row["member"]), "file_id": self._files[row["file"]]}
        return {name: (row | ids).get(name) for name in schema.names}

    def copy(self, row: Row, *, archived: bool) -> Row:
        """A row of evidence.COPIES."""
        found = self.row(row, evidence.COPIES)
        place = self._files[row["file"]] * evidence.POSITIONS + row["position"]
        return found | {"place": place, "archived": archived}


def run(tables: QuorumTables, limits: Limits = DEFAULT, cuts: Sequence[int] = ()) -> list[Row]:
    """The findings of all checks, without null columns. `cuts`: log offsets between two shards."""
    numbered = Numbered(tables)
    with connect() as con:
        _name(con, numbered, tables)
        blocks: list[Any] = []
        bounds = [0, *cuts, END]
        found = _logged(numbered, tables)
        for number, (start, end) in enumerate(pairwise(bounds)):
            found += _judged(numbered, tables, number, start, end, limits, blocks)
        load(con, found, evidence.TABLES | logs.TABLES)
        con.register("blocks_in_order", pa.concat_tables(blocks) if blocks else evidence.BLOCKS.empty_table())
        conclude(con, limits)
        rows: list[Row] = con.sql("from findings").to_arrow_table().to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _name(con: Any, numbered: Numbered, tables: QuorumTables) -> None:
    con.register(
        "f",
        pa.Table.from_pylist(
            [
                {"file_id": number, "source": "", "member": member, "path": path}
                for number, (path, member) in enumerate(numbered.files)
            ],
            pa.schema(
                [("file_id", pa.int32()), ("source", pa.string()), ("member", pa.string()), ("path", pa.string())]
            ),
        ),
    )
    con.register("m", pa.Table.from_pylist(
        [{"member_id": number, "member": name} for number, name in enumerate(numbered.members)],
        pa.schema([("member_id", pa.int32()), ("member", pa.string())]),
    ))  # fmt: skip
    listing = pa.schema([("file_id", pa.int32()), ("member_id", pa.int32()), ("from_offset", pa.int64()),
                         ("to_offset", pa.int64()), ("superseded", pa.bool_())])  # fmt: skip
    con.register("l", pa.Table.from_pylist([numbered.row(row, listing) for row in tables.files], listing))
    for name, table in (("f", "files"), ("m", "members"), ("l", "archive_listing")):
        con.execute(f"create table {table} as from {name}")
    load(con, [], {"findings": FINDINGS})


def _logged(numbered: Numbered, tables: QuorumTables) -> list[Named]:
    adrift = [row for row in _allocations(tables) if row.get("offset") is None]
    found = [
        ("records", [numbered.row(row, logs.RECORDS) for row in tables.log], logs.RECORDS),
        ("snapshots", [numbered.row(row, logs.SNAPSHOTS) for row in tables.snapshots], logs.SNAPSHOTS),
        ("adrift", [numbered.copy(row, archived=False) for row in adrift], evidence.COPIES),
        ("archive_files", [_file(numbered, tables, row) for row in tables.files], evidence.ARCHIVE_FILES),
    ]
    return [(name, batch) for name, rows, schema in found for batch in pa.Table.from_pylist(rows, schema).to_batches()]


def _file(numbered: Numbered, tables: QuorumTables, row: Row) -> Row:
    copies = sum(one["file"] == row["file"] for one in tables.blocks)
    return numbered.row(row, evidence.ARCHIVE_FILES) | {"copies": copies}


def _allocations(tables: QuorumTables) -> list[Row]:
    return [row for row in tables.log if row["record_type"] in ALLOCATIONS and row["committed"]]


def _judged(
    numbered: Numbered, tables: QuorumTables, number: int, start: int, end: int, limits: Limits, blocks: list[Any]
) -> list[Named]:
    def within(row: Row) -> bool:
        return row.get("offset") is not None and start <= row["offset"] < end

    copies = [numbered.copy(row, archived=True) for row in tables.blocks if within(row)]
    copies += [numbered.copy(row, archived=False) for row in _allocations(tables) if within(row)]
    read = {row["file"] for row in tables.blocks} | {row["file"] for row in tables.files if row["rows"] == 0}
    covers = [
        Cover(one["member_id"], one["file_id"], max(start, row["from_offset"]), min(end, row["to_offset"]))
        for row in tables.files
        if row["file"] in read and not row["superseded"]
        for one in [numbered.row(row, evidence.ARCHIVE_FILES)]
    ]
    committed = [row for row in tables.log if row["committed"] and row.get("offset") is not None]
    others = [row for row in committed if row["record_type"] not in ALLOCATIONS and within(row)]
    registered = {
        (row["broker_id"], row["offset"], row["broker_epoch"])
        for row in committed
        if row["record_type"] == "RegisterBrokerRecord"
    }
    shard = Shard(
        number,
        start,
        end,
        others=_blob([numbered.row(row, OTHERS) for row in others], OTHERS),
        registered=_blob([dict(zip(REGISTERED.names, row, strict=True)) for row in registered], REGISTERED),
    )
    with connect() as con:
        history = distinct_blocks(con, pa.Table.from_pylist(copies, evidence.COPIES))
        ends = [row["next_offset"] for row in tables.snapshots]
        found = list(judge_history(con, history, shard, covers, ends, limits))
        blocks.append(con.sql(BLOCKS_SQL).to_arrow_table().cast(evidence.BLOCKS))
    return found


def _blob(rows: list[Row], schema: Any) -> bytes:
    return to_blob(pa.RecordBatch.from_pylist(rows, schema)) if rows else b""
