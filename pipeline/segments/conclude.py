"""Findings from the evidence of all parts and buckets, with the names that numbers stand for.

The connection has the tables of tables.EVIDENCE, `files` as plan.FILES, and `findings`. A fault that several copies of
a partition show is one finding, the worst, of the copy that comes first.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pidkeeper.pipeline.engine.duck import has_rows
from pidkeeper.pipeline.segments.burning import MANY_PRODUCERS, WINDOW_MS
from pidkeeper.pipeline.segments.missing import find_missing
from pidkeeper.pipeline.segments.seams import find_seams
from pidkeeper.pipeline.segments.transactions import HANGING_MS

CHECKS: Final = (
    "unallocated",
    "duplicate",
    "out_of_sequence",
    "missing_batches",
    "fenced_epoch",
    "shared_producer",
    "hanging_transaction",
    "id_burner",
)
"""Names of the checks, in the order of the report."""

CERTAIN_FACTOR: Final = 4
"""A multiple of `hanging_ms` for a violation: by then the coordinator must have aborted it several times over."""


class ConcludeSettings(msgspec.Struct, frozen=True):
    """As JudgeSettings; `many_producers` that begin in a window with few batches are a burst."""

    hanging_ms: int = HANGING_MS
    certain_factor: int = CERTAIN_FACTOR
    window_ms: int = WINDOW_MS
    many_producers: int = MANY_PRODUCERS


_COLUMNS: Final = """
create or replace temp macro place_of(topic, "partition", path) as coalesce(topic || '-' || "partition", path);
create or replace temp macro rank_of(severity) as
    case severity when 'violation' then 0 when 'warning' then 1 else 2 end;
create or replace temp macro shown(number) as coalesce(number::varchar, '?')
"""

_UNALLOCATED: Final = """
insert into findings by name
select
    'unallocated' as check, 'violation' as severity,
    place_of(topic, "partition", path) || ', producer ' || producer_id as subject,
    producer_id as first_id, producer_id as last_id, base_offset as "offset",
    topic, "partition", timestamp_ms, member, path as file, position,
    format(
        '{} batches, the first at offset {}, have a producer id that no broker was given: another client may be given '
        'it later',
        batches, base_offset
    ) as detail
from unallocated
join files using (file_id)
"""

_UNCHECKED: Final = """
insert into findings by name
with summed as (
    select known_from, sum(ids)::bigint as ids, min(first_id) as first_id, max(last_id) as last_id
    from unchecked_ids
    group by known_from
)
select
    'unallocated' as check, case when known_from is null then 'note' else 'warning' end as severity,
    format('IDs {} to {}', first_id, last_id) as subject, first_id, last_id,
    case
        when known_from is null then format(
            '{} producer ids were not checked, because no allocation was given: name the quorum''s directories', ids
        )
        else format(
            '{} producer ids lie below {}, the first ID of the first block known: they were given out before this '
            'quorum''s first block, or the archive is not whole',
            ids, known_from
        )
    end as detail
from summed
"""

_SEQUENCES: Final = """
insert into findings by name
with found as (
    select * from faults join files using (file_id) where fault in ('duplicate', 'out_of_sequence')
), once as (
    select *
    from found
    qualify row_number() over (
        partition by fault, partition_id, producer_id, base_offset order by rank_of(severity), file_id, position
    ) = 1
)
select
    fault as check, severity, place_of(topic, "partition", path) || ', producer ' || producer_id as subject,
    producer_id as first_id, producer_id as last_id, base_offset as "offset",
    topic, "partition", timestamp_ms, member, path as file, position,
    case
        when fault = 'duplicate' then format(
            'sequences {} to {} of epoch {}, in batches at offset {} and on ({} in all), were written before: '
            'consumers see these records twice',
            base_sequence, last_sequence, epoch, base_offset, batches
        )
        else format('sequence {} of epoch {} at offset {}: ', base_sequence, epoch, base_offset) || case
            when severity = 'note' then 'the broker had forgotten the producer after its silence, and took it'
            when gap is null then 'its successor stands before it in the log'
            else format('{} sequences before it are not in the log, and {} offsets are missing there', gap, lost)
                || case
                    when severity = 'warning' then '; the file is damaged there, which explains it'
                    else ': records were lost or changed places'
                end
        end
    end as detail
from once
"""

_FENCED: Final = """
insert into findings by name
with once as (
    select *
    from fenced
    join files using (file_id)
    qualify row_number() over (partition by partition_id, producer_id, base_offset order by file_id, position) = 1
)
select
    'fenced_epoch' as check, 'violation' as severity,
    place_of(topic, "partition", path) || ', producer ' || producer_id as subject,
    producer_id as first_id, producer_id as last_id, base_offset as "offset",
    topic, "partition", timestamp_ms, member, path as file, position,
    format(
        '{} batches of epoch {}, the first at offset {}, stand behind epoch {}, which fences them: the broker should '
        'have refused them',
        batches, epoch, base_offset, fenced_by
    ) as detail
from once
"""

_SHARED: Final = """
insert into findings by name
with places as (
    select
        mixed.*,
        case when coalesce(inside_ms > outside_ms, false) then inside_file else outside_file end as file_id,
        case when coalesce(inside_ms > outside_ms, false) then inside_position else outside_position end as position,
        case when coalesce(inside_ms > outside_ms, false) then inside_offset else outside_offset end as base_offset,
        case when coalesce(inside_ms > outside_ms, false) then inside_ms else outside_ms end as timestamp_ms
    from mixed
), signs as (
    select
        1 as sign, 'violation' as severity, producer_id, places.file_id, position, base_offset, timestamp_ms,
        format(
            'writes in transactions, as at offset {} of {}, and outside of them, as at offset {} of {}: no client does '
            'both, so two have this id',
            inside_offset, coalesce(concat_ws('-', one.topic, one."partition"), ''),
            outside_offset, coalesce(concat_ws('-', other.topic, other."partition"), '')
        ) as detail
    from places
    join files as one on one.file_id = inside_file
    join files as other on other.file_id = outside_file
    union all
    select
        2, 'violation', producer_id, file_id, position, base_offset, timestamp_ms,
        format(
            'a stream of epoch {} begins at sequence 0 again at offset {} though sequence {} had been reached: two '
            'clients write with this id',
            epoch, base_offset, shown(top)
        )
    from faults
    where fault = 'shared_producer'
    union all
    select
        3, case when proven then 'violation' else 'note' end, producer_id, file_id, position, base_offset, timestamp_ms,
        format(
            'writes in epoch {} at {} ms, though a newer epoch, {} at most, began at {} ms',
            epoch, timestamp_ms, newer, since_ms
        ) || case
            when proven then ': two clients have this id'
            else '; both times are of clients, who may have stamped records with the time of older events'
        end
    from overtaken
), once as (
    select *
    from signs
    join files using (file_id)
    qualify row_number() over (
        partition by producer_id
        order by
            rank_of(severity), sign, topic nulls first, "partition" nulls first, base_offset, file_id, position
    ) = 1
)
select
    'shared_producer' as check, severity,
    format('producer {}, seen in {}', producer_id, place_of(topic, "partition", path)) as subject,
    producer_id as first_id, producer_id as last_id, base_offset as "offset",
    topic, "partition", timestamp_ms, member, path as file, position, detail
from once
"""

_HANGING: Final = """
insert into findings by name
with judged as (
    select *, case when age_ms > $certain_ms and whole then 'violation' else 'warning' end as severity
    from open_transactions
    join files using (file_id)
    where age_ms > $hanging_ms
), once as (
    select *
    from judged
    qualify row_number() over (
        partition by partition_id, producer_id order by rank_of(severity), base_offset, file_id
    ) = 1
)
select
    'hanging_transaction' as check, severity,
    place_of(topic, "partition", path) || ', producer ' || producer_id as subject,
    producer_id as first_id, producer_id as last_id, base_offset as "offset",
    topic, "partition", timestamp_ms, member, path as file, position,
    format(
        'a transaction of epoch {} is open since offset {}: {} batches and no marker behind them after {} s; readers '
        'of committed records stop there',
        epoch, base_offset, batches, age_ms // 1000
    ) || case when whole then '' else '; its marker may be among what is missing behind it' end as detail
from once
"""

_BURSTS: Final = """
insert into findings by name
with summed as (
    select
        topic_id, timestamp_ms, sum(ids)::bigint as ids, min(first_id) as first_id, max(last_id) as last_id,
        sum(batches)::bigint as batches
    from bursts
    group by topic_id, timestamp_ms
    having sum(ids) >= $many_producers
), topics as (
    select topic_id, any_value(topic) as topic from segment_parts join files using (file_id) group by topic_id
)
select
    'id_burner' as check, 'warning' as severity, 'topic ' || coalesce(topic, '?') as subject, first_id, last_id,
    topic, timestamp_ms,
    format(
        '{} producer ids wrote {} batches in all from here on for {} s: clients make a producer for next to nothing, '
        'let them keep one',
        ids, batches, $window_s
    ) as detail
from summed
join topics using (topic_id)
"""

_LEFT_OUT: Final = """
insert into findings by name
select
    "check", severity, 'all others' as subject,
    format('{} more of these were found, too many to be listed one by one', sum("rows")::bigint) as detail
from left_out
group by "check", severity
"""


def conclude(con: Any, settings: ConcludeSettings | None = None) -> None:
    """Insert the findings of all checks of segments into `findings`, but for those of shares.py.

    What is wrong with segments themselves goes into `problems`.
    """
    settings = settings or ConcludeSettings()
    con.execute(_COLUMNS)
    hanging = {"certain_ms": settings.hanging_ms * settings.certain_factor, "hanging_ms": settings.hanging_ms}
    bursts = {"many_producers": settings.many_producers, "window_s": settings.window_ms // 1000}
    for query, tables, settled in (
        (_UNALLOCATED, ("unallocated",), None),
        (_UNCHECKED, ("unchecked_ids",), None),
        (_SEQUENCES, ("faults",), None),
        (_FENCED, ("fenced",), None),
        (_SHARED, ("mixed", "faults", "overtaken"), None),
        (_HANGING, ("open_transactions",), hanging),
        (_BURSTS, ("bursts",), bursts),
        (_LEFT_OUT, ("left_out",), None),
    ):
        if has_rows(con, *tables):
            con.execute(query, settled)
    find_missing(con)
    find_seams(con)
