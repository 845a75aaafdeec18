"""`epoch_regress` and `stale_epoch`: a block goes to the broker's current registration alone (S4, S5)."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows

FALLS_SQL: Final = """
create temp table falls as
with seams as (
    select first as block, lag(last) over (partition by broker_id order by shard) as previous from brokers
)
select block, previous from epoch_falls
union all select block, previous from seams where previous.broker_epoch > block.broker_epoch
"""
FALLEN_SQL: Final = """
insert into findings by name
select 'epoch_regress' as "check", 'violation' as severity,
    format('broker {}, epoch {}', block.broker_id, block.broker_epoch) as subject,
    block.first_id as first_id, block.last_id as last_id, block.broker_id as broker_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, owner_of_file(file_of(block.place)) as member,
    path_of(file_of(block.place)) as file, position_of(block.place) as "position",
    format('epoch {} of broker {} has {}, after epoch {} had {}: a stale process was given IDs', block.broker_epoch,
        block.broker_id, block_text(block), previous.broker_epoch, block_text(previous)) as detail
from falls
"""
STALE_SQL: Final = """
insert into findings by name
select 'stale_epoch' as "check", 'violation' as severity,
    format('broker {}, epoch {}', block.broker_id, block.broker_epoch) as subject,
    block.first_id as first_id, block.last_id as last_id, block.broker_id as broker_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, owner_of_file(file_of(block.place)) as member,
    path_of(file_of(block.place)) as file, position_of(block.place) as "position",
    case when block.broker_epoch >= block."offset"
        then format('{} is for epoch {}, but an epoch is the offset of a registration before it', block_text(block),
            block.broker_epoch)
        else format('{} is for epoch {}, but the broker had registered anew with epoch {}', block_text(block),
            block.broker_epoch, newest) end as detail
from stale_epochs
"""
SHARED_SQL: Final = """
create temp table shared_epochs as
with firsts as (
    select broker_epoch, first.broker_id as broker_id, arg_min(first, shard) as block from epochs group by all
)
select *, first_value(block) over same as owner
from firsts
window same as (partition by broker_epoch order by block."offset")
qualify row_number() over same > 1
"""
ANOTHERS_SQL: Final = """
insert into findings by name
select 'stale_epoch' as "check", 'violation' as severity,
    format('broker {}, epoch {}', broker_id, broker_epoch) as subject,
    block.first_id as first_id, block.last_id as last_id, broker_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, owner_of_file(file_of(block.place)) as member,
    path_of(file_of(block.place)) as file, position_of(block.place) as "position",
    format('{} is for epoch {}, which is the registration of another broker, as {} shows', block_text(block),
        broker_epoch, block_text(owner)) as detail
from shared_epochs
"""


def conclude(con: Any) -> None:
    """Blocks whose epoch is below that of the same broker's block before, or was over, another's, or impossible."""
    con.execute(FALLS_SQL)
    con.execute(SHARED_SQL)
    for table, query in (("falls", FALLEN_SQL), ("stale_epochs", STALE_SQL), ("shared_epochs", ANOTHERS_SQL)):
        if has_rows(con, table):
            con.execute(query)
