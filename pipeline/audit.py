"""One audit: list the files, gather evidence, conclude, and write down what came out."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from pidkeeper.pipeline.engine.duck import connect, has_rows
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.evidence import seen_of
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import ParquetFiles, read_parquet
from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.pipeline.formats.archive import file_name, within
from pidkeeper.pipeline.gathering import AuditPlan, cost, gather
from pidkeeper.pipeline.ledger import (
    EVIDENCE_PREFIX,
    RUNS,
    Commit,
    KnownSegments,
    KnownShard,
    Ledger,
    LedgerError,
    Registry,
    Run,
)
from pidkeeper.pipeline.limits import DEFAULT, Limits
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.quorum import conclusions, coverage, evidence, identity, logs
from pidkeeper.pipeline.quorum.gathering import QuorumPlan
from pidkeeper.pipeline.quorum.loading import add, load
from pidkeeper.pipeline.quorum.members import MemberFile, Members, list_members
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.draw import draw
from pidkeeper.pipeline.segments import conclude as segments
from pidkeeper.pipeline.segments import shares
from pidkeeper.pipeline.segments import tables as of_segments
from pidkeeper.pipeline.segments.listing import ListedSegments, list_and_plan
from pidkeeper.pipeline.segments.memory import remember, settled_evidence
from pidkeeper.pipeline.segments.plan import FILES
from pidkeeper.pipeline.summary import sum_up
from pidkeeper.pipeline.verdict import Verdict, write_verdict

DRIVER_MIB: Final = 1024
"""Memory of the driver's tables; beyond it they are on disk."""
DRIVER_THREADS: Final = 2
EVIDENCE: Final = {**of_segments.EVIDENCE, **logs.TABLES, **evidence.TABLES}
"""All tables that come to the driver. `problems` are those of the quorum's, with fewer columns for segments."""
LOOKS: Final = 10
"""How often all is listed and read at most until one fits the other."""
REPLACED_SQL: Final = """
select (select count(*) from gone)
    + (select count(*) from archive_files a join shard_inputs i on a.shard = i.shard and not i.settled
        where file_id < 0)
"""
"""Segments of logs that went away, and archive files that were found where a listed one had been."""

REPORT: Final = "report.html"


class AuditOptions(msgspec.Struct, frozen=True):
    """`out`: the ledger. `anew`: read everything, also what an earlier audit has judged. `fail`: a bad file ends it."""

    paths: AuditPaths
    out: Location
    anew: bool = False
    fail: bool = False
    limits: Limits = DEFAULT


class Outcome(NamedTuple):
    """What an audit found, before anything of it counts. `tables` and `evidence` are Arrow tables by name.

    bytes_new: of archives and segments that the ledger did not have.
    """

    run: Run
    registry: Registry
    verdict: Verdict
    tables: dict[str, Any]
    evidence: dict[str, Any]
    shards: list[KnownShard]
    held: Mapping[str, list[tuple[int, int]]]
    blocks: ParquetFiles
    cluster: str | None
    segments: KnownSegments | None
    bytes_new: int


class _ListedTooEarlyError(Exception):
    """What was listed was not what was read."""


def run_audit(engine: Engine, options: AuditOptions, say: Callable[[str], None] = lambda _: None) -> Verdict:
    """Run everything and leave the outputs in `options.out`. Raises LoadingError, LedgerError, OSError."""
    outcome = look(engine, options, say)
    say("writing")
    keep(outcome, options.out)
    return outcome.verdict


def look(engine: Engine, options: AuditOptions, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Read, gather and conclude; of the outputs only blocks and producers are written. Raises as `run_audit`.

    A running member archives what is in a segment of its log, and then removes the segment; and it merges archive
    files. If either happens between listing and reading, what replaces the file is not in the list: so all is listed
    once more.
    """
    for _ in range(LOOKS - 1):
        with contextlib.suppress(_ListedTooEarlyError):
            return _look(engine, options, say, last_time=False)
    return _look(engine, options, say, last_time=True)


def _look(engine: Engine, options: AuditOptions, say: Callable[[str], None], *, last_time: bool) -> Outcome:
    started = time.monotonic()
    ledger = Ledger(options.out)
    options.out.make()
    last = ledger.newest()
    run = ledger.begin(last)
    registry = Registry(*((last.members, last.files) if last is not None else ()))
    inputs = _list(options, last, run, registry)
    say("reading files")
    with connect(DRIVER_MIB, DRIVER_THREADS) as con:
        _name(con, registry, inputs)
        load(con, gather(engine, inputs.plan), EVIDENCE)
        if not last_time and con.sql(REPLACED_SQL).fetchall() != [(0,)]:
            raise _ListedTooEarlyError
        segments_known, segments_found = _segments(con, inputs.segments, run, last)
        if options.fail:
            _fail_if_bad(con)
        cluster = _same_cluster(con, options.out, last)
        say("concluding")
        shards = _shards(con, inputs.plan, run)
        blocks = _blocks(ledger, shards)
        blocks.show(con, "blocks_in_order")
        held, foreign = _conclude(con, options, inputs.plan, last)
        seen = seen_of(
            con,
            inputs.members,
            held,
            foreign,
            of_quorum=bool(options.paths.data),
            of_segments=bool(options.paths.segments),
        )
        verdict = sum_up(con, seen)
        written = {name: tables.table(con, name) for name in tables.WRITTEN}
        found = segments_found | {name: _judged_now(con, name, schema) for name, schema in evidence.OF_SHARDS.items()}
    verdict = msgspec.structs.replace(verdict, wall_seconds=round(time.monotonic() - started, 2))
    return Outcome(
        run,
        registry,
        verdict,
        written,
        found,
        shards,
        coverage.by_member(held),
        blocks,
        cluster,
        segments_known,
        inputs.bytes_new,
    )


def keep(outcome: Outcome, out: Location) -> None:
    """Let an outcome count, and leave the newest verdict and report where they are looked for."""
    run, verdict = outcome.run, outcome.verdict
    for name, table in outcome.tables.items():
        run.write_table(name, table)
    for name, table in outcome.evidence.items():
        if table.num_rows:
            run.write_table(f"{EVIDENCE_PREFIX}{name}", table)
    page = draw(verdict, outcome.tables, outcome.blocks)
    _leave(run.place, verdict, page)
    commit = Commit(
        number=run.number,
        run=run.name,
        at_ms=int(time.time() * 1000),
        verdict=verdict,
        members=outcome.registry.members,
        files=outcome.registry.files,
        shards=outcome.shards,
        held=dict(outcome.held),
        cluster=outcome.cluster,
        segments=outcome.segments,
    )
    run.finish(commit)
    _leave(out, verdict, page)


def draw_again(out: Location) -> Verdict:
    """The report of the newest audit, from its tables. Raises LedgerError, LoadingError, OSError."""
    ledger = Ledger(out)
    last = ledger.newest()
    if last is None:
        raise LoadingError(f"there is no audit in {out}: run `pidkeeper audit run --out {out}`")
    place = ledger.place / RUNS / last.run
    written = {name: read_parquet(place / f"{name}.parquet") for name in tables.WRITTEN}
    page = draw(last.verdict, written, _blocks(ledger, last.shards))
    for target in (place, out):
        _leave(target, last.verdict, page)
    return last.verdict


def _leave(place: Location, verdict: Verdict, page: str) -> None:
    write_verdict(place, verdict)
    (place / REPORT).write(page.encode())


def _judged_now(con: Any, name: str, schema: Any) -> Any:
    """The evidence of the shards that this run judged."""
    if not has_rows(con, name):
        return schema.empty_table()
    query = f'select e.* from "{name}" e join shard_inputs i on e.shard = i.shard and not i.settled'
    return con.sql(query).to_arrow_table().cast(schema)


# Before: what to read.


class _Inputs(NamedTuple):
    """What was found, and what is read of it."""

    members: Members
    segments: ListedSegments | None
    plan: AuditPlan
    bytes_new: int


def _list(options: AuditOptions, last: Commit | None, run: Run, registry: Registry) -> _Inputs:
    paths = options.paths
    first_new = registry.next_file
    try:
        members = list_members(paths, registry) if paths.data else Members([], [])
        before = None if last is None or options.anew else last.segments
        segments = (
            list_and_plan(paths.segments, registry.next_file, options.out, run.name, before) if paths.segments else None
        )
    except OSError as error:
        raise LoadingError(str(error)) from error
    sizes = {file.file_id: file.found.size for file in members.files}
    stamps = {file.file_id: file.found.stamp for file in members.files}
    shards = [] if last is None else last.shards
    quorum = QuorumPlan(
        members.members, sizes, stamps, options.out, run.name, shards, anew=options.anew, limits=options.limits
    )
    new, price = _measured(members.files, segments, 0 if options.anew else first_new)
    plan = AuditPlan(quorum if paths.data else None, None if segments is None else segments.plan, price)
    return _Inputs(members, segments, plan, new)


def _measured(files: Sequence[MemberFile], segments: ListedSegments | None, first_new: int) -> tuple[int, int]:
    """Bytes of new archives and segments, and the price of the audit. first_new: the number of the first new file."""
    archives = [file for file in files if file.source == "archive"]
    known = sum(file.found.size for file in archives if file.file_id < first_new)
    new = sum(file.found.size for file in archives) - known
    others = sum(file.found.size for file in files) - known - new
    if segments is not None:
        new += segments.bytes_read
        known += segments.bytes_known
    return new, cost(new + others, known)


def _name(con: Any, registry: Registry, inputs: _Inputs) -> None:
    """The tables `members`, `files` and `archive_listing`, and `findings` without rows."""
    names = {member.member_id: member.name for member in registry.members}
    listed = {file.file_id: file.found.size for file in inputs.members.files}
    rows = [
        {
            "file_id": file.file_id,
            "source": file.source,
            "member": names[file.member_id],
            "path": file.path,
            "bytes": listed.get(file.file_id),
            "listed": file.file_id in listed,
        }
        for file in registry.files
    ]
    if inputs.segments is not None:
        rows += [file | {"listed": True} for file in inputs.segments.rows()]
    _make(con, "files", rows, _FILES)
    _make(con, "members", [{"member_id": number, "member": name} for number, name in names.items()], _MEMBERS)
    _make(con, "archive_listing", _archives(inputs.members), _ARCHIVES)
    _make(con, "findings", [], FINDINGS)


def _archives(members: Members) -> list[dict[str, Any]]:
    rows = []
    for member in members.members:
        for files in member.archives:
            covers = {name: file for name in files.names if (file := file_name(name)) is not None}
            for name, file in covers.items():
                wider = any(within(file, other) for other in covers.values() if other != file)
                bounds = {"from_offset": file.from_offset, "to_offset": file.to_offset, "superseded": wider}
                rows.append({"file_id": files.names[name], "member_id": member.member_id} | bounds)
    return rows


_FILES: Final = FILES.append(pa.field("listed", pa.bool_()))
_MEMBERS: Final = pa.schema([("member_id", pa.int32()), ("member", pa.string())])
_ARCHIVES: Final = pa.schema(
    [
        ("file_id", pa.int32()),
        ("member_id", pa.int32()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("superseded", pa.bool_()),
    ]
)


def _make(con: Any, name: str, rows: Sequence[dict[str, Any]], schema: Any) -> None:
    load(con, [(name, batch) for batch in pa.Table.from_pylist(list(rows), schema).to_batches()], {name: schema})


# Between: what it shows.


def _same_cluster(con: Any, out: Location, last: Commit | None) -> str | None:
    """The cluster that is audited. Raises LedgerError if the ledger is of another one."""
    cluster = identity.cluster_of(identity.known_of(con))
    before = None if last is None else last.cluster
    if before is not None and cluster is not None and before != cluster:
        raise LedgerError(
            f"{out} has the audits of cluster {before}, and these are files of {cluster}: name another --out"
        )
    return cluster or before


def _fail_if_bad(con: Any) -> None:
    bad = con.execute(
        f"""
        select coalesce(path, file), "position", kind, detail from problems left join files using (file_id)
        where not coalesce({tables.LEGAL}, false) order by 1, 2 limit 1
        """
    ).fetchall()
    if bad:
        path, position, kind, detail = bad[0]
        raise LoadingError(f"{path}, byte {position}: {kind}: {detail} (--on-bad-file report goes on behind it)")


def _shards(con: Any, plan: AuditPlan, run: Run) -> list[KnownShard]:
    """All that are known from here on."""
    known = {shard.number: shard for shard in plan.quorum.known} if plan.quorum is not None else {}
    rows = con.sql("select shard, from_offset, to_offset, inputs, settled from shard_inputs order by shard").fetchall()
    return [
        known[number] if settled else KnownShard(number, start, end, inputs, run.name, run.blocks_name(number))
        for number, start, end, inputs, settled in rows
    ]


def _blocks(ledger: Ledger, shards: Iterable[KnownShard]) -> ParquetFiles:
    return ParquetFiles([ledger.place / shard.blocks for shard in shards], evidence.BLOCKS)


def _segments(
    con: Any, listed: ListedSegments | None, run: Run, last: Commit | None
) -> tuple[KnownSegments | None, dict[str, Any]]:
    """What the ledger has of Kafka's segments from here on, and tables of this run; what is known is added to all."""
    if listed is None:
        return None if last is None else last.segments, {}
    add(con, settled_evidence(listed.numbered, listed.recalled))
    return remember(con, run.name, listed.files, listed.numbered, listed.recalled, listed.plan.buckets)


def _conclude(con: Any, options: AuditOptions, plan: AuditPlan, last: Commit | None) -> conclusions.Concluded:
    concluded = conclusions.conclude(con, options.limits)
    if plan.quorum is not None and last is not None:
        coverage.conclude_lost(con, concluded.held, last.held)
    if plan.segments is not None:
        segments.conclude(con)
    if plan.segments is not None and plan.quorum is not None:
        con.execute(
            "create temp view allocated_blocks as select first_id, last_id, broker_id from blocks where version = 1"
        )
        shares.conclude(con)
    if has_rows(con, "problems"):
        con.execute(tables.PROBLEMS_SQL)
    con.execute(tables.FILES_SQL)
    con.execute(tables.DAILY_SQL)
    return concluded
