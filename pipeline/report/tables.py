"""The tables that an audit leaves, as Parquet, with stable columns. `day` is yyyy-mm-dd in UTC, null if unknown."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pidkeeper.pipeline.findings import FINDINGS
from pidkeeper.pipeline.formats.problems import TORN
from pidkeeper.pipeline.paths import LOG_SUFFIX
from pidkeeper.pipeline.quorum import evidence
from pidkeeper.pipeline.segments.segment_files import SUFFIX as SEGMENT_SUFFIX

_LONG: Final = pa.int64()
_INT: Final = pa.int32()
_TEXT: Final = pa.string()

BATCHES_DAILY: Final = pa.schema(
    [
        ("topic", _TEXT),
        ("partition", _INT),
        ("batches", _LONG),  # each counted once for every replica that was read
        ("records", _LONG),
        ("producers", _LONG),  # distinct producer IDs
        ("first_timestamp_ms", _LONG),
        ("last_timestamp_ms", _LONG),
        ("last_offset", _LONG),
        ("replicas", _LONG),  # brokers whose segments were read
        ("day", _TEXT),
    ]
)
FILES: Final = pa.schema(
    [
        ("source", _TEXT),  # archive, snapshot, log or segment
        ("member", _TEXT),
        ("file", _TEXT),
        ("bytes", _LONG),
        ("rows", _LONG),  # blocks, batches or frames that were good
        ("problems", _LONG),
        ("kinds", _TEXT),  # of problems, by comma
        ("first_position", _LONG),
        ("detail", _TEXT),  # the first problem, for the eye
    ]
)
TABLES: Final = {
    "blocks": evidence.BLOCKS,
    "blocks_adrift": evidence.BLOCKS,  # those whose offset no log tells: of no shard, so each audit has its own
    "findings": FINDINGS.append(pa.field("day", _TEXT)),
    "files": FILES,
    "batches_daily": BATCHES_DAILY,
}

WRITTEN: Final = ("blocks_adrift", "findings", "files", "batches_daily")
"""Those that each audit writes whole; the blocks of earlier ones stay."""
_WRITTEN_ON: Final = f"(ends_with(path, '{LOG_SUFFIX}') or ends_with(path, '{SEGMENT_SUFFIX}'))"
LEGAL: Final = f"(kind = 'zero_tail' or kind = '{TORN}' and {_WRITTEN_ON})"
"""A batch that was being written when its member or broker died or was copied: it was never acknowledged. And what a
broker preallocated of a segment and has not written to. See segments/seams.py for segments with another one behind."""
FILES_SQL: Final = """
create temp table audited_files as
with counted as (
    select file_id, max(rows) as rows from archive_files group by file_id
    union all select file_id, sum(batches) from logs group by file_id
    union all select file_id, count(*) from snapshots group by file_id
    union all select file_id, sum(batches) from segment_parts group by file_id
),
named as (
    select p.* exclude (file), coalesce(f.path, p.file) as path, coalesce(s.problems, 0) as counted
    from problems p left join files f using (file_id)
    left join (select file_id, sum(problems) as problems from segment_parts group by file_id) s using (file_id)
),
wrong as (
    select path, greatest(count(*), max(counted)) as problems, string_agg(distinct kind, ', ' order by kind) as kinds,
        min("position") as first_position, arg_min(detail, "position") as detail, any_value(member_id) as member_id
    from named group by path
)
select coalesce(f.source, 'other') as source, coalesce(f.member, name_of(w.member_id)) as member,
    coalesce(f.path, w.path) as file, f.bytes, coalesce(c.rows, 0)::bigint as rows,
    coalesce(w.problems, 0)::bigint as problems, w.kinds, w.first_position, w.detail
from (from files where listed) f
left join counted c using (file_id)
full join wrong w on f.path = w.path
where f.path is null or c.file_id is not null or w.path is not null or f.source = 'segment' or f.source = 'archive'
"""
DAILY_SQL: Final = """
create temp table batches_daily as
with days as (
    select f.topic, f."partition", d.day, sum(d.batches)::bigint as batches, sum(d.records)::bigint as records,
        min(d.first_timestamp_ms) as first_timestamp_ms, max(d.last_timestamp_ms) as last_timestamp_ms,
        max(d.last_offset) as last_offset, count(distinct f.member) as replicas,
        any_value(d.partition_id) as partition_id
    from segment_days d join files f using (file_id) group by f.topic, f."partition", d.day
),
wrote as (select partition_id, day, sum(producers)::bigint as producers from producer_days group by partition_id, day)
select topic, "partition", batches, records, coalesce(producers, 0) as producers, first_timestamp_ms,
    last_timestamp_ms, last_offset, replicas, day_of(days.day::bigint * 86400000) as day
from days left join wrote on days.partition_id = wrote.partition_id and days.day is not distinct from wrote.day
"""
PROBLEMS_SQL: Final = f"""
insert into findings by name
with named as (select p.* exclude (file), coalesce(f.path, p.file) as path, f.member, f.topic, f."partition",
        case f.source when 'segment' then 'broker' else 'member' end as whose
    from problems p left join files f using (file_id))
select distinct 'files' as "check", case when {LEGAL} then 'note' else 'warning' end as severity,
    format('{{}} of {{}} {{}}', parse_filename(path), whose, coalesce(member, name_of(member_id))) as subject, topic,
    "partition", coalesce(member, name_of(member_id)) as member, path as file, "position",
    format('{{}}: {{}}', kind, detail) as detail
from named
"""
"""`files`: what is wrong with the files themselves, one finding for each problem."""


def table(con: Any, name: str) -> Any:
    """One of TABLES but `blocks`, from the driver's connection."""
    if name == "findings":
        query = "select *, day_of(timestamp_ms) as day from findings"
    else:
        query = f"from {'audited_files' if name == 'files' else name}"
    return con.sql(query).to_arrow_table().cast(TABLES[name])
