"""What only shows where one segment of a log is seen beside the next.

Segments of a log follow one another: none has offsets of the one behind it, and where nothing compacts the topic, each
is named after its first batch. Only the segment that a broker writes to may end in zeros, which it preallocated, or
within a batch; it ends whole before another one begins.
"""

from __future__ import annotations

from typing import Any, Final

_SEGMENTS: Final = r"""
create or replace temp table segments_in_order as
with segments as (
    select
        log_id, file_id, any_value(path) as path, bool_and(whole) as whole, min(first_base) as first_base,
        max(reach) as reach, arg_min(first_position, part) as first_position, sum(old) as old
    from segment_parts
    join files using (file_id)
    where topic is not null and source = 'segment'
    group by log_id, file_id
    having first_base is not null
), named as (
    select *, try_cast(regexp_extract(path, '(\d{20})\.log$', 1) as bigint) as named from segments
)
select
    *, lag(reach) over in_order as reached,
    lead(first_base) over in_order as next_base, lead(file_id) over in_order as next_file
from named
where named is not null
window in_order as (partition by log_id order by file_id)
"""

_OVERREACHING: Final = """
insert into problems by name
select
    file_id, 'offset_order' as kind, first_position as position,
    format('its batches go up to offset {}, and the next segment begins at {}', reach, next_base) as detail
from segments_in_order
where next_base <= reach and not exists (
    -- What is known to be wrong with either of the two explains it.
    from problems
    where kind = 'offset_order' and problems.file_id in (segments_in_order.file_id, next_file)
)
"""

_MISNAMED: Final = """
insert into problems by name
select
    file_id, 'misnamed' as kind, 0 as position,
    format('its first batch has offset {}, and its name says {}: what should be between is not here', first_base, named)
        as detail
from segments_in_order
-- A hole before it is a finding of its own, see missing.py.
where whole and old = 0 and first_position = 0 and first_base > named and coalesce(reached >= first_base - 1, true)
"""

_ENDS: Final = """
update problems
set kind = 'lost_boundary', detail = detail || ', and another segment is behind it'
where kind in ('zero_tail', 'torn') and file_id in (
    select file_id
    from segment_parts
    qualify file_id < max(file_id) over (partition by log_id)
)
"""


def find_seams(con: Any) -> None:
    """Add to the table `problems`, from `segment_parts`, what is wrong between segments."""
    for query in (_SEGMENTS, _OVERREACHING, _MISNAMED, _ENDS):
        con.execute(query)
