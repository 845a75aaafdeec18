"""The blocks of a shard: each once, from all of its copies, in the order of the log; and what does not follow.

In a lawful history each block begins above all before it, and just above the last one unless a record says why not. So
one look at the running maximum finds whether there is anything to look at more closely: the driver does that then, over
the whole history (`disorder`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pidkeeper.pipeline.engine.duck import LATEST_MS
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.quorum import evidence

VERSIONS_SQL: Final = """
create temp table versions as
with told as (
    select
        "offset", first_id, last_id, broker_id, broker_epoch, timestamp_ms,
        min(place) as place,
        count(*) as copies,
        bit_or(1::bigint << member_id) as holders,
        coalesce(bit_or(1::bigint << member_id) filter (archived), 0) as archivers
    from copies
    group by all
)
select *, row_number() over same as version, bit_count(holders)::bigint as members
from told
window same as (
    partition by "offset" order by bit_count(holders) desc, copies desc, place,
    first_id, last_id, broker_id, broker_epoch, timestamp_ms
)
"""
"""Copies that disagree about one offset are versions of it: the first is what most members have."""
ONCE_SQL: Final = """
select "offset", first_id, last_id, broker_id, broker_epoch, timestamp_ms, place,
    bit_or(archivers) over (partition by "offset") as archivers
from versions qualify version = 1 order by "offset"
"""
BLOCKS_SQL: Final = """
select first_id, last_id, "offset", broker_id, broker_epoch, timestamp_ms, members, version::integer as version, place,
    day_of(timestamp_ms) as day
from versions order by "offset", version
"""
DIFFERING_SQL: Final = """
select {'offset': "offset", 'first_id': first_id, 'last_id': last_id, 'broker_id': broker_id,
        'broker_epoch': broker_epoch, 'timestamp_ms': timestamp_ms, 'place': place} as block,
    version::integer as version, copies, members
from versions where "offset" in (select "offset" from versions where version = 2)
"""
INSTEAD_SQL: Final = """
select {'offset': h."offset", 'first_id': first_id, 'last_id': last_id, 'broker_id': broker_id,
        'broker_epoch': broker_epoch, 'timestamp_ms': timestamp_ms, 'place': place} as block,
    o.member_id, o.file_id, o."position", o.record_type as instead
from versions h join others o on h."offset" = o."offset" where version = 1
"""

Longs = npt.NDArray[np.int64]


class Cover(NamedTuple):
    """Offsets of the shard that one archive file of one member was read for: from, to before."""

    member_id: int
    file_id: int
    from_offset: int
    to_offset: int


class History:
    """The blocks that most members agree on, one for each offset, in the order of the log, as columns.

    clock_ms: the leaders' clocks, whatever files say within what a clock may show. timed: rows of which they say so.
    """

    def __init__(self, table: Any) -> None:
        self.table = table.combine_chunks()
        self.offset = self._column("offset")
        self.first_id = self._column("first_id")
        self.last_id = self._column("last_id")
        self.broker_id = self._column("broker_id")
        self.broker_epoch = self._column("broker_epoch")
        stamps = self._column("timestamp_ms")
        self.clock_ms = np.clip(stamps, 0, LATEST_MS)
        self.timed = np.flatnonzero(self.clock_ms == stamps)
        self.archivers = self._column("archivers")

    def __len__(self) -> int:
        return len(self.offset)

    def structs(self, rows: Any) -> Any:
        """Some of them in full, as an array of evidence.BLOCK; null for a row that is null."""
        index = pa.array(rows, pa.int64())
        taken = [self.table.column(name).combine_chunks().take(index) for name, _ in evidence.BLOCK_FIELDS]
        mask = index.is_null() if index.null_count else None
        typed = [column.cast(kind) for column, (_, kind) in zip(taken, evidence.BLOCK_FIELDS, strict=True)]
        return pa.StructArray.from_arrays(typed, fields=list(evidence.BLOCK), mask=mask)

    def _column(self, name: str) -> Longs:
        return np.asarray(self.table.column(name).to_numpy(), dtype=np.int64)


def distinct_blocks(con: Any, copies: Any) -> History:
    """The history from `evidence.COPIES` with known offsets; the connection has all `versions` from here on."""
    con.register("copies", copies)
    con.execute(VERSIONS_SQL)
    con.unregister("copies")
    return History(con.sql(ONCE_SQL).to_arrow_table())


def judge_order(shard: int, history: History) -> Iterator[Named]:
    """The facts of the shard, and the gaps in it unless blocks are out of order: then the driver looks."""
    if not len(history):
        return
    reach = np.maximum.accumulate(history.last_id)
    times = history.clock_ms[history.timed].tolist()
    disordered = int(np.count_nonzero(history.first_id[1:] <= reach[:-1]))
    row = {
        "shard": [shard],
        "blocks": [len(history)],
        "last_offset": [int(history.offset[-1])],
        # As Python adds: blocks of a foreign writer may hold more IDs together than 64 bits can count.
        "ids": [Decimal(sum((history.last_id - history.first_id + 1).tolist()))],
        "first_ms": [min(times, default=None)],
        "last_ms": [max(times, default=None)],
        "disordered": [disordered],
        "lowest": history.structs([int(np.argmin(history.first_id))]),
        "first": history.structs([0]),
        "top": history.structs([int(np.argmax(history.last_id))]),
    }
    yield "shards", pa.RecordBatch.from_pydict(row, schema=evidence.SHARDS)
    if not disordered:
        behind = np.flatnonzero(history.first_id[1:] > history.last_id[:-1] + 1)
        if len(behind):
            gaps = {
                "shard": np.full(len(behind), shard, np.int32),
                "gap_from": history.last_id[behind] + 1,
                "after": history.offset[behind],
                "block": history.structs(behind + 1),
            }
            yield "gaps", pa.RecordBatch.from_pydict(gaps, schema=evidence.GAPS)


def judge_ids(con: Any, shard: int, history: History) -> Iterator[Named]:
    """Which IDs were given, as `runs_of`."""
    others = con.sql("select first_id, last_id from versions where version > 1").to_arrow_table()
    first, last = runs_of(
        np.concatenate([history.first_id, others["first_id"].to_numpy()]),
        np.concatenate([history.last_id, others["last_id"].to_numpy()]),
    )
    found = {"shard": np.full(len(first), shard, np.int32), "first_id": first, "last_id": last}
    yield "id_runs", pa.RecordBatch.from_pydict(found, schema=evidence.ID_RUNS)


def runs_of(first: Longs, last: Longs) -> tuple[Longs, Longs]:
    """Ranges of IDs, both ends inclusive, with those joined that overlap or touch; in order."""
    order = np.argsort(first, kind="stable")
    first, reach = first[order], np.maximum.accumulate(last[order])
    begins = np.ones(len(first), bool)
    begins[1:] = first[1:] > reach[:-1] + 1
    starts = np.flatnonzero(begins)
    return first[starts], reach[np.append(starts[1:], len(first)) - 1] if len(first) else reach


def judge_copies(con: Any, history: History, covers: Sequence[Cover], others: Any) -> Iterator[Named]:
    """Copies of one block that differ, and blocks that a copy of their offset does not have."""
    yield from _all(con, "versions", DIFFERING_SQL, evidence.VERSIONS)
    if others.num_rows:
        con.register("others", others)
        yield from _all(con, "absent", INSTEAD_SQL, evidence.ABSENT)
        con.unregister("others")
    yield from _absent(history, covers)


def _absent(history: History, covers: Sequence[Cover]) -> Iterator[Named]:
    """Blocks that an archive file covers and its member's archive does not hold; of several files the last."""
    lacking: dict[tuple[int, int], Cover] = {}
    for cover in sorted(covers, key=lambda one: one.to_offset):
        start, end = np.searchsorted(history.offset, (cover.from_offset, cover.to_offset))
        held = (history.archivers[start:end] >> cover.member_id) & 1
        for row in np.flatnonzero(held == 0) + start:
            lacking[cover.member_id, int(row)] = cover
    if lacking:
        found = {
            "block": history.structs([row for _, row in lacking]),
            "member_id": [member for member, _ in lacking],
            "file_id": [cover.file_id for cover in lacking.values()],
            "position": [None] * len(lacking),
            "instead": ["no block in the archive"] * len(lacking),
        }
        yield "absent", pa.RecordBatch.from_pydict(found, schema=evidence.ABSENT)


def judge_snapshots(history: History, ends: Sequence[int], from_offset: int, to_offset: int) -> Iterator[Named]:
    """For each `next_offset` of a snapshot within the shard: the block before it that reaches farthest."""
    within = [end for end in sorted(set(ends)) if from_offset < end < to_offset]
    before = [int(count) for count in np.searchsorted(history.offset, within)]
    known = [(end, count) for end, count in zip(within, before, strict=True) if count]
    if known:
        tops = [int(np.argmax(history.last_id[:count])) for _, count in known]
        found = {"next_offset": [end for end, _ in known], "block": history.structs(tops)}
        yield "snapshot_reach", pa.RecordBatch.from_pydict(found, schema=evidence.SNAPSHOT_REACH)


def _all(con: Any, name: str, sql: str, schema: Any) -> Iterator[Named]:
    for batch in con.sql(sql).to_arrow_table().cast(schema).to_batches():
        yield name, batch
