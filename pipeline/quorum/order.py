"""`overlap`, `regress` and `gap`: blocks in the order of the log and in the order of IDs.

In a lawful history the two orders are one. Then each shard has named its gaps, and what is left are the seams between
shards. If any block does not begin above all before it, the whole history is looked at, in both orders.
"""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows

JUMPS: Final = ("ProducerIdFloorRecord", "ZooKeeperBlockRecord", "SuccessionRecord")
"""The records that raise the next producer ID without giving a block to a broker (S3, F6)."""

SEAMS_SQL: Final = """
create temp table seams as
select *, max(top.last_id) over earlier as reached, arg_max(top."offset", top.last_id) over earlier as reached_at
from shards
window earlier as (order by shard rows between unbounded preceding and 1 preceding)
"""
DISORDERED_SQL: Final = """
select (select count(*) from seams where disordered > 0 or lowest.first_id <= reached)
    + (select count(*) from blocks_adrift)
"""
FAULTS_OF_SHARDS_SQL: Final = """
create temp table order_faults as
select block, null::struct(last_id bigint, first_id bigint, "offset" bigint, place bigint) as highest,
    null::struct(last_id bigint, first_id bigint, "offset" bigint, place bigint) as other, gap_from, after
from gaps
union all
select first, null, null, coalesce(reached, -1) + 1, coalesce(reached_at, -1)
from seams where first.first_id > coalesce(reached, -1) + 1
"""
"""`block` begins behind the gap from `gap_from` on, or shares IDs with `other`, or falls below `highest`. `after`: the
offset of the block below the gap, -1 without one."""
HISTORY_SQL: Final = """
create temp view history as
select "offset", first_id, last_id, broker_id, broker_epoch, timestamp_ms, place from blocks where version = 1
"""
FAULTS_OF_ALL_SQL: Final = """
create temp table order_faults as
with in_log_order as (
    select *, {'last_id': last_id, 'first_id': first_id, 'offset': "offset", 'place': place} as reach,
        case when "offset" is not null then max(case when "offset" is not null then
            {'last_id': last_id, 'first_id': first_id, 'offset': "offset", 'place': place} end)
            over (order by "offset" nulls first, first_id, place rows between unbounded preceding and 1 preceding)
        end as highest
    from history
),
rising as (
    select *, "offset" is null or highest is null or last_id > highest.last_id as rises from in_log_order
),
in_id_order as (
    select *, max(reach) over below as other,
        max(case when rises then {'last_id': last_id, 'offset': "offset"} end) over below as risen
    from rising
    window below as (
        order by first_id, last_id, "offset" nulls first, place rows between unbounded preceding and 1 preceding
    )
),
judged as (
    select *, case when rises and coalesce(risen.last_id, -1) + 1 < first_id
        then coalesce(risen.last_id, -1) + 1 end as gap_from
    from in_id_order
)
select {'offset': "offset", 'first_id': first_id, 'last_id': last_id, 'broker_id': broker_id,
        'broker_epoch': broker_epoch, 'timestamp_ms': timestamp_ms, 'place': place} as block,
    highest, other, gap_from, case when risen is null then -1 else risen."offset" end as after
from judged
where gap_from is not null or last_id < highest.first_id or other.last_id >= first_id
"""
WHOLE_SQL: Final = """
create temp table whole as
select {'offset': "offset", 'first_id': first_id, 'last_id': last_id, 'broker_id': broker_id,
        'broker_epoch': broker_epoch, 'timestamp_ms': timestamp_ms, 'place': place} as block
from history
where (first_id, place) in (
    select (highest.first_id, highest.place) from order_faults where block.last_id < highest.first_id
    union all select (other.first_id, other.place) from order_faults where other.last_id >= block.first_id
)
"""
"""In full, the blocks that others are told beside. Blocks of one log entry stand at one place."""

OVERLAP_SQL: Final = """
insert into findings by name
with pairs as (
    select f.block.first_id as first_id, least(f.block.last_id, w.block.last_id) as last_id,
        case when w.block."offset" > f.block."offset" then f.block else w.block end as one,
        case when w.block."offset" > f.block."offset" then w.block else f.block end as two
    from order_faults f join whole w
        on f.other.place = w.block.place and f.other.first_id = w.block.first_id
        and f.other."offset" is not distinct from w.block."offset"
    where f.other.last_id >= f.block.first_id
)
select 'overlap' as "check", 'violation' as severity, id_text(first_id, last_id) as subject, first_id, last_id,
    two.broker_id as broker_id, two."offset" as "offset", two.timestamp_ms as timestamp_ms,
    owner_of_file(file_of(two.place)) as member, path_of(file_of(two.place)) as file,
    position_of(two.place) as "position",
    format('{} in two blocks: {}, and {}; two producers may have the same ID',
        case when first_id = last_id then format('ID {} is', first_id)
        else format('{} IDs from {} to {} are', last_id - first_id + 1, first_id, last_id) end,
        block_text(one), block_text(two)) as detail
from pairs
"""
"""IDs that two blocks share: one finding for each block that shares IDs with a block before it in order of ID. It names
the one that reaches farthest, so that together the findings name every shared ID. Place, broker and offset are those of
the block that was given out later."""
REGRESS_SQL: Final = """
insert into findings by name
select 'regress' as "check", 'violation' as severity, id_text(f.block.first_id, f.block.last_id) as subject,
    f.block.first_id as first_id, f.block.last_id as last_id, f.block.broker_id as broker_id,
    f.block."offset" as "offset", f.block.timestamp_ms as timestamp_ms,
    owner_of_file(file_of(f.block.place)) as member, path_of(file_of(f.block.place)) as file,
    position_of(f.block.place) as "position",
    format('{} came after {}: the next producer ID fell', block_text(f.block), block_text(w.block)) as detail
from order_faults f join whole w
    on f.highest.place = w.block.place and f.highest.first_id = w.block.first_id
    and f.highest."offset" is not distinct from w.block."offset"
where f.block.last_id < f.highest.first_id
"""
"""Blocks that lie wholly below the highest one given out before them. A block that shares IDs with that one is not
named here: `overlap` names the two."""
GAP_SQL: Final = f"""
insert into findings by name
with jumps as (
    select next_producer_id, min({{'offset': "offset", 'record_type': record_type, 'member_id': member_id,
        'file_id': file_id, 'position': "position"}}) as jump
    from records
    where committed and record_type in {JUMPS} and not list_contains($foreign, member_id) group by next_producer_id
),
migrated as (
    select count(*) > 0 as imported from (
        select phase from records where committed and not list_contains($foreign, member_id)
        union all select phase from snapshots where not list_contains($foreign, member_id)
    ) where phase is not null
),
gaps as (
    select f.block, gap_from, f.block.first_id - 1 as gap_to, after, next_producer_id,
        case when coalesce(jump."offset" < f.block."offset", true) then jump end as jump,
        imported and gap_from = 0 as imported,
        exists (from log_runs where from_offset <= after + 1 and to_offset >= f.block."offset") as kept
    from order_faults f cross join migrated left join jumps on f.block.first_id = next_producer_id
    where gap_from is not null
)
select 'gap' as "check", case when jump is not null or imported then 'note' else 'warning' end as severity,
    id_text(gap_from, gap_to) as subject, gap_from as first_id, gap_to as last_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, owner_of_file(file_of(block.place)) as member,
    path_of(file_of(block.place)) as file, position_of(block.place) as "position",
    format('nobody has {{}}, the next are {{}}; {{}}', id_text(gap_from, gap_to), block_text(block), case
        when jump is not null then
            format('explained: {{}} at offset {{}} (member {{}}, {{}}, byte {{}}) raised the next producer ID to {{}}',
                jump.record_type, coalesce(jump."offset"::varchar, 'unknown'), name_of(jump.member_id),
                path_of(jump.file_id), jump."position", next_producer_id)
        when imported then 'explained: the quorum came from ZooKeeper, whose brokers may have them'
        when after is null or block."offset" is null then
            'the log that could explain it is gone: the offset of a block is unknown'
        when after + 1 >= block."offset" or kept then
            format('no record between offsets {{}} and {{}} explains it: a block starts at the next producer ID',
                after, block."offset")
        else format('the log that could explain it is gone: no member has all records between offsets {{}} and {{}} '
            || 'any more', after, block."offset")
    end) as detail
from gaps
"""
"""IDs between one block and the next higher one that neither has. Gaps are legal (KIP-730); a record should say why.

The last jump before a block goes to just where the block starts, so it is found by that ID. Below the first block of a
quorum that came from ZooKeeper lie the IDs of ZooKeeper's brokers."""


def conclude(con: Any, foreign: list[int]) -> None:
    """Findings of the three, from `shards`, `gaps`, `adrift`, and if need be from the view `blocks`.

    Cost out of order: three sorts of all blocks, on disk where memory ends.
    """
    con.execute(SEAMS_SQL)
    ((disordered,),) = con.sql(DISORDERED_SQL).fetchall()
    if not disordered:
        con.execute(FAULTS_OF_SHARDS_SQL)
    else:
        con.execute(HISTORY_SQL)
        con.execute(FAULTS_OF_ALL_SQL)
        con.execute(WHOLE_SQL)
        con.execute(OVERLAP_SQL)
        con.execute(REGRESS_SQL)
    if has_rows(con, "order_faults"):
        con.execute(GAP_SQL, {"foreign": foreign})
