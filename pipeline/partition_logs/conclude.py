"""Findings about partition logs and consumer groups, from the tables of `auditing`."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows
from pidkeeper.pipeline.partition_logs import rolled
from pidkeeper.pipeline.partition_logs.store import Store

CHECKS: Final = (
    "log_offsets",
    "coordinates",
    "objects",
    "segments",
    "segment_index",
    "transaction_pair",
    "group_generation",
    "group_offsets",
)
"""In the order of the report. Besides, the checks of segments are run over partition logs as well."""
MAX_FINDINGS: Final = 1000
"""Of one kind, the first: a store that is lost would give one for each object. The others are counted."""

MACROS: Final = """
create macro log_text(which) as coalesce(
    (select p.topic || '-' || p."partition" from partition_logs p where p.log = which), 'log ' || which);
create macro producer_text(p) as coalesce(
    format(', by producer {}, epoch {}, sequence {}', p.id, p.epoch, p.sequence), '');
create macro batch_text(b) as format('{} records in {} bytes from byte {} of object {} of broker {}, epoch {}, {} ms{}',
    b.records, b.size, b.position, b.number, b.broker_id, b.broker_epoch, b.max_timestamp, producer_text(b.producer));
create macro marker_text(m) as format('a marker of producer {}, epoch {}, {}', m.producer_id, m.producer_epoch,
    case when m.committed then 'commit' else 'abort' end);
"""
FAULTS_SQL: Final = """
create temp table log_findings as
select "check", log, base_offset, min({'member_id': member_id, 'file_id': file_id, 'position': "at"}) as copy,
    arg_min(f.producer_id, member_id) as producer_id, min(timestamp_ms) as timestamp_ms, min(detail) as detail
from log_faults f join reached r using (member_id) where f."index" <= r."index" group by all
"""
UNION_SQL: Final = """
insert into log_findings by name
with spans as (
    select log, base_offset, records, copy, producer.id as producer_id, timestamp_ms
    from log_batches
    union all
    select log, base_offset, 1, copy, producer_id, timestamp_ms from marker_versions where version = 1 and not rolled
    union all
    select log, base_offset, end_offset - base_offset, {'member_id': member_id, 'file_id': file_id, 'position': "at"},
        null, null from log_segments
),
followed as (
    select *, max(base_offset + records) over (
        partition by log order by base_offset, records rows between unbounded preceding and 1 preceding) as due
    from spans
)
select case when base_offset < due then 'replicas_disagree' else 'log_offsets' end as "check", log,
    least(base_offset, due) as base_offset, copy, producer_id, timestamp_ms,
    case when base_offset < due
        then format('copies of the log differ: what begins at offset {} lies within what others have before it',
            base_offset)
        else format('no file has offsets {} to {}', due, base_offset - 1) end as detail
from followed f where base_offset <> due
    and not exists (from log_findings k where k.log = f.log and k.base_offset = least(f.base_offset, f.due))
"""
"""What no view shows by itself: copies that each are in order, and do not fit together."""
LOGS_SQL: Final = """
insert into findings by name
select "check", 'violation' as severity, format('{}, offset {}', log_text(f.log), base_offset) as subject,
    case when producer_id >= 0 then producer_id end as first_id,
    case when producer_id >= 0 then producer_id end as last_id, base_offset as "offset", topic, "partition",
    timestamp_ms, name_of(copy.member_id) as member, path_of(copy.file_id) as file, copy.position as "position", detail
from log_findings f left join partition_logs l using (log)
"""
GROUPS_SQL: Final = """
insert into findings by name
with told as (
    select "check", severity, group_id, topic, "partition", log_offset, producer_id, min(timestamp_ms) as timestamp_ms,
        min({'member_id': member_id, 'file_id': file_id, 'position': "at"}) as copy, min(detail) as detail
    from group_faults f join reached r using (member_id) where f."index" <= r."index" group by all
)
select "check", severity, format('group {}{}', group_id, coalesce(', ' || topic || '-' || "partition", '')) as subject,
    producer_id as first_id, producer_id as last_id, log_offset as "offset", topic, "partition", timestamp_ms,
    name_of(copy.member_id) as member, path_of(copy.file_id) as file, copy.position as "position", detail
from told
"""
VERSIONS_SQL: Final = """
insert into findings by name
with told as (
    select log, base_offset, version, copies, copy, batch_text(b) as content from batch_versions b
    union all
    select log, base_offset, version, copies, copy, marker_text(m) from marker_versions m
),
agreed as (
    select *, first_value({'content': content, 'copies': copies, 'copy': copy}) over (
        partition by log, base_offset, starts_with(content, 'a marker') order by version) as most from told
)
select 'replicas_disagree' as "check", 'violation' as severity,
    format('{}, offset {}, member {}', log_text(a.log), base_offset, name_of(copy.member_id)) as subject,
    base_offset as "offset", topic, "partition", name_of(copy.member_id) as member, path_of(copy.file_id) as file,
    copy.position as "position",
    format('{}; but {} copies, as in member {} ({}), have {}', content, most.copies, name_of(most.copy.member_id),
        path_of(most.copy.file_id), most.content) as detail
from agreed a join partition_logs l using (log) where version > 1
"""
COORDINATES_SQL: Final = """
insert into findings by name
with placed as (
    select *, max({'reach': position + size, 'log': log, 'base_offset': base_offset}) over (
        partition by founding, broker_id, broker_epoch, object_number order by position, row_id
        rows between unbounded preceding and 1 preceding) as before
    from log_batches
),
wrong as (
    select *, format('it takes bytes {} to {}, and the object has {}', position, position + size - 1, object_size)
        as detail
    from placed where position + size > object_size
    union all
    select *, format('it takes bytes {} to {}, and the batch at offset {} of {} reaches to byte {}: two have the same '
        'bytes', position, position + size - 1, before.base_offset, log_text(before.log), before.reach - 1)
    from placed where position < before.reach
)
select 'coordinates' as "check", 'violation' as severity,
    format('{}, offset {}', log_text(w.log), base_offset) as subject,
    producer.id as first_id, producer.id as last_id, base_offset as "offset", topic, "partition", timestamp_ms,
    coalesce(object, 'object ' || object_number) as file, position, detail
from wrong w join partition_logs l using (log)
"""
OBJECTS_SQL: Final = """
create temp table object_findings as
with of_objects as (
    select row_id, o.*, count(*) over same as batches, count(distinct log) over same as logs, object_size,
        row_number() over (partition by object order by row_id) as nth
    from objects_seen o join log_batches using (object)
    window same as (partition by object)
),
wrong as (
    select row_id, format('{} is not in the store: {} batches of {} logs are lost', object, batches, logs) as detail
    from of_objects semi join lost_objects using (object) where nth = 1
    union all
    select row_id, format('the object has {} bytes, and was committed with {}', bytes, object_size)
    from of_objects where nth = 1 and state = 'read' and bytes <> object_size
    union all
    select row_id, 'its object has something else there: ' || fault from object_faults where fault is not null
)
select *, row_number() over (order by row_id, detail) as rank from wrong
"""
FOUND_SQL: Final = """
insert into findings by name
select 'objects' as "check", 'violation' as severity, format('{}, offset {}', log_text(b.log), base_offset) as subject,
    producer.id as first_id, producer.id as last_id, base_offset as "offset", topic, "partition", timestamp_ms,
    object as file, position, detail
from object_findings join log_batches b using (row_id) join partition_logs l using (log) where rank <= $most
"""
LEFT_SQL: Final = """
insert into left_out by name
select 'objects' as "check", 'violation' as severity, count(*) as "rows" from object_findings where rank > $most
having count(*) > 0
"""
EARLY_SQL: Final = """
insert into findings by name
with wrote as (
    select producer.id as producer_id, min(log_offset) as log_offset,
        arg_min({'log': log, 'base_offset': base_offset, 'timestamp_ms': timestamp_ms}, log_offset) as place
    from batch_versions where version = 1 and producer.id >= 0 and log_offset is not null group by producer.id
),
later as (
    select first_id, last_id, "offset" from blocks_in_order
    where version = 1 and "offset" > (select min(log_offset) from wrote)
)
select 'unallocated' as "check", 'violation' as severity,
    format('{}-{}, producer {}', topic, "partition", w.producer_id) as subject, w.producer_id as first_id,
    w.producer_id as last_id, place.base_offset as "offset", topic, "partition", place.timestamp_ms as timestamp_ms,
    object as file, b.position, format('a batch of producer {} joined at offset {} of the quorum''s log, and its block '
        'was given out at offset {} only', w.producer_id, w.log_offset, l."offset") as detail
from wrote w join later l on w.producer_id between l.first_id and l.last_id and l."offset" > w.log_offset
join partition_logs p on p.log = place.log
left join log_batches b on b.log = place.log and b.base_offset = place.base_offset
"""
PLACES_SQL: Final = """
update findings set file = b.object, "position" = b.position
from (select f.path, b.base_offset, b.object, b.position from audited_batches b
    join log_parts p on p.log_number = b.log_number and p.segment is null join files f using (file_id)) b
where findings.file = b.path and findings."offset" = b.base_offset
"""
"""The checks of segments name the log as the file: the object is where to look."""


def conclude(con: Any, store: Store | None) -> None:
    """Insert the findings of CHECKS, and of others about partition logs and groups."""
    con.execute(MACROS)
    for query in (FAULTS_SQL, UNION_SQL, OBJECTS_SQL):
        con.execute(query)
    for table, query in (
        ("log_findings", LOGS_SQL),
        ("group_faults", GROUPS_SQL),
        ("batch_versions", COORDINATES_SQL),
        ("batch_versions", EARLY_SQL),
    ):
        if has_rows(con, table):
            con.execute(query)
    if (
        con.execute("from batch_versions where version > 1 limit 1").fetchall()
        or con.execute("from marker_versions where version > 1 limit 1").fetchall()
    ):
        con.execute(VERSIONS_SQL)
    if has_rows(con, "object_findings"):
        con.execute(FOUND_SQL, {"most": MAX_FINDINGS})
        con.execute(LEFT_SQL, {"most": MAX_FINDINGS})
    rolled.conclude(con, MAX_FINDINGS)
    if store is not None and store.check is not None:
        con.execute(
            """
            insert into findings by name
            select $check as "check", 'violation' as severity, 'the store' as subject, $place as file, $detail as detail
            """,
            {"check": store.check, "place": str(store.place), "detail": store.detail},
        )


def name_objects(con: Any) -> None:
    """In findings of other checks: the object, and the byte in it, of a batch in a partition log."""
    con.execute(PLACES_SQL)
