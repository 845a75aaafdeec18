"""Batches of a producer that had been fenced."""

from __future__ import annotations

from typing import Any, Final

_FENCED: Final = """
create or replace temp table fenced as
with late as (
    select
        log_id, producer_id, epoch,
        count(*) as batches,
        arg_min(
            {
                'part': part, 'position': position, 'timestamp_ms': timestamp_ms, 'base_offset': base_offset,
                'fenced_by': fenced_by
            },
            {'base_offset': base_offset, 'part': part, 'position': position}
        ) as start
    from followed
    where fenced_by is not null and not is_control
    group by log_id, producer_id, epoch
)
select
    producer_id, epoch, start.fenced_by as fenced_by, batches, start.part as part,
    start.position as position, start.timestamp_ms as timestamp_ms, start.base_offset as base_offset
from late
"""


def find_fenced(con: Any) -> None:
    """The temporary table `fenced`, by tables.KEPT: a row for all such batches of an epoch in a copy."""
    con.execute(_FENCED)
