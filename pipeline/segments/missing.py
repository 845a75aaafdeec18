"""Batches that are not there, though nothing compacts the topic.

A broker gives every batch the offset behind that of the batch before it, markers and aborted transactions as well, and
deletes whole segments from the start of a log. So a log without compaction has no hole between two of its batches.
Where a file is damaged, the damage explains the hole; messages in formats 0 and 1, whose offsets are not looked at, may
fill it.
"""

from __future__ import annotations

from typing import Any, Final

_MISSING: Final = """
insert into findings by name
with parts as (
    select
        *, max(reach) over before_it as reached,
        coalesce(sum(holes) over before_it, 0) + holes_first as holes_here,
        coalesce(sum(old) over before_it, 0) + old_first as old_here,
        coalesce(sum(holes) over before_it, 0) + holes_last as holes_left,
        coalesce(sum(old) over before_it, 0) + old_last as old_left
    from segment_parts
    window before_it as (partition by log_id order by part rows between unbounded preceding and 1 preceding)
), seams as (
    select *, lag(holes_left) over in_order as holes_there, lag(old_left) over in_order as old_there
    from parts
    where first_base is not null
    window in_order as (partition by log_id order by part)
), every as (
    select
        partition_id, file_id, first_position as position, first_ms as timestamp_ms,
        reached + 1 as first_offset, first_base - 1 as last_offset, holes_here > holes_there as damaged
    from seams
    where whole and first_base - 1 > reached and old_here = old_there
    union all
    select partition_id, file_id, position, timestamp_ms, first_offset, last_offset, damaged
    from offset_holes
), once as (
    select *
    from every
    join files using (file_id)
    qualify row_number() over (
        partition by partition_id, first_offset, last_offset order by damaged, file_id, position
    ) = 1
)
select
    'missing_batches' as check, case when damaged then 'warning' else 'violation' end as severity,
    coalesce(topic || '-' || "partition", path) as subject, first_offset as "offset",
    topic, "partition", timestamp_ms, member, path as file, position,
    format(
        'offsets {} to {} have no batch, and batches stand before and behind them: {}',
        first_offset, last_offset,
        case
            when damaged then 'the file is damaged there, which explains it'
            else 'nothing compacts this topic, so records were lost'
        end
    ) as detail
from once
"""


def find_missing(con: Any) -> None:
    """Insert into `findings` one for each run of offsets without a batch in topics that are never compacted.

    From `offset_holes`, those within a part, and `segment_parts`, those between two parts of a log.
    """
    con.execute(_MISSING)
