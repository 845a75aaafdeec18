"""`replicas_disagree`: members never disagree about what is committed (R14, log matching: Raft paper, figure 3)."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows
from pidkeeper.pipeline.quorum import logs
from pidkeeper.pipeline.quorum.evidence import ALLOCATIONS

VERSIONS_SQL: Final = """
insert into findings by name
with told as (
    select block, version, first_value({'block': block, 'copies': copies, 'members': members}) over (
        partition by block."offset" order by version) as most
    from versions
)
select 'replicas_disagree' as "check", 'violation' as severity,
    format('offset {}, member {}', block."offset", owner_of_file(file_of(block.place))) as subject,
    block.first_id as first_id, block.last_id as last_id, block.broker_id as broker_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, owner_of_file(file_of(block.place)) as member,
    path_of(file_of(block.place)) as file, position_of(block.place) as "position",
    format('{}, epoch {}, {} ms; but {} copies of {} members say: {}, epoch {}, {} ms', block_text(block),
        block.broker_epoch, block.timestamp_ms, most.copies, most.members, block_text(most.block),
        most.block.broker_epoch, most.block.timestamp_ms) as detail
from told where version > 1
"""
ABSENT_SQL: Final = """
insert into findings by name
select 'replicas_disagree' as "check", 'violation' as severity,
    format('offset {}, member {}', block."offset", name_of(member_id)) as subject,
    block.first_id as first_id, block.last_id as last_id, block.broker_id as broker_id, block."offset" as "offset",
    block.timestamp_ms as timestamp_ms, name_of(member_id) as member, path_of(file_id) as file, "position",
    format('{}; but member {} has {} there ({})', block_text(block), name_of(member_id), instead, path_of(file_id))
        as detail
from absent
"""
_NOT_CONTENT: Final = {"member_id", "file_id", "segment", "position", "index", "offset", "committed"}
_CONTENT: Final = ", ".join(f"'{name}': \"{name}\"" for name in logs.RECORDS.names if name not in _NOT_CONTENT)
DIFFERING_SQL: Final = f"""
create temp table differing_entries as
with rows as (
    select *, max(record_type in {ALLOCATIONS} and "offset" is not null) over (partition by "index", record_number)
            as of_block,
        count(*) over (partition by member_id, "index") as records
    from records where committed and not list_contains($foreign, member_id)
),
contents as (
    select *, case when of_block then to_json({{'term': term, 'records': records}})
        else json_merge_patch('{{}}', to_json({{'records': records, {_CONTENT}}})) end::varchar as content
    from rows
),
versions as (
    select "index", record_number, content, count(*) as members,
        min({{'member_id': member_id, 'file_id': file_id, 'position': "position", 'offset': "offset"}}) as copy
    from contents group by all
),
ranked as (
    select *, row_number() over by_record as version, first_value({{'copy': copy, 'members': members,
        'content': content}}) over by_record as agreed
    from versions window by_record as (partition by "index", record_number order by members desc, copy)
)
from ranked where version > 1
qualify row_number() over (partition by "index", copy.member_id order by record_number) = 1
"""
"""Committed entries of one index with different terms or records; nulls are left out by name, so that no two contents
look alike. What a record of an allocation says is left to the blocks, which see the archives too."""
ENTRIES_SQL: Final = """
insert into findings by name
select 'replicas_disagree' as "check", 'violation' as severity,
    format('log index {}, member {}', "index", name_of(copy.member_id)) as subject, copy."offset" as "offset",
    name_of(copy.member_id) as member, path_of(copy.file_id) as file, copy."position" as "position",
    format('entry {}, record {} of {}: {}; but {} members have {} ({})', "index", record_number,
        copy_text(copy), content, agreed.members, agreed.content, copy_text(agreed.copy)) as detail
from differing_entries
"""


def conclude(con: Any, foreign: list[int]) -> None:
    """A finding names the copy that fewer members have; of an entry that differs in several records, the first."""
    con.execute(DIFFERING_SQL, {"foreign": foreign})
    for table, query in (("versions", VERSIONS_SQL), ("absent", ABSENT_SQL), ("differing_entries", ENTRIES_SQL)):
        if has_rows(con, table):
            con.execute(query)
