"""The partition logs of an audit: one history, the objects that it names, and what producers wrote.

The rows of the logs' tails, which the quorum bounds (200,000 of all logs), come to the driver. What producers wrote is
judged by the checks of Kafka's segments, bucket by bucket: the segments of a log are its first parts, and its tail is
the last one. Offsets whose producer nobody tells count as missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from pidkeeper.pipeline.engine.blobs import to_blob
from pidkeeper.pipeline.engine.engine import Engine, Named
from pidkeeper.pipeline.engine.local import LocalEngine
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.partition_logs import reading, rolled
from pidkeeper.pipeline.partition_logs.history import make_history
from pidkeeper.pipeline.partition_logs.objects import share
from pidkeeper.pipeline.partition_logs.rolled_reading import TABLES, LogsTask, read_logs
from pidkeeper.pipeline.partition_logs.store import ListedStore, Store, compare
from pidkeeper.pipeline.quorum.blocks import runs_of
from pidkeeper.pipeline.quorum.loading import add
from pidkeeper.pipeline.segments import tables as segments
from pidkeeper.pipeline.segments.allocation import Allocated
from pidkeeper.pipeline.segments.judge import JudgeSettings, judge_producers
from pidkeeper.pipeline.segments.read import ReadSettings
from pidkeeper.pipeline.verdict import LogsCovered

EVIDENCE: Final = frozenset({*segments.EVIDENCE, *TABLES})
AUDITED_SQL: Final = """
create temp table audited_batches as
select b.* exclude (producer, transactional, timestamp_ms), coalesce(producer.id, found_id) as producer_id,
    coalesce(producer.epoch, found_epoch) as producer_epoch,
    coalesce(producer.sequence, found_sequence) as base_sequence,
    coalesce(transactional, found_transactional) as transactional,
    coalesce(timestamp_ms, case when is_time(max_timestamp) then max_timestamp end) as timestamp_ms,
    timestamp_ms is not null as broker_clock
from log_batches b left join found_batches f using (object, position, size)
"""
FIRST_SQL: Final = """
create temp table first_numbers as
select coalesce(max(part), -1) + 1 as part, coalesce(max(log_id), -1) + 1 as log_id,
    coalesce(max(partition_id), -1) + 1 as partition_id, coalesce(max(topic_id), -1) + 1 as topic_id,
    coalesce(max(member_id), -1) + 1 as member_id, (select coalesce(max(file_id), -1) + 1 from files) as file_id
from segment_parts
"""
"""The logs have numbers behind those of segments of Kafka."""
FILES_SQL: Final = """
create temp table log_files as
with every as (
    select log_number, base_offset, segment, object as path from log_segments
    union all select number, null, null, topic || '-' || "partition" from partition_logs
)
select (row_number() over (order by log_number, segment nulls last) - 1)::integer as at, log_number, segment, path
from every;

insert into files by name
select (n.file_id + f.at)::integer as file_id, 'partition' as source, path, topic, "partition", false as listed
from log_files f join partition_logs l on l.number = f.log_number, first_numbers n;

create temp table log_parts as
select f.segment, f.log_number, (n.part + f.at)::integer as part, (n.file_id + f.at)::integer as file_id,
    (n.log_id + l.number)::integer as log_id, (n.partition_id + l.number)::integer as partition_id,
    (n.topic_id + dense_rank() over (order by topic) - 1)::integer as topic_id, n.member_id::integer as member_id
from log_files f join partition_logs l on l.number = f.log_number, first_numbers n
"""
"""Each segment is a part of its log, and the tail is the last one."""
EVENTS_SQL: Final = """
create temp table log_events as
with events as (
    select log_number, base_offset, records, producer_id, producer_epoch as epoch, base_sequence,
        case when base_sequence < 0 then -1 else (base_sequence + records - 1) & 2147483647 end as last_sequence,
        false as is_control, coalesce(transactional, false) as is_transactional, broker_clock, timestamp_ms
    from audited_batches
    union all
    select log_number, base_offset, 1, producer_id, producer_epoch, -1, -1, true, true, true, timestamp_ms
    from marker_versions where version = 1 and not rolled
)
select *, coalesce(sum(case when producer_id is null then records end) over to_here, 0)::bigint as missing,
    max(timestamp_ms) over to_here as seen_ms
from events
window to_here as (
    partition by log_number order by base_offset rows between unbounded preceding and current row
)
"""
TAILS_SQL: Final = """
create temp table log_tails as
select part, file_id, log_id, partition_id, topic_id, member_id,
    true as sequenced, false as whole, first_base, reach, coalesce(missing, 0) as missing,
    0::bigint as holes, newest_ms, newest_ms as clock_ms, 0::bigint as key,
    coalesce(batches, 0) as batches, coalesce(e.records, 0) as records, first_base as first_offset,
    reach as last_offset, newest_ms as max_timestamp_ms, 0::bigint as problems, 0::bigint as holes_first,
    0::bigint as holes_last, 0::bigint as old, 0::bigint as old_first, 0::bigint as old_last, false as anew
from log_parts p left join (
    select log_number, min(base_offset) as first_base, max(base_offset + records) - 1 as reach,
        max(missing) as missing, max(timestamp_ms) as newest_ms, count(*) as batches, sum(records)::bigint as records
    from log_events group by log_number
) e using (log_number) where segment is null
"""
ROWS_SQL: Final = """
select producer_id, part, base_offset as position, base_offset,
    epoch::smallint as epoch, base_sequence::integer as base_sequence, last_sequence::integer as last_sequence,
    is_control, is_transactional, is_transactional and not is_control as opens, broker_clock, timestamp_ms,
    coalesce(seen_ms, -1) as seen_ms, missing, 0::integer as holes
from log_events join log_parts p using (log_number) where p.segment is null and producer_id >= 0
"""
DAYS_SQL: Final = """
select file_id, partition_id,
    (case when max_timestamp > 0 then max_timestamp // 86400000 end)::integer as day, count(*) as batches,
    sum(records)::bigint as records, min(max_timestamp) as first_timestamp_ms, max(max_timestamp) as last_timestamp_ms,
    max(base_offset + records) - 1 as last_offset
from audited_batches join log_parts p using (log_number) where p.segment is null group by all
"""
ALLOCATED_SQL: Final = "select first_id, last_id from id_runs union all select first_id, last_id from adrift"
NEW_BYTES_SQL: Final = """
select coalesce(sum(bytes), 0)::bigint from objects_seen where object not in (
    select object from known_batches join stored using (object, stamp))
"""
COVERED_SQL: Final = """
select (select count(*) from partition_logs) as logs, (select count(*) from log_batches) as batches,
    coalesce((select groups from newest_view), 0) as groups,
    coalesce((select group_offsets from newest_view), 0) as group_offsets,
    (select count(distinct object) from log_batches) as objects,
    (select count(*) from objects_seen where state = 'read') as objects_read,
    (select coalesce(sum(bytes), 0)::bigint from objects_seen) as bytes_read,
    (select count(*) from objects_seen where state = 'unreadable') as objects_unreadable,
    (select count(*) from objects_seen anti join lost_objects using (object) where state = 'missing') as objects_gone,
    (select count(*) from log_batches where object is null) as batches_nowhere,
    (select count(*) from log_segments) as segments,
    (select count(*) from segments_seen where state = 'read' and not indexed) as segments_read,
    (select count(distinct segment) from segments_seen where state = 'unreadable') as segments_unreadable,
    (select count(distinct segment) from segments_seen anti join lost_objects using (object) where state = 'missing')
        as segments_gone,
    (select coalesce(sum(p.batches), 0)::bigint from segment_parts p join log_parts using (part) where segment >= 0)
        as segment_batches,
    (select coalesce(sum(bytes), 0)::bigint from segments_seen) as segment_bytes,
    (select coalesce(sum(offsets), 0)::bigint from log_segments) as offsets_rolled,
    (select coalesce(sum(offsets), 0)::bigint from log_segments
        semi join (from segments_seen where state = 'read' and not indexed) using (segment)) as offsets_read,
    (select count(*) from stored where starts_with(object, 'segments/') and ends_with(object, '.log')
        and object not in (select object from log_segments where object is not null)) as segments_unnamed,
    (select count(*) from partition_logs) = 0 and exists (from coordinates) and not exists (from views) as stateless
"""


class AuditedLogs(NamedTuple):
    """What was covered, and beside which store. known: for the next audit, see `reading.KNOWN`; new_bytes: read now."""

    covered: LogsCovered
    store: Store | None
    known: Any
    new_bytes: int


def audit_logs(
    con: Any, engine: Engine, listed: ListedStore | None, known: Any | None, foreign: list[int], missed: frozenset[str]
) -> AuditedLogs:
    """Look at everything that members tell of partition logs, and at the store if there is one.

    missed: names of objects that were missing at an earlier look. Evidence goes into the tables of `reading` and of
    `segments.tables`; `conclude` makes findings of it.
    """
    make_history(con, foreign)
    reading.make_reading(con)
    store = None if listed is None else compare(listed, con, foreign)
    if listed is not None and store is not None and store.readable:
        add(con, [("stored", batch) for batch in listed.objects.to_batches()])
        reading.read_store(con, engine, store.place, known)
    reading.judge_store(con)
    for query in (AUDITED_SQL, FIRST_SQL, FILES_SQL, EVENTS_SQL, TAILS_SQL):
        con.execute(query)
    con.execute("insert into segment_parts by name from log_tails")
    con.execute(f"insert into segment_days by name {DAYS_SQL}")
    place = store.place if store is not None and store.readable else None
    add(con, (named for named in _judge(con, engine, place) if named[0] in EVIDENCE))
    reading.judge_missing(con, missed)
    ((new_bytes,),) = con.sql(NEW_BYTES_SQL).fetchall()
    covered = LogsCovered(store=None if store is None else str(store.place), **_facts(con))
    return AuditedLogs(covered, store, reading.remembered(con), new_bytes)


def _judge(con: Any, engine: Engine, store: Location | None) -> Iterator[Named]:
    """The evidence of `segments.tables` about what producers wrote, and of what is wrong with segments."""
    runs = con.sql(ALLOCATED_SQL).fetchnumpy()
    first, last = (np.asarray(runs[name], np.int64) for name in ("first_id", "last_id"))
    allocated = Allocated(*runs_of(first, last)) if len(first) else None
    named = [] if store is None else rolled.named_segments(con, store)
    cost, buckets = sum(one.cost for one in named), rolled.buckets_for(named)
    tails = LogsTask(
        batches=_blobs(con, ROWS_SQL, segments.BATCHES), parts=_blobs(con, "from log_tails", segments.PARTS)
    )
    tasks = [tails, *(LogsTask(store, shared) for shared in share(named, lambda one: one.cost))]
    read = partial(read_logs, settings=ReadSettings(buckets))
    judge = partial(judge_producers, settings=JudgeSettings(allocated))
    yield from (LocalEngine() if cost <= engine.alone_bytes else engine).shuffle(read, judge, tasks, buckets)


def _blobs(con: Any, query: str, schema: Any) -> list[bytes]:
    table = con.sql(query).to_arrow_table().select(schema.names).cast(schema)
    return [to_blob(batch) for batch in table.to_batches()]


def _facts(con: Any) -> dict[str, Any]:
    found = con.execute(COVERED_SQL)
    names = [column[0] for column in found.description]
    (row,) = found.fetchall()
    return dict(zip(names, row, strict=True))
