"""`memory`: what an earlier audit saw, and files do not have any more, or have otherwise.

Nothing that was once handed out is ever handed back, so a block that was seen stays in the history for good, and what
is told of it is told again until files have it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows
from pidkeeper.pipeline.engine.engine import Named
from pidkeeper.pipeline.files.location import Location
from pidkeeper.pipeline.files.parquet import ParquetFiles
from pidkeeper.pipeline.quorum import evidence
from pidkeeper.pipeline.quorum.evidence import ALLOCATIONS

MAX_CHANGES: Final = 10_000
"""Of one shard, so that a history that is another one altogether is not told block by block."""
CHANGES_SQL: Final = """
with seen as (
    select *, row_number() over (order by "offset") as number from before
    where version = 1 and "offset" >= $start and "offset" < $end
),
compared as (
    select s.*, {'offset': n."offset", 'first_id': n.first_id, 'last_id': n.last_id, 'broker_id': n.broker_id,
            'broker_epoch': n.broker_epoch, 'timestamp_ms': n.timestamp_ms, 'place': n.place} as now,
        n.first_id is null as gone
    from seen s left join (from versions where version = 1) n using ("offset")
    where n.first_id is null
        or (n.first_id, n.last_id, n.broker_id, n.broker_epoch, n.timestamp_ms)
        is distinct from (s.first_id, s.last_id, s.broker_id, s.broker_epoch, s.timestamp_ms)
),
runs as (
    select *, case when gone then number - row_number() over (partition by gone order by number) else -number end as run
    from compared
)
select block, now, blocks, last_id, last_offset
from (
    select arg_min({'offset': "offset", 'first_id': first_id, 'last_id': last_id, 'broker_id': broker_id,
            'broker_epoch': broker_epoch, 'timestamp_ms': timestamp_ms, 'place': place}, "offset") as block,
        case when gone then null else any_value(now) end as now, count(*) as blocks, max(last_id) as last_id,
        max("offset") as last_offset, min("offset") as first_offset
    from runs group by gone, run
)
order by first_offset limit $most
"""


def judge_changes(con: Any, before: Sequence[Location], from_offset: int, to_offset: int) -> Iterator[Named]:
    """The blocks that earlier audits wrote to `before`, beside `versions`. Those that are gone in a row are one."""
    con.register("before", ParquetFiles(before, evidence.BLOCKS).table())
    found = con.sql(CHANGES_SQL, params={"start": from_offset, "end": to_offset, "most": MAX_CHANGES})
    for batch in found.to_arrow_table().cast(evidence.CHANGED).to_batches():
        yield "changed", batch
    con.unregister("before")


CARRIED_SQL: Final = """
insert into changed by name
with due as (
    select old.* replace (i.shard as shard), old.block."offset" as first_offset
    from changed_before old
    join shard_inputs i on not i.settled and i.from_offset <= old.block."offset" and old.block."offset" < i.to_offset
), beside as (
    select first_offset, count(*) as there, max(b.last_id) as reach,
        any_value({'offset': b."offset", 'first_id': b.first_id, 'last_id': b.last_id, 'broker_id': b.broker_id,
            'broker_epoch': b.broker_epoch, 'timestamp_ms': b.timestamp_ms, 'place': b.place})
            filter (b."offset" = first_offset) as found
    from due join blocks_in_order b on b.version = 1 and b."offset" between first_offset and last_offset
    group by first_offset
), compared as (
    select *, (block.first_id, block.last_id, block.broker_id, block.broker_epoch, block.timestamp_ms)
        is not distinct from (found.first_id, found.last_id, found.broker_id, found.broker_epoch, found.timestamp_ms)
        as back
    from due left join beside using (first_offset)
)
select * exclude (first_offset, there, reach, found, back) replace (case when not back then found end as now)
from compared
where not exists (from changed c where c.block."offset" = first_offset)
    and not coalesce(back and there >= blocks and reach = last_id, false)
"""
"""The kernels compare files with what the last audit saw in them; what had changed before that counts until it is back.
Of a run that is gone the first block is known, how many there were and how far they reached: that has to be back."""
CHANGED_SQL: Final = """
insert into findings by name
with uncommitted as (
    select distinct first_id, last_id, broker_id, broker_epoch, timestamp_ms from records
    where not committed and list_contains($allocations, record_type) and not list_contains($foreign, member_id)
)
select 'memory' as "check", 'violation' as severity,
    case when blocks = 1 then format('offset {}', block."offset")
        else format('offsets {} to {}', block."offset", last_offset) end as subject,
    block.first_id as first_id, last_id, block.broker_id as broker_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, owner_of_file(file_of(block.place)) as member,
    path_of(file_of(block.place)) as file, position_of(block.place) as "position",
    case when now is not null then format('an earlier audit saw {}; the files now say {}', block_text(block),
            block_text(now))
        when blocks = 1 then format('an earlier audit saw {}, which is in no file any more', block_text(block))
        else format('an earlier audit saw {} blocks from {} on, up to ID {} at offset {}; they are in no file any more',
            blocks, block_text(block), last_id, last_offset) end as detail
from changed
where now is not null
    or blocks > (select count(*) from uncommitted u where u.first_id between block.first_id and changed.last_id)
    or not exists (from uncommitted u where (u.first_id, u.last_id, u.broker_id, u.broker_epoch, u.timestamp_ms)
        = (block.first_id, block.last_id, block.broker_id, block.broker_epoch, block.timestamp_ms))
"""
"""What a log still has is not gone, though too few of them are here to show that it is committed."""


def conclude(con: Any, foreign: list[int]) -> None:
    """One violation for each change, also of those that were told before. `foreign`: members that count nowhere."""
    if has_rows(con, "changed_before"):
        con.execute(CARRIED_SQL)
    if has_rows(con, "changed"):
        con.execute(CHANGED_SQL, {"allocations": list(ALLOCATIONS), "foreign": foreign})
