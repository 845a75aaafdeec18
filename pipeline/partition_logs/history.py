"""One history of all partition logs, from the copies that members have of it, on the driver's connection.

Which logs there are is taken from the view that reaches farthest: a topic that was deleted leaves nothing. Of these
every batch and marker counts that any member's files have at a committed index; copies that differ are findings.
"""

from __future__ import annotations

from typing import Any, Final

COMMITTED_SQL: Final = """
create temp table reached as
select member_id, max("index") as "index" from (
    select member_id, "index" from records where committed
    union all select member_id, "index" from snapshots
) where not list_contains($foreign, member_id) group by member_id
"""
"""The newest committed entry that each member's files have."""
LOGS_SQL: Final = """
create temp table newest_view as
select member_id, view, least(to_index, r."index") as "index", followed, groups, group_offsets
from views join reached r using (member_id)
order by "index" desc, followed desc, from_index, member_id, view limit 1;

create temp table in_force as
select s.* from rolled s join newest_view n using (member_id, view)
where s."index" <= n."index" and coalesce(until_index > n."index", true);

create temp table partition_logs as
with begun as (
    select log, max(start) as start from starts s join newest_view n using (member_id, view)
    where s."index" <= n."index" group by log
),
ended as (select log, max(end_offset) as end_offset from in_force group by log)
select row_number() over (order by topic, "partition", log)::integer - 1 as number, log, topic, "partition",
    coalesce(start, 0) as start, greatest(coalesce(start, 0), coalesce(end_offset, 0)) as tail_start, followed
from places p join newest_view n using (member_id, view) left join begun using (log) left join ended using (log)
where created_index <= n."index" and coalesce(removed_index > n."index", true);

create temp table log_segments as
select row_number() over (order by l.number, base_offset, s."index")::integer - 1 as segment,
    l.number as log_number, s.*, (s.topic, s."partition") = (l.topic, l."partition") as named_well,
    end_offset - greatest(base_offset, l.start) as offsets,
    case when founding is not null
        then format('segments/{}/{}/{}/{:020d}/{}-{}/{:020d}', founding, broker_id, broker_epoch, s.number, s.topic,
            s."partition", base_offset) end || '.log' as object
from in_force s join partition_logs l using (log)
"""
"""`log_segments`: what the logs read from now, numbered by log and offset."""
_OF_BATCH: Final = "records, broker_id, broker_epoch, number, position, size, max_timestamp"
BATCHES_SQL: Final = f"""
create temp table batch_versions as
with copies as (
    select c.*, l.number as log_number, c.base_offset + c.records <= l.tail_start as rolled from coordinates c
    join reached r on r.member_id = c.member_id and c."index" <= r."index"
    join partition_logs l on l.log = c.log and c.base_offset + c.records > l.start
),
told as (
    select log_number, rolled, log, base_offset, {_OF_BATCH}, producer_id, producer_epoch, base_sequence,
        count(*) as copies, bit_or(1::bigint << member_id) as holders, max(founding) as founding,
        count(distinct founding) as foundings, max(object_size) as object_size, bool_or(transactional) as transactional,
        min(log_offset) as log_offset, min(timestamp_ms) as timestamp_ms,
        min({{'member_id': member_id, 'file_id': file_id, 'position': "at"}}) as copy
    from copies group by all
),
known as (
    -- A copy without a producer is one of those that have it.
    select * exclude (producer_id, producer_epoch, base_sequence),
        coalesce(
            case when producer_id is not null
                then {{'id': producer_id, 'epoch': producer_epoch, 'sequence': base_sequence}} end,
            max(case when producer_id is not null
                then {{'id': producer_id, 'epoch': producer_epoch, 'sequence': base_sequence}} end) over same
        ) as producer
    from told window same as (partition by log, base_offset, {_OF_BATCH})
),
joined as (
    select log_number, rolled, log, base_offset, {_OF_BATCH}, producer, sum(copies)::bigint as copies,
        bit_or(holders) as holders, max(founding) as founding, max(foundings) as foundings,
        max(object_size) as object_size, bool_or(transactional) as transactional, min(log_offset) as log_offset,
        min(timestamp_ms) as timestamp_ms, min(copy) as copy
    from known group by all
)
select *, row_number() over same as version
from joined window same as (
    partition by log, base_offset order by bit_count(holders) desc, copies desc, copy
)
"""
"""Copies that disagree about one batch are versions of it: the first is what most members have."""
ROWS_SQL: Final = """
create temp table log_batches as
select row_number() over (order by founding, broker_id, broker_epoch, number, position)::integer - 1 as row_id,
    * exclude (version, rolled, number), number as object_number,
    case when founding is not null
        then format('wal/{}/{}/{}/{:020d}', founding, broker_id, broker_epoch, number) end as object
from batch_versions where version = 1 and not rolled
"""
MARKERS_SQL: Final = """
create temp table marker_versions as
with told as (
    select l.number as log_number, base_offset < l.tail_start as rolled, m.log, base_offset,
        producer_id, producer_epoch, committed,
        min(timestamp_ms) as timestamp_ms, count(*) as copies, bit_or(1::bigint << m.member_id) as holders,
        min({'member_id': m.member_id, 'file_id': file_id, 'position': "at"}) as copy
    from markers m
    join reached r on r.member_id = m.member_id and m."index" <= r."index"
    join partition_logs l on l.log = m.log and base_offset >= l.start
    group by all
)
select *, row_number() over same as version
from told window same as (partition by log, base_offset order by bit_count(holders) desc, copies desc, copy)
"""


KNOWN_SQL: Final = """
create temp table known_of_segments as
with told as (
    select log_number, base_offset, records, producer.id as producer_id, producer.epoch as producer_epoch,
        producer.sequence as base_sequence, max_timestamp, transactional, null::boolean as committed
    from batch_versions where version = 1 and rolled
    union all
    select log_number, base_offset, 1, producer_id, producer_epoch, -1, timestamp_ms, true, committed
    from marker_versions where version = 1 and rolled
)
select s.segment, t.* exclude (log_number) from told t asof join log_segments s
on t.log_number = s.log_number and t.base_offset >= s.base_offset
where t.base_offset < s.end_offset order by s.segment, t.base_offset
"""
"""What members still tell of batches and markers that were rolled; of a marker it is whether it commits."""


def make_history(con: Any, foreign: list[int]) -> None:
    """From `tables.TABLES`, `records` and `snapshots` the tables `partition_logs`, `log_segments`, `log_batches`.

    `partition_logs` has the logs that there are, numbered by topic and partition; `log_batches` each batch of their
    tails once, where most members have it, with a `row_id` that ascends with the object and the place in it. Objects of
    what was rolled by then may be gone, whichever older snapshot names them: such batches are in `batch_versions` and
    in `known_of_segments` alone, and markers in `marker_versions`.
    """
    con.execute(COMMITTED_SQL, {"foreign": foreign})
    for query in (LOGS_SQL, BATCHES_SQL, ROWS_SQL, MARKERS_SQL, KNOWN_SQL):
        con.execute(query)
