"""`snapshot_behind`: a snapshot never forgets a block, its next producer ID is above all IDs before it (S6, R12)."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows
from pidkeeper.pipeline.quorum import logs

_NOT_CONTENT: Final = {"member_id", "cluster_id", "file_id"}
_NAMES: Final = [name for name in logs.SNAPSHOTS.names if name not in _NOT_CONTENT]
_COLUMNS: Final = ", ".join(f'"{name}"' for name in _NAMES)
_STRUCT: Final = ", ".join(f"'{name}': \"{name}\"" for name in _NAMES)

VERSIONS_SQL: Final = f"""
create temp table snapshot_versions as
with each as (
    select {_COLUMNS}, count(*) as copies,
        min({{'member_id': member_id, 'file_id': file_id}}) as seen
    from snapshots where not list_contains($foreign, member_id) group by {_COLUMNS}
)
select *, json_merge_patch('{{}}', to_json({{{_STRUCT}}}))::varchar as content,
    row_number() over (partition by "index" order by copies desc, seen) as version
from each
"""
"""Each distinct snapshot, with the place of its first copy; version 1 is what most members have."""
BEHIND_SQL: Final = """
create temp table snapshots_behind as
with tops as (
    select distinct v.next_offset, s.top as block
    from snapshot_versions v join shards s on s.last_offset < v.next_offset
    union all
    select next_offset, block from snapshot_reach
),
reach as (select next_offset, max({'last_id': block.last_id, 'block': block}) as highest from tops group by next_offset)
select v.*, highest.block as block
from snapshot_versions v join reach using (next_offset)
where next_producer_id <= highest.last_id
"""
FALLEN_SQL: Final = """
create temp table snapshots_fallen as
with in_order as (
    select *, lag({'index': "index", 'next': next_producer_id, 'seen': seen}) over (order by "index") as previous
    from snapshot_versions where version = 1
)
from in_order
where previous.next > next_producer_id and seen not in (select seen from snapshots_behind)
"""
DIFFERING_SQL: Final = """
create temp table snapshots_differing as
select *, first_value({'content': content, 'copies': copies, 'seen': seen}) over (
    partition by "index" order by version) as agreed
from snapshot_versions
qualify version > 1
"""
FOUND_SQL: Final = """
insert into findings by name
with found as (
    select "index", next_offset, next_producer_id as first_id, block.last_id as last_id, seen,
        format('the next producer ID is {}, but before offset {} came {}: whoever starts from it hands out IDs again',
            next_producer_id, next_offset, block_text(block)) as detail
    from snapshots_behind
    union all
    select "index", next_offset, next_producer_id, previous.next - 1, seen,
        format('the next producer ID falls to {}, from {} in the snapshot at index {} (member {}, {})',
            next_producer_id, previous.next, previous."index", name_of(previous.seen.member_id),
            path_of(previous.seen.file_id))
    from snapshots_fallen
    union all
    select "index", next_offset, null, null, seen,
        format('members differ: {} in member {}; {} other copies, as in member {} ({}), have {}', content,
            name_of(seen.member_id), agreed.copies, name_of(agreed.seen.member_id), path_of(agreed.seen.file_id),
            agreed.content)
    from snapshots_differing
)
select 'snapshot_behind' as "check", 'violation' as severity, format('snapshot at index {}', "index") as subject,
    first_id, last_id, next_offset as "offset", name_of(seen.member_id) as member,
    path_of(seen.file_id) as file, detail
from found
"""


def conclude(con: Any, foreign: list[int]) -> None:
    """Snapshots that would hand out IDs again, that fall behind the one before, or that differ from others' copies.

    One finding for each of the three and each distinct snapshot, however many members have it.
    """
    if not has_rows(con, "snapshots"):
        return
    con.execute(VERSIONS_SQL, {"foreign": foreign})
    for query in (BEHIND_SQL, FALLEN_SQL, DIFFERING_SQL):
        con.execute(query)
    if has_rows(con, "snapshots_behind", "snapshots_fallen", "snapshots_differing"):
        con.execute(FOUND_SQL)
