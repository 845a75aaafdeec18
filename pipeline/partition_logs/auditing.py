"""The partition logs of an audit: one history, the objects that it names, and what producers wrote.

The rows are those of the logs' tails, which the quorum bounds (200,000 of all logs), and come to the driver. What
producers wrote is judged by the checks of Kafka's segments, with each log as a segment of one part: offsets whose
producer nobody tells count as missing there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from pidkeeper.pipeline.engine.engine import Engine, Named
from pidkeeper.pipeline.partition_logs import reading
from pidkeeper.pipeline.partition_logs.history import make_history
from pidkeeper.pipeline.partition_logs.store import ListedStore, Store, compare
from pidkeeper.pipeline.quorum.blocks import runs_of
from pidkeeper.pipeline.quorum.loading import add
from pidkeeper.pipeline.segments import tables as segments
from pidkeeper.pipeline.segments.allocation import Allocated
from pidkeeper.pipeline.segments.judge import JudgeSettings, judge_producers
from pidkeeper.pipeline.verdict import LogsCovered

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
"""The logs have numbers behind those of segments."""
FILES_SQL: Final = """
insert into files by name
select (f.file_id + number)::integer as file_id, 'partition' as source, topic || '-' || "partition" as path, topic,
    "partition", false as listed
from partition_logs, first_numbers f
"""
EVENTS_SQL: Final = """
create temp table log_events as
with events as (
    select log_number, base_offset, records, producer_id, producer_epoch as epoch, base_sequence,
        case when base_sequence < 0 then -1 else (base_sequence + records - 1) & 2147483647 end as last_sequence,
        false as is_control, coalesce(transactional, false) as is_transactional, broker_clock, timestamp_ms
    from audited_batches
    union all
    select log_number, base_offset, 1, producer_id, producer_epoch, -1, -1, true, true, true, timestamp_ms
    from marker_versions where version = 1
)
select *, coalesce(sum(case when producer_id is null then records end) over to_here, 0)::bigint as missing,
    max(timestamp_ms) over to_here as seen_ms
from events
window to_here as (
    partition by log_number order by base_offset rows between unbounded preceding and current row
)
"""
PARTS_SQL: Final = """
create temp table log_parts as
select (f.part + l.number)::integer as part, (f.file_id + l.number)::integer as file_id,
    (f.log_id + l.number)::integer as log_id, (f.partition_id + l.number)::integer as partition_id,
    (f.topic_id + dense_rank() over (order by topic) - 1)::integer as topic_id, f.member_id::integer as member_id,
    true as sequenced, coalesce(missing, 0) = 0 as whole, first_base, reach, coalesce(missing, 0) as missing,
    0::bigint as holes, newest_ms, newest_ms as clock_ms, 0::bigint as key,
    coalesce(batches, 0) as batches, coalesce(e.records, 0) as records, first_base as first_offset,
    reach as last_offset, newest_ms as max_timestamp_ms, 0::bigint as problems, 0::bigint as holes_first,
    0::bigint as holes_last, 0::bigint as old, 0::bigint as old_first, 0::bigint as old_last, false as anew
from partition_logs l cross join first_numbers f left join (
    select log_number, min(base_offset) as first_base, max(base_offset + records) - 1 as reach,
        max(missing) as missing, max(timestamp_ms) as newest_ms, count(*) as batches, sum(records)::bigint as records
    from log_events group by log_number
) e on e.log_number = l.number
"""
ROWS_SQL: Final = """
select producer_id, (f.part + log_number)::integer as part, base_offset as position, base_offset,
    epoch::smallint as epoch, base_sequence::integer as base_sequence, last_sequence::integer as last_sequence,
    is_control, is_transactional, is_transactional and not is_control as opens, broker_clock, timestamp_ms,
    coalesce(seen_ms, -1) as seen_ms, missing, 0::integer as holes
from log_events, first_numbers f where producer_id >= 0
"""
DAYS_SQL: Final = """
select (f.file_id + log_number)::integer as file_id, (f.partition_id + log_number)::integer as partition_id,
    (case when max_timestamp > 0 then max_timestamp // 86400000 end)::integer as day, count(*) as batches,
    sum(records)::bigint as records, min(max_timestamp) as first_timestamp_ms, max(max_timestamp) as last_timestamp_ms,
    max(base_offset + records) - 1 as last_offset
from audited_batches, first_numbers f group by all
"""
ALLOCATED_SQL: Final = "select first_id, last_id from id_runs union all select first_id, last_id from adrift"
NEW_BYTES_SQL: Final = """
select coalesce(sum(bytes), 0)::bigint from objects_seen where object not in (
    select object from known_batches join stored using (object, stamp))
"""
COVERED_SQL: Final = """
select (select count(*) from partition_logs) as logs, (select count(*) from log_batches) as batches,
    (select count(distinct object) from log_batches) as objects,
    (select count(*) from objects_seen where state = 'read') as objects_read,
    (select coalesce(sum(bytes), 0)::bigint from objects_seen) as bytes_read,
    (select count(*) from objects_seen where state = 'unreadable') as objects_unreadable,
    (select count(*) from objects_seen, stored_ahead where state = 'missing' and ahead) as objects_gone,
    (select count(*) from log_batches where object is null) as batches_nowhere,
    (select coalesce(sum(tail_start - start), 0)::bigint from partition_logs) as offsets_rolled,
    (select count(*) from partition_logs) = 0 and exists (from coordinates) and not exists (from views) as stateless
"""


class AuditedLogs(NamedTuple):
    """What was covered, and beside which store. known: for the next audit, see `reading.KNOWN`; new_bytes: read now."""

    covered: LogsCovered
    store: Store | None
    known: Any
    new_bytes: int


def audit_logs(
    con: Any, engine: Engine, listed: ListedStore | None, known: Any | None, foreign: list[int]
) -> AuditedLogs:
    """Look at everything that members tell of partition logs, and at the store if there is one.

    Evidence goes into the tables of `reading` and of `segments.tables`; `conclude` makes findings of it.
    """
    make_history(con, foreign)
    reading.make_reading(con)
    store = None if listed is None else compare(listed, con, foreign)
    if listed is not None and store is not None and store.readable:
        add(con, [("stored", batch) for batch in listed.objects.to_batches()])
        reading.read_store(con, engine, store.place, known)
    reading.judge_store(con)
    for query in (AUDITED_SQL, FIRST_SQL, FILES_SQL, EVENTS_SQL, PARTS_SQL):
        con.execute(query)
    con.execute("insert into segment_parts by name from log_parts")
    con.execute(f"insert into segment_days by name {DAYS_SQL}")
    add(con, (named for named in _judge(con) if named[0] in segments.EVIDENCE))
    ((new_bytes,),) = con.sql(NEW_BYTES_SQL).fetchall()
    covered = LogsCovered(store=None if store is None else str(store.place), **_facts(con))
    return AuditedLogs(covered, store, reading.remembered(con), new_bytes)


def _judge(con: Any) -> Iterator[Named]:
    """The evidence of `segments.tables` about what producers wrote."""
    runs = con.sql(ALLOCATED_SQL).fetchnumpy()
    first, last = (np.asarray(runs[name], np.int64) for name in ("first_id", "last_id"))
    allocated = Allocated(*runs_of(first, last)) if len(first) else None
    rows = [("parts", "from log_parts", segments.PARTS), ("batches", ROWS_SQL, segments.BATCHES)]
    given = [
        (name, batch)
        for name, query, schema in rows
        for batch in con.sql(query).to_arrow_table().select(schema.names).cast(schema).to_batches()
    ]
    return judge_producers(0, iter(given), JudgeSettings(allocated))


def _facts(con: Any) -> dict[str, Any]:
    found = con.execute(COVERED_SQL)
    names = [column[0] for column in found.description]
    (row,) = found.fetchall()
    return dict(zip(names, row, strict=True))
