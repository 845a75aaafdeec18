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
create temp table partition_logs as
with newest as (
    select member_id, view, least(to_index, r."index") as "index", followed
    from views join reached r using (member_id)
    order by "index" desc, followed desc, from_index, member_id, view limit 1
)
select row_number() over (order by topic, "partition", log)::integer - 1 as number, log, topic, "partition", start,
    tail_start, followed
from places join newest using (member_id, view)
where created_index <= newest."index" and coalesce(removed_index > newest."index", true)
"""
_OF_BATCH: Final = "records, broker_id, broker_epoch, number, position, size, max_timestamp"
BATCHES_SQL: Final = f"""
create temp table batch_versions as
with copies as (
    select c.*, l.number as log_number from coordinates c
    join reached r on r.member_id = c.member_id and c."index" <= r."index"
    join partition_logs l on l.log = c.log and c.base_offset + c.records > l.tail_start
),
told as (
    select log_number, log, base_offset, {_OF_BATCH}, producer_id, producer_epoch, base_sequence,
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
    select log_number, log, base_offset, {_OF_BATCH}, producer, sum(copies)::bigint as copies,
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
    * exclude (version, number), number as object_number,
    case when founding is not null
        then format('wal/{}/{}/{}/{:020d}', founding, broker_id, broker_epoch, number) end as object
from batch_versions where version = 1
"""
MARKERS_SQL: Final = """
create temp table marker_versions as
with told as (
    select l.number as log_number, m.log, base_offset, producer_id, producer_epoch, committed,
        min(timestamp_ms) as timestamp_ms, count(*) as copies, bit_or(1::bigint << m.member_id) as holders,
        min({'member_id': m.member_id, 'file_id': file_id, 'position': "at"}) as copy
    from markers m
    join reached r on r.member_id = m.member_id and m."index" <= r."index"
    join partition_logs l on l.log = m.log and base_offset >= l.tail_start
    group by all
)
select *, row_number() over same as version
from told window same as (partition by log, base_offset order by bit_count(holders) desc, copies desc, copy)
"""


def make_history(con: Any, foreign: list[int]) -> None:
    """From `tables.TABLES`, `records` and `snapshots` the tables `partition_logs`, `log_batches` and `marker_versions`.

    `partition_logs` has the logs that there are, numbered by topic and partition; `log_batches` each batch of their
    tails once, where most members have it, with a `row_id` that ascends with the object and the place in it. What was
    rolled or deleted by then is in neither: its objects may be gone, whichever older snapshot names them.
    """
    con.execute(COMMITTED_SQL, {"foreign": foreign})
    for query in (LOGS_SQL, BATCHES_SQL, ROWS_SQL, MARKERS_SQL):
        con.execute(query)
