"""The sequences of each producer in each partition, laid on one line, and what does not follow on it.

Kafka counts records: the next batch of an epoch begins at the last sequence plus 1, 0 follows 2147483647, a new epoch
begins at 0 (reference: ProducerAppendInfo of Kafka). A line is the batches of one producer in one epoch between two
silences long enough for the broker to forget it. Along a line sequences are unwrapped to int64 by adding up lengths
and signed jumps, each jump taken as the shorter way round the 2^31 sequences; `top` is the highest sequence so far.

A batch above top + 1 lies behind a gap. A gap of no more sequences than offsets are missing from the log since is what
compaction leaves, for a record takes one offset and one sequence; with a damaged file among the missing it is a
warning. Where nothing compacts the topic, only damage explains a gap. A batch at or below top goes back. What it is
shows when the line is sorted by sequence:

- it fills a gap that has been reported, or comes just before the first batch seen: the order is wrong, one fault;
- else it was written before. Batches that go back and follow one another are one fault, named by where they begin:
  `shared_producer` if at sequence 0 and it is not the very first batch once more, else `duplicate`. A retry repeats a
  batch with the same sequences; a stream that begins at 0 again is another client's. All else on the line behind such
  a beginning is the mixture of two streams and is not reported again.

What headers cannot tell: whether two clients with one id write to different partitions (see sharing.py); a batch that
repeats sequences which retention removed; a silence by the broker's clock where timestamps are the client's; which of
missing offsets were this producer's. Batches of an older epoch are left to `fenced_epoch`.

Only producers of which some row does not follow as it must are looked at (`suspects` in following.py), and only lines
on which some batch goes back are sorted by sequence once more.
"""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.engine.duck import has_rows, make_tables
from pidkeeper.pipeline.segments.carrying import MOST
from pidkeeper.pipeline.segments.tables import KEPT

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`."""

_LOOKED_AT: Final = """
create or replace temp table looked_at as
select
    followed.producer_id, followed.log_id, followed.part, position, base_offset, epoch::integer as epoch,
    base_sequence::bigint as base_sequence, last_sequence::bigint as last_sequence,
    is_control, timestamp_ms, carried.whole,
    least(followed.missing + carried.missing_before, $most)::bigint as missing,
    followed.holes + carried.holes_before as holes
from followed
join suspects using (producer_id, log_id)
join carried on carried.part = followed.part
where fenced_by is null and followed.sequenced
"""

_LINES: Final = """
create or replace temp table lines as
with marked as (
    select
        *,
        coalesce(epoch > lag(epoch) over in_order, false) as entered,
        coalesce(timestamp_ms - lag(timestamp_ms) over in_order >= $expiration_ms, false) as silent,
        {'missing': lag(missing) over in_order, 'holes': lag(holes) over in_order} as there
    from looked_at
    window in_order as (partition by log_id, producer_id order by base_offset, part, position)
), numbered as (
    select
        *,
        sum((entered or silent)::bigint) over to_here as line,
        last_value(case when silent then 'silence' when entered then 'epoch' end ignore nulls) over to_here as began,
        last_value(case when entered then there end ignore nulls) over to_here as since_epoch
    from marked
    window to_here as (
        partition by log_id, producer_id order by base_offset, part, position
        rows between unbounded preceding and current row
    )
)
select
    * exclude (line, entered, silent, there, is_control),
    line::bigint as line,
    -- That of the data before it, on whichever line.
    lag({'epoch': epoch, 'last_sequence': last_sequence, 'missing': missing, 'holes': holes}) over in_order as latest
from numbered
where not is_control and base_sequence >= 0
window in_order as (partition by log_id, producer_id order by base_offset, part, position)
"""

_UNWRAPPED: Final = """
create or replace temp table unwrapped as
with measured as (
    select
        *,
        ((last_sequence - base_sequence) & 2147483647) + 1 as length,
        coalesce(
            ((base_sequence - lag(last_sequence) over in_order - 1 + 1073741824) & 2147483647) - 1073741824, 0
        ) as jump,
        first_value(base_sequence) over in_order as origin
    from lines
    window in_order as (partition by log_id, producer_id, line order by base_offset, part, position)
), placed as (
    select
        *,
        (
            origin
            + sum(jump) over (in_order rows between unbounded preceding and current row)
            + coalesce(sum(length) over (in_order rows between unbounded preceding and 1 preceding), 0)
        )::bigint as first
    from measured
    window in_order as (partition by log_id, producer_id, line order by base_offset, part, position)
), topped as (
    select *, first + length - 1 as last, max(first + length - 1) over before_it as top
    from placed
    window before_it as (
        partition by log_id, producer_id, line order by base_offset, part, position
        rows between unbounded preceding and 1 preceding
    )
)
select
    * exclude (length, jump, origin),
    coalesce(first <= top, false) as back,
    last_value(
        case when not coalesce(first <= top, false) then {'missing': missing, 'holes': holes} end ignore nulls
    ) over before_it as since_top
from topped
window before_it as (
    partition by log_id, producer_id, line order by base_offset, part, position
    rows between unbounded preceding and 1 preceding
)
"""

_JUDGED: Final = """
create or replace temp table judged as
with expected as (
    select
        *,
        case
            when back then null
            when top is not null then first - top - 1
            when began = 'epoch' then base_sequence
            when began = 'silence' and latest.epoch = epoch
                then (base_sequence - latest.last_sequence - 1) & 2147483647
            when began = 'silence' and latest is not null then base_sequence
            else 0
        end as gap,
        case
            when top is not null then since_top
            when began = 'epoch' then since_epoch
            else {'missing': latest.missing, 'holes': latest.holes}
        end as since
    from unwrapped
), weighed as (
    select
        * exclude (since, since_top, since_epoch),
        coalesce(missing - since.missing, 0) as lost,
        coalesce(holes > since.holes, false) as damaged
    from expected
)
select
    *,
    case
        when back or gap <= 0 then null
        when gap <= lost and damaged then 'warning'
        when gap <= lost and not whole then null
        when top is null and began = 'silence' then 'note'
        else 'violation'
    end as severity
from weighed
"""

_REPETITIONS: Final = """
create or replace temp table repetitions as
with doubtful as (
    select *
    from judged
    semi join (select log_id, producer_id, line from judged where back) using (log_id, producer_id, line)
), met as (
    select
        *,
        max(last) over (upwards rows between unbounded preceding and 1 preceding) as reach,
        coalesce(lag(first) over upwards = first and lag(last) over upwards = last, false) as same,
        last_value(
            case when not back then {'first': first, 'reported': severity = 'violation', 'start': top is null} end
            ignore nulls
        ) over (downwards rows between unbounded preceding and 1 preceding) as next
    from doubtful
    window
        upwards as (partition by log_id, producer_id, line order by first, base_offset, part, position),
        downwards as (
            partition by log_id, producer_id, line order by first desc, base_offset desc, part desc, position desc
        )
), placed as (
    select *, not coalesce(reach >= first, false) and next.first > last as free
    from met
    where back
), kept as (
    select
        *,
        coalesce(free and next.start and next.first = last + 1 and began is null, false) as joins,
        coalesce(first <> lag(last) over in_order + 1, true) as breaks
    from placed
    where not coalesce(free and next.reported, false)
    window in_order as (partition by log_id, producer_id, line order by base_offset, part, position)
), chained as (
    select *, sum(breaks::bigint) over to_here as chain
    from kept
    window to_here as (
        partition by log_id, producer_id, line order by base_offset, part, position
        rows between unbounded preceding and current row
    )
)
select
    log_id, producer_id, line,
    arg_min(
        {
            'part': part, 'position': position, 'timestamp_ms': timestamp_ms, 'epoch': epoch,
            'base_offset': base_offset, 'base_sequence': base_sequence, 'top': top, 'same': same, 'joins': joins,
            'gap': gap, 'lost': lost
        },
        {'base_offset': base_offset, 'part': part, 'position': position}
    ) as start,
    arg_max(last_sequence, {'base_offset': base_offset, 'part': part, 'position': position}) as last_sequence,
    count(*) as batches
from chained
group by log_id, producer_id, line, chain
"""

_FAULTS: Final = """
create or replace temp table faults as
with every as (
    select
        log_id, producer_id, line, part, position, timestamp_ms, epoch, base_offset, base_sequence, last_sequence,
        1::bigint as batches, top, gap, lost, 'out_of_sequence' as fault, severity
    from judged
    where severity is not null
    union all
    select
        log_id, producer_id, line, start.part, start.position, start.timestamp_ms, start.epoch, start.base_offset,
        start.base_sequence, last_sequence, batches, start.top, start.gap, start.lost,
        case
            when start.joins and batches = 1 then 'out_of_sequence'
            when start.base_sequence = 0 and not (start.same and batches = 1) then 'shared_producer'
            else 'duplicate'
        end,
        'violation'
    from repetitions
), mixtures as (
    select *, min(case when fault = 'shared_producer' then base_offset end) over (
        partition by log_id, producer_id, line
    ) as shared_at
    from every
)
select
    producer_id, fault, severity, epoch, part, position, timestamp_ms,
    base_offset, base_sequence, last_sequence, batches, top, gap, lost
from mixtures
where shared_at is null or base_offset <= shared_at
"""


def find_faults(con: Any, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
    """The temporary table `faults`, by tables.KEPT, of the logs and producers in `suspects`."""
    if not has_rows(con, "suspects"):
        make_tables(con, {"faults": KEPT["faults"]}, anew=True)
        return
    con.execute(_LOOKED_AT, {"most": MOST})
    con.execute(_LINES, {"expiration_ms": expiration_ms})
    con.execute(_UNWRAPPED)
    con.execute(_JUDGED)
    con.execute(_REPETITIONS)
    con.execute(_FAULTS)
