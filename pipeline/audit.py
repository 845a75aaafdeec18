"""One audit: list the files, gather evidence, conclude, and write down what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from pidkeeper.pipeline.engine.duck import connect, has_rows
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.evidence import seen_of
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import ParquetFiles, read_parquet
from pidkeeper.pipeline.gathering import AuditPlan, gather
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
from pidkeeper.pipeline.listing import list_inputs, name_inputs
from pidkeeper.pipeline.partition_logs import conclude as partition_logs
from pidkeeper.pipeline.partition_logs.auditing import AuditedLogs, audit_logs
from pidkeeper.pipeline.partition_logs.reading import missing_objects
from pidkeeper.pipeline.partition_logs.store import ListedStore
from pidkeeper.pipeline.paths import AuditPaths, LoadingError
from pidkeeper.pipeline.quorum import conclusions, coverage, evidence, identity, logs
from pidkeeper.pipeline.quorum.loading import add, load
from pidkeeper.pipeline.quorum.partitions import tables as of_logs
from pidkeeper.pipeline.report import tables
from pidkeeper.pipeline.report.draw import draw
from pidkeeper.pipeline.segments import conclude as segments
from pidkeeper.pipeline.segments import shares
from pidkeeper.pipeline.segments import tables as of_segments
from pidkeeper.pipeline.segments.listing import ListedSegments
from pidkeeper.pipeline.segments.memory import remember, settled_evidence
from pidkeeper.pipeline.summary import sum_up
from pidkeeper.pipeline.verdict import Verdict, write_verdict

DRIVER_MIB: Final = 1024
"""Memory of the driver's tables; beyond it they are on disk."""
DRIVER_THREADS: Final = 2
EVIDENCE: Final = {**of_segments.EVIDENCE, **logs.TABLES, **of_logs.TABLES, **evidence.TABLES}
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
OBJECTS: Final = "objects"
"""Of the evidence, by `partition_logs.reading.KNOWN`."""


class AuditOptions(msgspec.Struct, frozen=True):
    """`out`: the ledger. `anew`: read everything, also what an earlier audit has judged. `fail`: a bad file ends it."""

    paths: AuditPaths
    out: Location
    anew: bool = False
    fail: bool = False
    limits: Limits = DEFAULT


class Outcome(NamedTuple):
    """What an audit found, before anything of it counts. `tables` and `evidence` are Arrow tables by name.

    bytes_new: of archives, segments and objects that the ledger did not have.
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
    """What was listed was not what was read. `missing`: objects that were not in the store."""

    def __init__(self, missing: frozenset[str] = frozenset()) -> None:
        super().__init__(missing)
        self.missing = missing


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
    missed: frozenset[str] = frozenset()
    for _ in range(LOOKS - 1):
        try:
            return _look(engine, options, say, missed, last_time=False)
        except _ListedTooEarlyError as early:
            missed |= early.missing
    return _look(engine, options, say, missed, last_time=True)


def _look(
    engine: Engine, options: AuditOptions, say: Callable[[str], None], missed: frozenset[str], *, last_time: bool
) -> Outcome:
    started = time.monotonic()
    ledger = Ledger(options.out)
    options.out.make()
    last = ledger.newest()
    run = ledger.begin(last)
    registry = Registry(*((last.members, last.files) if last is not None else ()))
    inputs = list_inputs(options.paths, options.out, last, run, registry, anew=options.anew, limits=options.limits)
    say("reading files")
    with connect(DRIVER_MIB, DRIVER_THREADS) as con:
        name_inputs(con, registry, inputs)
        load(con, gather(engine, inputs.plan), EVIDENCE)
        if not last_time and con.sql(REPLACED_SQL).fetchall() != [(0,)]:
            raise _ListedTooEarlyError
        segments_known, segments_found = _segments(con, inputs.segments, run, last)
        if options.fail:
            _fail_if_bad(con)
        cluster = _same_cluster(con, options.out, last)
        known = None if options.anew else _known_objects(ledger, last)
        logs_seen = _partition_logs(con, engine, inputs.store, known, missed, say)
        if logs_seen is not None and not last_time and (missing := missing_objects(con) - missed):
            raise _ListedTooEarlyError(missing)
        say("concluding")
        shards = _shards(con, inputs.plan, run)
        blocks = _blocks(ledger, shards)
        blocks.show(con, "blocks_in_order")
        held, foreign = _conclude(con, options, inputs.plan, last, logs_seen)
        seen = seen_of(
            con,
            inputs.members,
            held,
            foreign,
            of_quorum=bool(options.paths.data),
            of_segments=bool(options.paths.segments),
            logs=None if logs_seen is None else logs_seen.covered,
        )
        verdict = sum_up(con, seen)
        written = {name: tables.table(con, name) for name in tables.WRITTEN}
        found = segments_found | {name: _judged_now(con, name, schema) for name, schema in evidence.OF_SHARDS.items()}
        bytes_new = inputs.bytes_new
        if logs_seen is not None:
            found[OBJECTS] = logs_seen.known
            bytes_new += logs_seen.new_bytes
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
        bytes_new,
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


def _partition_logs(
    con: Any,
    engine: Engine,
    store: ListedStore | None,
    known: Any | None,
    missed: frozenset[str],
    say: Callable[[str], None],
) -> AuditedLogs | None:
    """What the members tell of partition logs, beside the store; None where they tell of none."""
    if not has_rows(con, "views", "coordinates", "group_faults"):
        return None
    say("following partition logs" if store is None else "reading the store")
    foreign = [one.member_id for one in identity.foreign_members(identity.known_of(con))]
    return audit_logs(con, engine, store, known, foreign, missed)


def _known_objects(ledger: Ledger, last: Commit | None) -> Any | None:
    """What the newest audit found in the store."""
    if last is None:
        return None
    try:
        return read_parquet(ledger.place / RUNS / last.run / f"{EVIDENCE_PREFIX}{OBJECTS}.parquet")
    except FileNotFoundError:
        return None


def _conclude(
    con: Any, options: AuditOptions, plan: AuditPlan, last: Commit | None, logs_seen: AuditedLogs | None
) -> conclusions.Concluded:
    concluded = conclusions.conclude(con, options.limits)
    if plan.quorum is not None and last is not None:
        coverage.conclude_lost(con, concluded.held, last.held)
    if logs_seen is not None:
        partition_logs.conclude(con, logs_seen.store)
    if plan.segments is not None or logs_seen is not None:
        segments.conclude(con)
    if logs_seen is not None:
        partition_logs.name_objects(con)
    if plan.quorum is not None and (plan.segments is not None or logs_seen is not None):
        con.execute(
            "create temp view allocated_blocks as select first_id, last_id, broker_id from blocks where version = 1"
        )
        shares.conclude(con)
    if has_rows(con, "problems"):
        con.execute(tables.PROBLEMS_SQL)
    con.execute(tables.FILES_SQL)
    con.execute(tables.DAILY_SQL)
    return concluded
