"""From the files of members to evidence: logs and snapshots first, then the archives beside what logs have of them."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import median_low
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.engine.engine import Engine, Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.formats.archive import FileName, file_name
from pidkeeper.pipeline.ledger import BLOCKS, KnownShard, Ledger, evidence_of
from pidkeeper.pipeline.limits import DEFAULT, Limits
from pidkeeper.pipeline.quorum import commitment, evidence, logs
from pidkeeper.pipeline.quorum.evidence import ALLOCATIONS
from pidkeeper.pipeline.quorum.identity import foreign_members, known_of
from pidkeeper.pipeline.quorum.loading import load
from pidkeeper.pipeline.quorum.logs import read_member
from pidkeeper.pipeline.quorum.members import Member
from pidkeeper.pipeline.quorum.shard import OTHERS, REGISTERED, ArchiveOf, Shard, ShardTask, judge_task
from pidkeeper.snapshots.archive_format import HEADER_BYTES, ROW_BYTES

SHARD_ROWS: Final = 1 << 18
"""Rows of all members together that a shard is to have: 12 MiB of files. The last one is judged again in each audit."""
SMALL_SHARE: Final = 4
LEAST_SHARE: Final = 16
"""Parts of SHARD_ROWS: shards of less than the one may be cut again, and none of less than the other is made."""
TASK_SHARDS: Final = 16
"""Side by side in one task: of three members, files of four times the largest size, each of which is read once."""
END: Final = (1 << 63) - 1

COPIES_SQL: Final = """
select "offset", first_id, last_id, broker_id::integer as broker_id, broker_epoch, timestamp_ms,
    file_id::bigint * {positions} + "position" as place, member_id, false as archived
from records
where committed and record_type in {allocations} and {known} and not list_contains(?, member_id)
order by all
"""
OTHERS_SQL: Final = """
select "offset", member_id, file_id, "position", record_type from records
where committed and record_type not in {allocations} and "offset" is not null and not list_contains(?, member_id)
order by all
"""
REGISTERED_SQL: Final = """
select distinct broker_id::integer as broker_id, "offset", broker_epoch from records
where committed and record_type = 'RegisterBrokerRecord' and "offset" is not null and not list_contains(?, member_id)
order by all
"""
"""In an order, so that the same rows have the same sum."""


class QuorumPlan(msgspec.Struct, frozen=True):
    """What is read, and what an earlier audit in the same ledger knew. sizes, stamps: of files by number.

    place: of the ledger, where the blocks go, into files with `run` in their names. anew: judge all shards.
    """

    members: list[Member]
    sizes: dict[int, int]
    stamps: dict[int, str]
    place: Location
    run: str
    known: list[KnownShard] = []
    anew: bool = False
    limits: Limits = DEFAULT


def gather(engine: Engine, plan: QuorumPlan) -> Iterator[Named]:
    """All evidence of the quorum; of shards that are settled (see `shard_inputs`) it is that of an earlier audit.

    Rows of `adrift` are copies of blocks whose offset no log tells.
    """
    told = list(engine.map(read_member, plan.members))
    with connect(threads=2) as con:
        load(con, told, logs.TABLES)
        foreign = [one.member_id for one in foreign_members(known_of(con))]
        if commitment.commit(con, plan.members, foreign):
            records = con.sql("from records").to_arrow_table().cast(logs.RECORDS)
            told = [named for named in told if named[0] != "records"]
            told += [("records", batch) for batch in records.to_batches()]
        yield from told
        adrift = _ask(con, COPIES_SQL, foreign, known='"offset" is null').cast(evidence.COPIES)
        yield from (("adrift", batch) for batch in adrift.to_batches())
        cutter = _Cutter(con, plan, foreign)
        shards = [cutter.shard(number, *bounds) for number, bounds in enumerate(pairwise(cutter.bounds()))]
        facts = [shard_facts(shard, *_settled(plan, shard, cutter.inputs(shard))) for shard in shards]
        yield "shard_inputs", pa.RecordBatch.from_pylist(facts, schema=evidence.SHARD_INPUTS)
        settled = {fact["shard"] for fact in facts if fact["settled"]}
        ledger, known = Ledger(plan.place), plan.known
        yield from evidence_of(ledger, [one for one in known if one.number in settled], evidence.OF_SHARDS)
        again = [one for one in known if one.number not in settled]
        told_before = evidence_of(ledger, again, {"changed": evidence.CHANGED_BEFORE})
        yield from (("changed_before", batch) for _, batch in told_before)
        due = [shard for shard in shards if shard.number not in settled]
        yield from engine.map(judge_task, [cutter.task(run) for run in _runs(due)])


def shard_facts(shard: Shard, inputs: str, settled: bool) -> dict[str, Any]:
    """A row of evidence.SHARD_INPUTS."""
    bounds = {"shard": shard.number, "from_offset": shard.from_offset, "to_offset": shard.to_offset}
    return bounds | {"inputs": inputs, "settled": settled}


def _settled(plan: QuorumPlan, shard: Shard, inputs: str) -> tuple[str, bool]:
    """The sum of what it is judged from, and whether an earlier audit has judged just that."""
    bounds = (shard.number, shard.from_offset, shard.to_offset, inputs)
    return inputs, not plan.anew and any(
        (one.number, one.from_offset, one.to_offset, one.inputs) == bounds for one in plan.known
    )


def _runs(shards: Sequence[Shard]) -> Iterator[list[Shard]]:
    """Shards that lie side by side, TASK_SHARDS of them at most."""
    run: list[Shard] = []
    for shard in shards:
        if run and (len(run) == TASK_SHARDS or run[-1].to_offset != shard.from_offset):
            yield run
            run = []
        run.append(shard)
    if run:
        yield run


class _Cutter:
    """Cuts the log into shards, and says what each is judged from."""

    def __init__(self, con: Any, plan: QuorumPlan, foreign: Sequence[int]) -> None:
        self._plan = plan
        self._archives = [
            ArchiveOf(member.member_id, member.cluster_id, files.folder, files.names)
            for member in plan.members
            if member.member_id not in foreign
            for files in member.archives
        ]
        self._logged = _ask(con, COPIES_SQL, foreign, known='"offset" is not null').cast(evidence.COPIES)
        self._others = _ask(con, OTHERS_SQL, foreign).cast(OTHERS)
        self._registered = _ask(con, REGISTERED_SQL, foreign).cast(REGISTERED)
        ends = "select distinct next_offset from snapshots where not list_contains(?, member_id) order by next_offset"
        self._ends = [end for (end,) in con.execute(ends, [list(foreign)]).fetchall()]

    def bounds(self) -> list[int]:
        """As `next_bounds`."""
        known = sorted(shard.from_offset for shard in self._plan.known)
        named = [
            [
                (file, self._plan.sizes.get(number, 0))
                for name, number in archive.files.items()
                if (file := file_name(name)) is not None
            ]
            for archive in self._archives
        ]
        return next_bounds(known, named, SHARD_ROWS)

    def shard(self, number: int, from_offset: int, to_offset: int) -> Shard:
        known_from = pc.min(self._registered["offset"]).as_py()
        registered = self._registered if known_from is not None and known_from < to_offset else None
        place = self._plan.place
        return Shard(
            number,
            from_offset,
            to_offset,
            logged=_within(self._logged, from_offset, to_offset),
            others=_within(self._others, from_offset, to_offset),
            registered=b"" if registered is None else _blob(registered),
            blocks_to=place / f"{BLOCKS}/{self._plan.run}-{number:06d}.parquet",
            before=[place / one.blocks for one in self._plan.known if _meets(one, from_offset, to_offset)],
        )

    def inputs(self, shard: Shard) -> str:
        """A sum of all that the shard is judged from: another one whenever any of it was written."""
        files = [
            (archive.member_id, str(archive.folder), name, self._plan.stamps.get(number, ""))
            for archive in self._within(shard.from_offset, shard.to_offset)
            for name, number in sorted(archive.files.items())
        ]
        ends = [end for end in self._ends if shard.from_offset < end < shard.to_offset]
        logged = (shard.logged, shard.others, shard.registered)
        return hashlib.sha256(msgspec.msgpack.encode((files, ends, logged, self._plan.limits))).hexdigest()

    def task(self, shards: list[Shard]) -> ShardTask:
        archives = self._within(shards[0].from_offset, shards[-1].to_offset)
        return ShardTask(shards, archives, self._ends, self._plan.limits)

    def _within(self, start: int, end: int) -> list[ArchiveOf]:
        """The archives with the files alone that have offsets of a range."""
        found = []
        for archive in self._archives:
            mine = {name: number for name, number in archive.files.items() if _covers(name, start, end)}
            if mine:
                found.append(msgspec.structs.replace(archive, files=mine))
        return found


def _covers(name: str, start: int, end: int) -> bool:
    """Whether an archive file of this name has offsets of the range; what is not called so is told of once."""
    file = file_name(name)
    return start == 0 if file is None else file.from_offset < end and file.to_offset > start


def _meets(known: KnownShard, from_offset: int, to_offset: int) -> bool:
    return known.from_offset < to_offset and known.to_offset > from_offset


def next_bounds(known: Sequence[int], archives: Sequence[Sequence[tuple[FileName, int]]], rows: int) -> list[int]:
    """Those of an earlier audit, `known`, and behind them new ones. archives: each as `files` of `shard_bounds`.

    So that the next audit reads what is new alone, the last shard but one ends where most archives do. Small ones that
    come of it are cut again with those behind them, once these have half as many rows: each row is judged a few times
    at most. And so is one that became too large, as where a name claimed offsets of a time to come.
    """
    files = [file for archive in archives for file in archive]
    cuts, start = list(known[:-1]), known[-1] if known else 0
    new = rows_within(files, start, END)
    while cuts:
        before = rows_within(files, cuts[-1], start)
        if min(2 * new, rows / SMALL_SHARE) < before <= 2 * rows:
            break
        start, new = cuts.pop(), new + before
    bounds = [*cuts, *shard_bounds(files, start, rows)]
    ends = [max(file.to_offset for file, _ in archive) for archive in archives if archive]
    end = median_low(ends) if ends else 0
    if bounds[-2] < end < END and rows_within(files, bounds[-2], end) >= rows / LEAST_SHARE:
        bounds.insert(-1, end)
    return bounds


def shard_bounds(files: Iterable[tuple[FileName, int]], start: int, rows: int) -> list[int]:
    """Offsets at which the log is cut, from `start` to END, so that a shard has about `rows` rows if files are even.

    `files`: what each covers, and its bytes.
    """
    # What is left of a sum of floats would be rows enough, over as many offsets as a name may claim.
    edges: dict[int, Fraction] = defaultdict(Fraction)
    for file, size in files:
        density = Fraction(max(size - HEADER_BYTES, 0), ROW_BYTES * (file.to_offset - file.from_offset))
        edges[max(file.from_offset, start)] += density
        edges[max(file.to_offset, start)] -= density
    cuts, room, exact, at = [start], float(rows), Fraction(), start
    for edge in sorted(edges):
        dense = float(exact)
        while dense > 0 and (cut := at + max(int(max(room, 0.0) / dense), at == cuts[-1])) < edge:
            cuts.append(cut)
            at, room = cut, float(rows)
        room -= (edge - at) * dense
        at = edge
        exact += edges[edge]
    return [*cuts, END]


def rows_within(files: Iterable[tuple[FileName, int]], start: int, end: int) -> float:
    """About how many rows have these offsets, `files` as of `shard_bounds`."""
    return sum(
        max(size - HEADER_BYTES, 0) / ROW_BYTES * shared / (file.to_offset - file.from_offset)
        for file, size in files
        if (shared := min(file.to_offset, end) - max(file.from_offset, start)) > 0
    )


def _ask(con: Any, sql: str, foreign: Sequence[int], **parts: str) -> Any:
    positions = str(evidence.POSITIONS)
    text = sql.format(positions=positions, allocations=ALLOCATIONS, **parts)
    return con.sql(text, params=[list(foreign)]).to_arrow_table()


def _within(table: Any, from_offset: int, to_offset: int) -> bytes:
    offset = table.column("offset")
    kept = table.filter(pc.and_(pc.greater_equal(offset, from_offset), pc.less(offset, to_offset)))
    return _blob(kept) if kept.num_rows else b""


def _blob(table: Any) -> bytes:
    return to_blob(table.combine_chunks().to_batches()[0]) if table.num_rows else b""
